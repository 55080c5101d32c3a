"""Colours and style sheets, for the page and for the separate picture."""

import re
from functools import cache
from importlib import resources

# Light, dark. In both, the contrast is at least 4.5:1 for text and 3:1 for bars on their lane.
_COLOURS = {
    "bg": ("#fffdf9", "#15120d"),
    "card": ("#ffffff", "#1d1912"),
    "ink": ("#221c12", "#f3ecdf"),
    "muted": ("#6b6253", "#aba18f"),
    "line": ("#e6ddcd", "#3a3326"),
    "lane": ("#f7f2e8", "#262118"),
    "accent": ("#b45309", "#f6b042"),
    "solid": ("#4a4436", "#d9cfbd"),
    "failed": ("#c81e1e", "#ff6b5e"),
    "w0": ("#cf7a00", "#f6b042"),
    "w1": ("#2f6fb3", "#6aa9e9"),
    "w2": ("#16847a", "#45bfb0"),
    "w3": ("#9a4078", "#d988bb"),
    "w4": ("#6d7a1c", "#b5c254"),
    "w5": ("#5b6472", "#9aa5b5"),
}
_WORKLOAD_COLOURS = 6
_DARK = "@media (prefers-color-scheme: dark)"


def workload_class(index: int) -> str:
    """The CSS class of the workload with this index; colours repeat after six."""
    return f"w{index % _WORKLOAD_COLOURS}"


def page_css() -> str:
    """The style of the page and of the pictures inside it."""
    light, dark = (
        "".join(f"--{name}:{colour[shade]};" for name, colour in _COLOURS.items())
        for shade in (0, 1)
    )
    # A printed page is white even if the screen is dark.
    variables = (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    )
    return "\n".join([variables, _sheet("page.css"), _sheet("chart.css")])


def picture_css() -> str:
    """The style of the separate picture, without variables: not every SVG viewer supports them."""
    sheet = _sheet("chart.css")
    return f"{_resolved(sheet, 0)}\n{_DARK}{{\n{_resolved(sheet, 1)}\n}}"


def _resolved(sheet: str, shade: int) -> str:
    return re.sub(r"var\(--(\w+)\)", lambda found: _COLOURS[found[1]][shade], sheet)


@cache
def _sheet(name: str) -> str:
    return resources.files("sunspot.report").joinpath(name).read_text(encoding="utf-8").strip()
