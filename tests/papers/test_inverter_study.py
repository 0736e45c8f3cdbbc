"""The study of the learned inverter: what is measured, who is who, and that the finding says what the lines say."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gradveil.core.types import Batch
from gradveil.generators.provenance import picture_hashes

ROOT = Path(__file__).resolve().parents[2]
STUDY, LINES = ROOT / "papers/inverter", ROOT / "papers/inverter/results/h200.jsonl"
PAGE = ROOT / "docs/findings/learned-inverter.md"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Modules of the folder by name. None of them stays, and none of the same name from elsewhere is taken for one."""
    monkeypatch.syspath_prepend(str(ROOT / "papers/loda"))
    monkeypatch.syspath_prepend(str(STUDY))
    names = [file.stem for file in STUDY.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


def a_split(study: Callable[[str], Any]) -> Any:
    rng = torch.Generator().manual_seed(0)
    pictures = torch.rand(12, 3, 8, 8, generator=rng)
    labels = torch.eye(10)[torch.arange(12) % 10]
    return study("public").CifarSplit(
        victims=Batch(pictures, labels), gallery=torch.rand(50, 3, 8, 8, generator=rng), public={},
        blank=torch.full((3, 8, 8), 0.5), class_means=pictures.clone().roll(1, 0), left_out=0,
    )  # fmt: skip


def test_the_original_itself_is_first_and_a_blank_is_not(study: Callable[[str], Any]) -> None:
    measure, split = study("measure"), a_split(study)
    near = (split.victims.images + 0.05 * torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))).clamp(
        0, 1
    )
    found = measure.compare(near, split, measure.ranks_of)
    assert (found["first"], found["rank"]["value"], found["victims"]) == (12, 1.0, 12)
    assert 20 < found["psnr"]["low"] < found["psnr"]["value"] < found["psnr"]["high"] < 40
    assert found["blank"]["psnr over"]["low"] > 10
    assert found["class mean"]["rank over"]["high"] < 0
    same = measure.compare(split.blank.expand(12, 3, 8, 8), split, measure.ranks_of)
    assert same["blank"]["psnr over"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert same["blank"]["rank over"]["value"] == 0


def test_nobody_learns_from_a_victim_or_the_gallery(study: Callable[[str], Any], shared_data: Path) -> None:
    split = study("public").split_cifar(shared_data, 50, 200, 400, "cpu")
    assert len(split.victims.images) == 50
    assert len(split.gallery) == 200
    assert len(split.public["both"].images) == 800
    learned = {bytes(row.tolist()) for row in picture_hashes(split.public["both"].images)}
    for hidden in (split.victims.images, split.victims.images.flip(-1), split.gallery):
        assert not learned & {bytes(row.tolist()) for row in picture_hashes(hidden)}


def test_a_study_goes_on_after_a_failure_and_where_it_stopped(
    study: Callable[[str], Any], shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--victims", "6", "--gallery", "20", "--pool", "40", "--sizes", "--defenses", "none", "sign"]
    command = ["study.py", "--root", str(shared_data), "--out", str(tmp_path), *small, "--networks", "lenet"]
    monkeypatch.setattr(sys, "argv", command)
    asked: list[str] = []

    def defended(_self: Any, network: str, defense: str, seconds: float) -> dict[str, Any]:
        asked.append(defense)
        assert seconds > 1
        if len(asked) == 1:
            raise ValueError("broken\nin two lines")
        return {"network": network}

    monkeypatch.setattr(study("study").Study, "defended", defended)
    study("study").main()
    study("study").main()
    assert asked == ["none", "sign", "none"]
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["cell"] != "machine"]
    assert [line["cell"] for line in lines] == ["defense/lenet/none", "defense/lenet/sign", "defense/lenet/none"]
    assert lines[0]["failed"].startswith("ValueError: broken in two lines (defended, ")
    assert [line.get("network") for line in lines] == [None, "lenet", "lenet"]


def test_the_finding_says_what_the_lines_say(study: Callable[[str], Any]) -> None:
    table, text = study("table"), PAGE.read_text()
    found = {line["cell"]: line for line in map(json.loads, LINES.read_text().splitlines())}
    assert not [line for line in found.values() if "failed" in line or "search failed" in line]
    for name, one in found.items():
        if name.startswith("size/") and name not in ("size/kept", "size/mean-of-all"):
            assert table.span(one["psnr"]).partition(" ")[2] in text, name
            assert f"{one['simulated']:,}" in text
            assert f"| {one['first']} " in text or f"**{one['first']}**" in text
        if name.startswith("defense/"):
            for column in table.COLUMNS:
                cell = f"{one[column]['psnr']['value']:.1f}"
                assert cell in text, (name, column)
    best = found["size/larger"]
    assert f"names {best['first']} of 300 pictures" in text
    assert f"has {best['top5']} among the five nearest" in text
