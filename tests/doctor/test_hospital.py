"""The doctor on a hospital's model and X-rays: every line says what is so."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections import Counter
from pathlib import Path

import hospital_net
import pytest
import torch
from PIL import Image

from gradveil.cli import main

SIDE, BATCH = 224, 8


@pytest.fixture
def hospital(shared_data: Path, tmp_path: Path) -> tuple[Path, Counter[str]]:
    """A folder of X-rays a finding, and a checkpoint as DataParallel leaves it."""
    counts: Counter[str] = Counter()
    with zipfile.ZipFile(shared_data / "chestxray128_gray.zip") as archive:
        for row in csv.DictReader(io.TextIOWrapper(archive.open("labels.csv"))):
            finding = re.sub(r"\W+", "-", row["finding"].strip())
            folder = tmp_path / "xrays" / finding
            folder.mkdir(parents=True, exist_ok=True)
            Image.open(archive.open(row["file"])).resize((SIDE, SIDE)).save(folder / row["file"])
            counts[finding] += 1
    weights = hospital_net.make(len(counts)).state_dict()
    torch.save({"epoch": 3, "state_dict": {f"module.{name}": w for name, w in weights.items()}}, tmp_path / "w.pt")
    return tmp_path, counts


@pytest.mark.slow
def test_every_line_is_right(
    hospital: tuple[Path, Counter[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, counts = hospital
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit, match="0"):
        main([
            "doctor", "--model", f"{hospital_net.__file__}:make", "--weights", "w.pt", "--allow-pickle",
            "--data", "xrays", "--data-option", "channels=1", "--batch-size", str(BATCH), "--images", "4",
            "--bn", "batch", "--optimizer", "adam", "--local-rate", "1e-3", "--json",
        ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    lines = {(one["level"], one["topic"], one["what"]) for one in found["findings"]}
    classes, largest, smallest = len(counts), max(counts.values()), min(counts.values())
    for level, topic, *words in (
        ("note", "model", f"make(num_classes={classes}): filled from the data"),
        ("note", "model", "every name in the file begins with 'module.'"),
        ("note", "model", "20 batch normalization layers use the batch's own statistics"),
        ("note", "normalization", "the model gets [0, 1]"),
        ("note", "data", f"the largest class has {largest / smallest:.3g} times the pictures of the smallest"),
        ("note", "time", "quick ", "standard ", "thorough ", "days; line-ups about "),
        ("ok", "weights", "all 122 tensors matched"),
        ("ok", "data", f"{counts.total()} pictures of {SIDE}x{SIDE} pixels, 1 channel, values from 0 to 1"),
        ("ok", "data", f"{classes} classes: "),
        ("ok", "training", "8 pictures a client, 1 step on 8, rate 0.001", "optimizer adam"),
        ("ok", "signal", "outputs are finite, differ between pictures, and give a gradient"),
        ("ok", "attacks", "apply: portfolio"),
        ("ok", "attacks", "linear does not apply"),
        ("ok", "line-up", "under none: 101 candidates, exact"),
        ("ok", "command", "--optimizer adam", "--bn batch", "--batch-size 8"),
    ):
        assert any(here[:2] == (level, topic) and all(word in here[2] for word in words) for here in lines), words
    assert not any(level == "problem" for level, _, _ in lines)
