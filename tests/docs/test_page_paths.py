"""Every file of the repository that a page names is there, and pages link to headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT
from typer.main import get_command

from gradveil.cli import app

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(path for folder in ("docs", "papers", "examples") for path in (ROOT / folder).rglob("*.md")),
]
ADDS_FILES = "docs/extending.md"  # names files that its reader makes
HOMES = (ROOT, ROOT / "src/gradveil")
ROOMS = sorted(path.name for path in (ROOT / "src/gradveil").iterdir() if path.is_dir() and path.name != "__pycache__")
CODE = re.compile(r"`([\w./-]+)(?:::\w+)?`")
MODULE = re.compile(rf"\bgradveil\.(?:{'|'.join(ROOMS)})(?:\.\w+)+")


def named(page: Path) -> list[str]:
    """Python files and folders in backticks that are written as paths of the repository or of the package."""
    found = CODE.findall(page.read_text())
    rooms = tuple(f"{room}/" for room in ROOMS)
    ours = ("src/", "tests/", "benchmarks/", "papers/", "docs/", "examples/", *rooms)
    return [
        name
        for name in found
        if name.startswith(ours) and ".." not in name and not name.endswith((".safetensors", ".npz"))
    ]


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_files_named_are_there(page: Path) -> None:
    if ids(page) == ADDS_FILES:
        return
    missing = [name for name in named(page) if not any((home / name).exists() for home in (*HOMES, page.parent))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_modules_named_are_there(page: Path) -> None:
    for name in MODULE.findall(page.read_text()):
        path = ROOT / "src" / name.replace(".", "/")
        parent = path.parent  # the last word may be a name in its module
        assert any(p.is_dir() or p.with_suffix(".py").exists() for p in (path, parent)), name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_headings_that_are_linked_are_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        other = page.parent / target if target else page
        headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
        assert anchor in [slug(heading) for heading in headings], f"{target}#{anchor}"


def slug(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_files_to_read_are_few_and_there() -> None:
    text = (ROOT / "docs/flow.md").read_text().partition("## Files to read")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. `([\w/.]+)`", text, re.MULTILINE)
    assert 10 <= len(files) <= 20
    assert [name for name in files if not (ROOT / "src/gradveil" / name).is_file()] == []


@pytest.mark.parametrize("name", ["docs/flow.md", "docs/decisions/0018-rooms-and-layers.md"])
def test_the_layers_drawn_are_those_that_are_held(name: str) -> None:
    held = (ROOT / "tests/test_architecture.py").read_text().partition('LAYERS = """\n')[2].partition('\n"""')[0]
    drawn = (ROOT / name).read_text().partition("```\ncore <- ")[2].partition("\n```")[0]
    layers = [set(layer.replace(",", " ").split()) for layer in f"core <- {drawn}".split("<-")]
    assert layers == [set(line.split()) for line in held.split("\n")]


def options(command: Any, path: str = "gradveil") -> Iterator[tuple[str, set[str]]]:
    """Of every command its options."""
    for name, one in getattr(command, "commands", {}).items():
        yield from options(one, f"{path} {name}")
    yield path, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


COMMANDS = dict(options(get_command(app)))
LONGEST = "|".join(sorted(COMMANDS, key=len, reverse=True))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_that_pages_show_have_these_options(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for command, rest in re.findall(rf"({LONGEST})\b([^\n`#;]*)", text):
        if command == "gradveil":
            continue
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest)) <= {*COMMANDS[command], "--help"}, command
