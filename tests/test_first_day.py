"""docs/first-day-on-azure.md: its commands are there, its settings are read, its links lead on."""

import re
import textwrap
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from sunspot import stack as stacks
from sunspot.cli.app import app
from sunspot.stack import Stack

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "first-day-on-azure.md").read_text()


def blocks():
    """The indented blocks, without their indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
    return ["\n".join(line[4:] for line in block.splitlines()) for block in found]


def commands():
    lines = [line.partition(" #")[0].split() for block in blocks() for line in block.splitlines()]
    return [words for words in lines if words and words[0] == "sunspot"]


def test_the_way_there_and_back_is_complete():
    first_words = [words[1] for words in commands()]
    for step in ("doctor", "sizes", "preview", "up", "submit", "rsync", "down"):
        assert step in first_words
    assert first_words[-1] == "down"


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_each_command_has_its_options(words):
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    ours = words[: words.index("--")] if "--" in words else words
    known = {o for p in group.commands[words[1]].params for o in (*p.opts, *p.secondary_opts)}
    assert {word for word in ours[2:] if word.startswith("-")} <= known


def test_its_stack_and_workloads_are_there():
    assert "hybrid" in stacks.names(ROOT)
    for path in re.findall(r"workloads/\w+\.py", PAGE):
        assert (ROOT / path).is_file()


def settings():
    return [
        yaml.safe_load(textwrap.dedent(block))
        for block in blocks()
        if re.match(r"\s*sunspot:", block)
    ]


def test_its_settings_are_taken():
    given = settings()
    assert {key for one in given for key in one} == {"sunspot:access", "sunspot:image"}
    text = (ROOT / "Pulumi.hybrid.yaml").read_text()
    for one in given:
        Stack.parse({**yaml.safe_load(text)["config"], **one}, name="hybrid")


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\(([\w./-]+)(?:#([\w-]+))?\)", PAGE)
    assert links
    for path, anchor in links:
        page = (DOCS / path).read_text()
        titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors


def test_what_has_not_run_on_azure_is_listed_once():
    pages = [ROOT / "README.md", *ROOT.glob("*/README.md"), *DOCS.glob("*.md")]
    lists = [
        p.name
        for p in pages
        if re.search(r"(?i)^\*?\*?(never|nothing has been) run", p.read_text(), re.M)
    ]
    assert lists == ["azure.md"]
