"""The study of OASIS: compared rows are equal in what they say, figures hold the numbers, RTF is as published."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses.oasis import Oasis

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"


def study(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"oasis_{name}", ROOT / "papers" / "oasis" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


accuracy, attacks, figures, variants = map(study, ("accuracy", "attacks", "figures", "cah_variants"))
everything, turned = study("all"), study("turned")


@cache
def cifar() -> Dataset:
    return attacks.pictures(str(DATA))


def recipe(**options: object) -> Any:
    usual = {"model": "lenet", "decay": "decoupled", "schedule": "constant", "augment": False, "batch_size": 4}
    return accuracy.Recipe(**(usual | {"seed": 0, "device": "cpu"} | options))


def test_equal_epochs_are_equal_and_equal_pictures_are_those_of_most_copies() -> None:
    names = ["none", "hflip", "major", "major+shear"]
    rows = accuracy.planned(names, 28, ["epochs", "pictures-fed"])
    by = {reading: {row.transforms: row.epochs for row in rows if reading in row.equal} for reading in accuracy.EQUAL}
    assert by["epochs"] == dict.fromkeys(names, 28)
    fed = {name: by["pictures-fed"][name] * Oasis(transforms=name).copies for name in names}
    assert set(fed.values()) == {28 * 7}
    assert len(rows) == 7  # the one with most copies is the same in both and trained once


@pytest.mark.parametrize("augment", [False, True])
def test_an_epoch_feeds_every_picture_once_with_its_copies(augment: bool) -> None:
    images = torch.rand(10, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = Batch(images, torch.eye(10))
    fed = list(accuracy.batches(data, recipe(augment=augment), "major+shear", Seed(1)))
    assert [len(batch.images) for batch in fed] == [28, 28]  # the last two are left for another order
    shown = torch.cat([batch.labels for batch in fed]).sum(0)
    assert sorted(shown.tolist()) == [0.0] * 2 + [7.0] * 8
    firsts = torch.cat([batch.images[::7] for batch in fed])
    of = torch.cat([batch.labels[::7] for batch in fed]).argmax(1)
    assert torch.equal(firsts, images[of]) is not augment


def test_without_copies_a_step_is_adam_on_the_plain_batch() -> None:
    data = load("photos", size=32, limit=8)
    fed = Batch(data.images, data.targets)
    trained = accuracy.trained(recipe(batch_size=8), data, fed, accuracy.Row(transforms="none", epochs=1, equal=()))
    model = recipe().fresh(data).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    torch.nn.functional.cross_entropy(model(fed.images), fed.labels).backward()
    optimizer.step()
    for got, expected in zip(trained.parameters(), model.parameters(), strict=True):
        assert torch.allclose(got, expected, atol=2e-4)  # the order of a sum may turn the sign of a tiny step
    assert not torch.allclose(next(model.parameters()), next(recipe().fresh(data).parameters()), atol=2e-4)


def test_a_falling_rate_ends_at_zero() -> None:
    assert recipe(schedule="cosine").rate_at(0.0) == pytest.approx(1e-3)
    assert recipe(schedule="cosine").rate_at(1.0) == pytest.approx(0.0)
    assert recipe().rate_at(1.0) == 1e-3


def test_a_box_is_quartiles_and_whiskers_that_are_there() -> None:
    values = [*np.linspace(10, 20, 11).tolist(), 100.0]
    box = figures.box_of(values)
    assert box.quartiles == pytest.approx(tuple(np.percentile(values, [25, 50, 75])))
    assert (box.low, box.high) == (10.0, 20.0)
    assert box.mean == pytest.approx(np.mean(values))


def test_the_figures_hold_what_was_measured() -> None:
    folder = ROOT / "papers" / "oasis" / "results"
    drawn = figures.figures_of(*(figures.lines_of(folder / f"{name}.jsonl") for name in ("attacks", "boxes")))
    for name, svg in drawn.items():
        assert (folder / f"{name}.svg").read_text() == svg, f"{name}.svg is older than its numbers"
        assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert drawn["fig05-rtf"].count("<title>mean") == 2 * 7
    assert drawn["fig03-rtf"].count("<polyline") == 4


def test_one_command_leaves_out_what_is_there_and_keeps_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def called(script: str, options: list[str]) -> None:
        calls.append(script)
        if script == "adaptive.py" and calls.count(script) == 1:
            sys.exit("error: adaptive.py ended with 1, see above")
        if "--out" in options:
            with Path(options[-1]).open("a") as file:
                file.write("{}\n")

    monkeypatch.setattr(everything, "called", called)
    monkeypatch.setattr(sys, "argv", ["all.py", "--root", "nowhere", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"adaptive\.py"):
        everything.main()
    assert [path.name for path in tmp_path.iterdir()] == ["attacks.jsonl"]
    everything.main()
    assert calls == ["attacks.py", "attacks.py", "adaptive.py", "adaptive.py", "figures.py"]
    assert (tmp_path / "attacks.jsonl").read_text() == "{}\n" * 2


@pytest.mark.slow
def test_one_command_makes_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not DATA.is_dir():
        pytest.skip("shared/data is not here")
    monkeypatch.setattr(sys, "argv", ["all.py", "--small", "--root", str(DATA), "--out", str(tmp_path)])
    everything.main()
    stored = ROOT / "papers" / "oasis" / "results"
    assert {path.name for path in tmp_path.glob("*.svg")} == {path.name for path in stored.glob("*.svg")}


def test_rows_of_the_attack_and_of_the_code_before_its_correction() -> None:
    halves, signed = (variants.weights(rows, 6, 20, 0.95, Seed(0)) for rows in ("halves", "signed"))
    assert ((halves < 0).sum(1) == 10).all()
    assert torch.allclose(halves.clamp_min(0).sum(1), -0.95 * halves.clamp_max(0).sum(1))
    assert not ((signed < 0).sum(1) == 10).all()
    assert torch.allclose(signed.abs(), halves.abs())


@pytest.mark.parametrize("transforms", ["major", "hflip", "vflip"])
def test_a_picture_is_the_sum_of_its_parts_and_each_copy_turns_them(transforms: str) -> None:
    order, once = turned.MAPS[transforms]
    cycle, x = turned.Cycle(order=order, once=once), torch.rand(2, 3, 6, 6, dtype=torch.float64)
    parts = cycle.parts(x)
    assert torch.allclose(parts.sum(0).real, x.flatten(-3))
    assert torch.allclose(torch.einsum("kj,kbn->bjn", cycle.characters, parts).real, cycle.all(x).flatten(-3))
    assert torch.equal(cycle.all(x)[:, 0], x)
    assert torch.equal(once(cycle.all(x)[:, -1]), x)


def test_who_knows_the_pushes_on_all_copies_has_the_pictures() -> None:
    order, once = turned.MAPS["major"]
    pictures = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = turned.observed(turned.Cycle(order=order, once=once), pictures, torch.eye(20)[:3].double(), Seed(0))
    found = seen.pictures(seen.push(seen.logits(pictures)))
    assert torch.allclose(found, pictures, atol=1e-4)  # the gradient is of float32, and the pushes differ little


@pytest.mark.parametrize(("batch", "neurons", "paper"), [(8, 500, 147.72), (64, 600, 121.72)])
def test_rtf_is_within_ten_decibels_of_the_paper(batch: int, neurons: int, paper: float) -> None:
    """Means over all pictures of a batch, those that were not read among them (mid-gray)."""
    if not DATA.is_dir():
        pytest.skip("shared/data is not here")
    data = cifar()
    order = torch.randperm(len(data.images), generator=Seed(0).at("order").rng())
    args = argparse.Namespace(
        setting="paper", functional="fourier:32", precision="float32", device="cpu", seed=0, groups=3,
        batch_sizes=[batch],
    )  # fmt: skip
    report = attacks.measured("rtf", neurons, batch, data, order, args)
    assert abs(report["mean_psnr"] - paper) < 10
    assert report["exact"] > 0.85
