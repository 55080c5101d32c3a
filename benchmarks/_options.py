"""What every benchmark's command line answers: `--help`, with the text at the top of its file."""

import argparse


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser that shows this text as it is; without options of its own, it takes only --help."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=raw)
