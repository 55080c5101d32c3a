"""The `sunspot` command. Importing this package loads none of it: `main` does.

So a Ctrl-C is answered from the command's first moment on: its imports take half a second.
"""

# Most objects of a command live until it ends, so it collects garbage less often than by default
# (at every 700th of Python 3.11).
GC_THRESHOLD = 50_000


def main() -> None:
    """The entry point of the console script. SIGTERM and a closed terminal act like Ctrl-C."""
    try:
        from sunspot.cli import interrupts

        interrupts.answer()
    except KeyboardInterrupt:  # a few milliseconds, until it can answer by itself
        import os

        os.write(2, b"error: interrupted\n")
        os._exit(130)
    _collect_garbage_less_often()
    from sunspot.cli.app import app

    try:
        app()
    except SystemExit as end:
        if end.code == interrupts.INTERRUPTED:
            interrupts.leave()
        raise


def _collect_garbage_less_often() -> None:
    """Takes a quarter off the CPU time of a short command, most of it at the command's end."""
    import atexit
    import gc

    gc.set_threshold(GC_THRESHOLD)
    # Before it ends, Python looks at every object several times, to finalize what is in cycles.
    # Nothing here relies on that.
    atexit.register(gc.freeze)
