"""A search that does not move, beside a closed form that works: the defense is not cleared by the pair of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradveil.cli import main

ATTACKS = ["--attack", "linear", "--attack", "invertgrad:steps={steps},restarts=1,tv=0.001{rate}"]


def audit(
    folder: Path, capsys: pytest.CaptureFixture[str], images: int, steps: int, rate: str
) -> tuple[int, dict, str]:
    attacks = [part.format(steps=steps, rate=rate) for part in ATTACKS]
    defenses = ["--defense", "none", "--defense", "gaussian:scale=0.08"]
    what = [
        "--data",
        "digits",
        "--model",
        "mlp",
        "--images",
        str(images),
        *attacks,
        *defenses,
        "--no-convergence",
        "--lineup",
        "0",
    ]
    with pytest.raises(SystemExit) as left:
        main(["audit", *what, "--out", str(folder), "--quiet", "--fail-on", "inconclusive"])
    verdict = json.loads((folder / "verdict.json").read_text())
    return int(left.value.code or 0), verdict, capsys.readouterr().err


def test_a_search_that_stands_still_is_no_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, verdict, error = audit(tmp_path / "run", capsys, images=8, steps=10, rate=",rate=0")
    (finding,) = (one for one in verdict["findings"] if one["defense"] == "gaussian")
    assert (status, verdict["verdict"], finding["at_most"]) == (1, "inconclusive", None)
    assert error.startswith("failed: gaussian: inconclusive")
    by_attack = {check["attack"]: check["passed"] for check in verdict["each_positive"]}
    assert by_attack == {"linear": True, "invertgrad": False}
    assert not any(one["counts"] for one in finding["evidence"])
    assert "rate 0 instead of 0.1" in verdict["under"]


@pytest.mark.more
@pytest.mark.parametrize(("rate", "word", "expected"), [("", "leaks", 0), (",rate=0", "inconclusive", 1)])
def test_the_same_search_with_its_rate_finds_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str, word: str, expected: int
) -> None:
    status, verdict, _ = audit(tmp_path / "run", capsys, images=20, steps=150, rate=rate)
    assert (verdict["verdict"], status) == (word, expected)
