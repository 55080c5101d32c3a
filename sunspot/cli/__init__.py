"""The `sunspot` command. Importing this package loads none of it: `main` does.

So a Ctrl-C is answered from the command's first moment on: its imports take most of a second.
"""


def main() -> None:
    """The entry point of the console script. SIGTERM and a closed terminal act like Ctrl-C."""
    try:
        from sunspot.cli import interrupts

        interrupts.answer()
    except KeyboardInterrupt:  # a few milliseconds, until it can answer by itself
        import os

        os.write(2, b"error: interrupted\n")
        os._exit(130)
    from sunspot.cli.app import app

    try:
        app()
    except SystemExit as end:
        if end.code == interrupts.INTERRUPTED:
            interrupts.leave()
        raise
