"""docs/methods/update-defenses.md: its code runs, and its table of bytes is what is measured."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from blocks import ROOT, blocks, execute

from gradveil.core.check import options_of
from gradveil.core.seeds import Seed
from gradveil.defenses import DEFENSES, parse_defense
from gradveil.defenses.clip import Clip
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.stack import Stack
from gradveil.defenses.topk import TopK
from gradveil.wire import encoded_size

PAGE = ROOT / "docs/methods/update-defenses.md"
TEXT = PAGE.read_text()
NEIGHBORS = ("percentile", "svt", "local-dp")  # of other frameworks


def test_the_code_runs() -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, PAGE, session)


def test_the_command_gives_a_stack_in_its_order() -> None:
    commands = [command for block in blocks(PAGE) for command in block.commands]
    stacks = [parse_defense(text) for command in commands for text in command if text.startswith("stack:")]
    assert stacks == [Stack((Clip(clip=1.0), Gaussian(scale=0.5))), Stack((TopK(sparsity=0.9), Qsgd(bits=3)))]


@pytest.mark.parametrize(
    "name", ["gaussian", "laplacian", "clip", "prune", "topk", "sign", "uniform", "qsgd", *NEIGHBORS]
)
def test_every_defense_has_a_section_and_its_options_are_named(name: str) -> None:
    assert re.search(rf"^## .*\b{name}\b", TEXT, re.MULTILINE)
    assert all(f"`{option}" in TEXT for option in options_of(DEFENSES[name]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("none", {}),
        ("prune", {"ratio": 0.5}),
        ("topk", {}),
        ("sign", {}),
        ("uniform", {}),
        ("qsgd", {}),
        ("percentile", {}),
        ("svt", {}),
    ],
)
def test_the_bytes(name: str, options: dict) -> None:
    rng = torch.Generator().manual_seed(0)
    large = torch.randn(300, 200, generator=rng) * torch.rand(300, 1, generator=rng) ** 3
    update = {"a": large, "b": torch.randn(10, generator=rng), "s": torch.tensor(2.0), "e": torch.zeros(0, 3)}
    size = encoded_size(DEFENSES[name](**options).update(update, Seed(0).rng()))
    row = re.search(rf"^\| `{name}`.* \| ([\d,]+) \|$", TEXT, re.MULTILINE)
    assert row is not None
    assert int(row[1].replace(",", "")) == pytest.approx(size, rel=0.01)
