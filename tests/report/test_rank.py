"""The original's place in the gallery: counted by picture, beside guessing, wherever a run is read."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

import pytest
from synthetic import SCENE, run_of, trial

from gradveil.audit.results import Run, read_run
from gradveil.audit.verdict import judge, to_json
from gradveil.audit.verdict.gallery_rank import GalleryRank
from gradveil.config.audit import audit
from gradveil.core.errors import ConfigError
from gradveil.experiment.journal import encode, read
from gradveil.report.build import render
from gradveil.report.terminal import sentences, tables

RANKS = {"a": (10, 400, 90), "b": (700, 160, 164)}  # best of both: 10, 160, 90


def run_with(attacks: str) -> Run:
    records = [
        trial(f"c{k}", 12.0, attack=attack, scores={"psnr": 12.0, "retrieval": 0.0, "retrieval-rank": float(rank)})
        for attack in attacks
        for k, rank in enumerate(RANKS[attack])
    ]
    return run_of(*records, provenance={"scenarios": {"s": {**SCENE, "role": "audited"}}, "gallery": 1000})


def test_one_attack_is_held_against_one_guess() -> None:
    verdict = judge(run_with("b"))
    text = "median rank 164 of 1,001 (random guessing: 501)"
    assert str(verdict.findings[0].tally.rank) == text
    assert f"none: the original has {text}" in list(sentences(verdict))
    (_, names, lines), *_ = tables(verdict.cells)
    assert [line[names.index("Rank in the gallery worst")] for line in lines] == ["160"]


def test_of_several_attacks_the_best_place_of_each_picture_counts() -> None:
    run = run_with("ab")
    verdict = judge(run)
    found = to_json(run, verdict)["findings"][0]["rank"]
    assert found == {"median": 90, "of": 1001, "tries": 2, "guessing": 294}
    card = render(run).split("<article")[1].split("</article>")[0]
    assert "<dd>90 of 1,001<small>random guessing, best of 2 294</small>" in card


def test_a_run_without_it_has_none() -> None:
    run = run_of(trial("c0", 12.0), provenance={"gallery": 1000})
    assert to_json(run, judge(run))["findings"][0]["rank"] is None
    assert not [line for line in sentences(judge(run)) if "median rank" in line]


@pytest.mark.parametrize("tries", [1, 2, 7])
def test_guesses_reach_what_is_said(tries: int) -> None:
    rng, said = random.Random(0), GalleryRank(median=1, of=1001, tries=tries)
    drawn = median(min(rng.randint(1, 1001) for _ in range(tries)) for _ in range(20_000))
    assert abs(drawn - said.guessing) < 12


def test_every_audit_measures_it_for_the_distances_of_retrieval(tmp_path: Path) -> None:
    audit(tmp_path / "run", attacks=["linear"], model="mlp", images=2, seed=3, defenses=["none"])
    records = [record for record in read(tmp_path / "run" / "journal.jsonl") if record.scores]
    assert records
    for record in records:
        assert (record.scores["retrieval-rank"] == 1) == (record.scores["retrieval"] == 1)
        assert (record.scores["retrieval-rank"] <= 5) == (record.scores["retrieval-top5"] == 1)
    journal = tmp_path / "run" / "journal.jsonl"
    records[0].scores["retrieval-rank"] = 0.0
    journal.write_bytes(b"".join(map(encode, records)))
    with pytest.raises(ConfigError, match="must be 1 or more"):
        read_run(tmp_path / "run")
