"""Numbers and names for people, safe in HTML and XML."""

import html
import re

# What XML 1.0 cannot hold at all, even escaped. Task names are user input.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def esc(value: object, limit: int | None = None) -> str:
    """The value as text for HTML or XML, shortened to `limit` characters with an ellipsis."""
    text = _NOT_XML.sub("\ufffd", str(value))
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return html.escape(text)


def plural(count: int, noun: str, several: str | None = None) -> str:
    """`1 node`, `1,204 nodes`; `several` is the plural if it is not just an added `s`."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def seconds(value: float) -> str:
    """Seconds without a unit, with about three significant digits."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def number(value: float) -> str:
    """A number without a needless `.0`."""
    return f"{value:,.10g}" if value == int(value) else f"{value:,.1f}"


def speed_up(value: float | None) -> str:
    """`2.9x`, or a dash if it was not measured."""
    return "—" if value is None else f"{value:.1f}x"
