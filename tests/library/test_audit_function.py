"""`gradveil.audit(...)`: keywords to a verdict, errors in the names of the parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gradveil
from gradveil import AuditConfig, Choice
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
        ({"config": AuditConfig(defense={"none": Choice(name="none")})}, "^config: holds all settings"),
    ],
)
def test_errors_name_the_parameter(wrong: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        gradveil.audit(tmp_path / "run", **{**SMALL, **wrong})
    assert not (tmp_path / "run").exists()
