"""How many candidates: what may be asked for, what is taken by itself, and what is one clear line."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toys import Noise, audit

import gradveil
from gradveil.audit.audit import Audit
from gradveil.audit.lineup_plan import SHARED, WHOLE, auto_size, count_standins, plan_lineups
from gradveil.audit.results import read_run
from gradveil.cli import main
from gradveil.config import build, from_tables
from gradveil.config.load import dumps
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.defenses import DEFENSES

TINY = ("--model", "mlp", "--data", "digits", "--images", "2", "--attack", "linear", "--metric", "psnr", "--quiet")
SMALL: dict[str, Any] = {"model": "mlp", "data": "digits", "images": 2, "attacks": ["linear"], "metrics": ["psnr"]}


def toy(**changes: Any) -> Audit:
    return audit({"noise": Noise()}, {"none": Defense()}, **changes)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("x", "error: --lineup: must be a number of candidates, auto or off, got 'x'"),
        ("-3", "error: --lineup: must be a number of candidates, auto or off, got '-3'"),
        ("1", "error: --lineup: must be 2 candidates or more, or 0 for no line-up, got 1"),
        ("5000", "error: --lineup: must be at most 288 (the original and the 287 pictures of the gallery), got 5000"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(
    asked: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["audit", *TINY, "--lineup", asked, "--out", str(tmp_path / "run")])
    assert left.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(said)
    assert not (tmp_path / "run").exists()


def test_off_on_the_command_line_is_none_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["audit", *TINY, "--defense", "none", "--lineup", "off", "--out", str(tmp_path / "run")])
    assert tomllib.loads((tmp_path / "run/config.toml").read_text())["lineup"] == 0
    assert not [r for r in read_run(tmp_path / "run").records if r.control == "lineup"]


def test_the_library_takes_a_number(tmp_path: Path) -> None:
    gradveil.audit(tmp_path / "run", defenses=["none"], lineup=20, **SMALL)
    held = [r for r in read_run(tmp_path / "run").records if r.control == "lineup"]
    assert [r.ranks["candidates"] for r in held] == [[20], [20]]
    with pytest.raises(ConfigError, match=r"^lineup: expected a whole number, got 'some'"):
        gradveil.audit(tmp_path / "other", lineup="some", **SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [0, 50, "auto"])
def test_a_file_keeps_it(asked: int | str) -> None:
    config = from_tables({"lineup": asked})
    assert config.lineup == asked
    assert from_tables(tomllib.loads(dumps(config))) == config


def test_the_labels_of_the_gallery_are_those_of_its_pictures() -> None:
    from gradveil import data

    found, whole = build(from_tables({"scenario": {"data": "digits", "model": "mlp"}})), data.load("digits")
    assert found.gallery is not None
    assert found.gallery_labels is not None
    of_picture = {picture.numpy().tobytes(): label for picture, label in zip(whole.images, whole.targets, strict=True)}
    assert all(
        of_picture[picture.numpy().tobytes()].equal(label)
        for picture, label in zip(found.gallery, found.gallery_labels, strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "defense", "size"),
    [
        ({}, Defense(), SHARED),
        ({"examples": 2}, DEFENSES["dpsgd"](clip=1.0, noise=1.0), SHARED),
        ({}, DEFENSES["mixup"](), WHOLE),
        ({}, DEFENSES["precode"](), WHOLE),
        ({"training": LocalTraining(steps=2)}, Defense(), WHOLE),
        ({"training": LocalTraining(batchnorm="batch")}, Defense(), WHOLE),
    ],
)
def test_so_many_as_are_quick(changes: dict, defense: Defense, size: int) -> None:
    assert auto_size(toy(**changes).scenario, defense) == size


def test_a_large_model_has_fewer_stand_ins() -> None:
    (cell,) = plan_lineups(toy(lineup="auto"), Compute(), 8)
    assert count_standins(cell, 8) == 26
    wide = replace(cell, scenario=replace(cell.scenario, model=_wide(30_000_000)))
    assert count_standins(wide, 8) == 1, "2 times 3 updates of 120 MB"
    assert count_standins(replace(cell, defense=DEFENSES["laplacian"](scale=1.0), scenario=wide.scenario), 8) == 1


def _wide(numbers: int) -> Any:
    import torch

    return torch.nn.Linear(1, numbers, bias=False, device="meta")


@pytest.mark.parametrize("asked", [1, 12, 5000])
def test_an_audit_by_hand_is_checked_too(asked: int) -> None:
    with pytest.raises(ConfigError, match=r"^lineup: must be "):
        list(plan_lineups(toy(lineup=asked), Compute(), 8))
    with pytest.raises(ConfigError, match=r"^lineup: must be "):
        list(plan_lineups(replace(toy(lineup=asked), gallery=None), Compute(), 8))
