"""Every option of every command says what it is, in a sentence, with its default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from gradveil.cli import app

RIDDLES = ("so many", "may be repeated", "go on with", "Where (")


def parameters(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in sorted(getattr(command, "commands", {}).items()):
        yield from parameters(one, f"{path} {name}".strip())
    for parameter in command.params:
        if "--help" not in parameter.opts:
            yield f"{path} {parameter.opts[0]}".strip(), parameter


ALL = dict(parameters(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_a_sentence(name: str) -> None:
    text = ALL[name].help
    assert text is not None
    assert text.endswith(".")
    assert len(text.split()) >= 3 or name.endswith(("--quiet", "--json"))
    assert not [riddle for riddle in RIDDLES if riddle in text]


@pytest.mark.parametrize("name", ALL)
def test_every_default_is_shown(name: str) -> None:
    parameter = ALL[name]
    if parameter.default in (None, "", False, []) or parameter.required or parameter.show_default:
        return
    assert "default" in parameter.help
