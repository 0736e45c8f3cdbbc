"""docs/captures.md does what it says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gradveil.capture import load
from gradveil.capture.document import KEYS
from gradveil.core.scenario import LocalTraining

PAGE = (Path(__file__).resolve().parents[2] / "docs/captures.md").read_text()
OURS, THREE_LINES, NUMPY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_three_lines_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(THREE_LINES, {})
    assert load("round-0.safetensors").clients == ("client-0", "client-1")


def test_numpy_alone_makes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(NUMPY, {})
    found = load("round-3.safetensors")
    assert (found.training.steps, found.examples, found.producer) == (5, {"client-7": 4}, "our server")
    assert found.updates["client-7"]["fc.bias"].max() < 0  # w_sent - w_after of weights that grew


def test_every_key_is_told() -> None:
    for key in (*KEYS, *(field.name for field in fields(LocalTraining))):
        assert f"`{key}`" in PAGE, key
