"""Runs of the `sunspot` command within the test's process."""

from typer.testing import CliRunner

from sunspot.cli.app import app


def run(*arguments, env=None):
    return CliRunner().invoke(app, list(arguments), env=env)


def failed(code, *arguments):
    """The message of a command that must fail with this exit code and without a traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())
