"""The `sunspot` command. Importing this package loads none of it: `main` does.

So a Ctrl-C is answered from the command's first moment on: its imports take half a second.
"""

# Python looks for garbage at every 700th new object. Most of a command's live to its end.
NEW_OBJECTS = 50_000


def main() -> None:
    """The entry point of the console script. SIGTERM and a closed terminal act like Ctrl-C."""
    try:
        from sunspot.cli import interrupts

        interrupts.answer()
    except KeyboardInterrupt:  # a few milliseconds, until it can answer by itself
        import os

        os.write(2, b"error: interrupted\n")
        os._exit(130)
    _look_for_less_garbage()
    from sunspot.cli.app import app

    try:
        app()
    except SystemExit as end:
        if end.code == interrupts.INTERRUPTED:
            interrupts.leave()
        raise


def _look_for_less_garbage() -> None:
    """Takes a quarter off the CPU time of a short command, of which half is spent at its end."""
    import atexit
    import gc

    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)  # Python goes through all objects several times before it ends
