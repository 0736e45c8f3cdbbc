"""`gradveil.audit(...)`: keywords to a verdict, errors in the names of the parameters."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import gradveil
from gradveil import AuditConfig, Choice, LocalTraining
from gradveil.core.errors import ConfigError

SMALL = {"model": "mlp", "data": "digits", "images": 4, "attacks": ["linear"], "metrics": ["psnr"], "lineup": 0}


def test_keywords_give_the_verdict_of_the_folder(tmp_path: Path) -> None:
    verdict = gradveil.audit(tmp_path / "run", defenses=["none", "prune:ratio=0.9"], **SMALL)
    assert verdict.word == json.loads((tmp_path / "run/verdict.json").read_text())["verdict"]
    assert {cell.defense for cell in verdict.cells} == {"none", "prune"}
    assert (tmp_path / "run/report.html").exists()
    again = gradveil.audit(tmp_path / "run", defenses=["none", "prune:ratio=0.9"], **SMALL)
    assert again.word == verdict.word


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"images": 0}, "^images: "),
        ({"defenses": ["prune:ratio=2"]}, "^defenses: prune.ratio: |^defenses: "),
        ({"attacks": ["invertgrat"]}, "^attacks: .*unknown name"),
        ({"labels": "guessed"}, "^labels: "),
        ({"training": LocalTraining(), "local_steps": 2}, "^training: says it all"),
        ({"config": AuditConfig(defense={"none": Choice(name="none")})}, "^config: holds all settings"),
    ],
)
def test_errors_name_the_parameter(wrong: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        gradveil.audit(tmp_path / "run", **{**SMALL, **wrong})
    assert not (tmp_path / "run").exists()


def test_a_whole_local_training_is_recorded(tmp_path: Path) -> None:
    training = LocalTraining(
        optimizer="adam", rate=1e-3, epochs=2, batch_size=1, order="unknown", class_weights=(1.0,) * 10
    )
    small = SMALL | {"attacks": ["lbfgs-cosine:steps=4"], "lineup": 4, "images": 2, "batch_size": 2}
    gradveil.audit(tmp_path / "run", defenses=["none"], training=training, **small)
    config = tomllib.loads((tmp_path / "run/config.toml").read_text())["scenario"]
    assert (config["optimizer"], config["epochs"], config["order"], config["local_rate"]) == (
        "adam", 2, "unknown", 1e-3,
    )  # fmt: skip
    records = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    own = [record for record in records if "diagnostic" not in record["scenario"]]
    noted = [
        any(note.startswith("order not known") for note in record["notes"])
        for record in own
        if record["attacker"] == "unaware"
    ]
    assert noted
    assert all(noted)
    lineups = [record for record in own if record["control"] == "lineup"]
    assert lineups
    assert all("line-up-bound" in record["flags"] for record in lineups)
