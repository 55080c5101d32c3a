"""The `sunspot` command. Importing this package loads none of it: `main` does.

So a Ctrl-C is answered from the command's first moment on: its imports take most of a second.
"""


def main() -> None:
    """The entry point of the console script. SIGTERM and a closed terminal act like Ctrl-C."""
    try:
        from sunspot.cli import interrupts

        interrupts.answer()
    except KeyboardInterrupt:  # a few milliseconds, until it can answer by itself
        import sys

        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    from sunspot.cli.app import app

    app()
