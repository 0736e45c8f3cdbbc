"""The code blocks of a page, and what it takes to run them as a reader would: in order, in an empty folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of its first line in the page

    @property
    def file(self) -> str | None:
        """A block whose first line is a comment with a file name is that file."""
        named = FILE.match(self.text)
        return named[1] if named else None

    @property
    def commands(self) -> list[list[str]]:
        """The arguments of its `gradveil` lines."""
        if self.language != "bash":
            return []
        return [shlex.split(line)[1:] for line in self.text.splitlines() if line.startswith("gradveil ")]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


def execute(block: Block, page: Path, session: dict[str, Any]) -> None:
    """Run a Python block in the page's session; a traceback names the page and its line."""
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, str(page), "exec"), session)
