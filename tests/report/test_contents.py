"""What the page is made of: cells, worst cases, geometry, scope, redaction."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradveil.record import Attacker, Record
from gradveil.report.cells import cells, summaries
from gradveil.report.figures import AXIS_END, looks_same, png_uri, strip_plot
from gradveil.report.redact import redacted
from gradveil.report.run import Run
from gradveil.report.scope import assumptions, not_tested


def trial(
    client: str, psnr: float | None, *, defense="none", attack="a", attacker: Attacker = "unaware", hit=0.0, **rest
) -> Record:
    return Record(
        key=f"{defense}/{attack}/{attacker}/{client}",
        status="failed" if psnr is None else "ok",
        scenario="s",
        defense=defense,
        attack=attack,
        attacker=attacker,
        client=client,
        example=0,
        seed=0,
        seconds=2.0,
        backend="loop",
        scores={} if psnr is None else {"psnr": psnr, "retrieval": hit},
        **rest,
    )


def run_of(*records: Record, **rest) -> Run:
    return Run(folder=Path("nowhere"), name="r", records=records, **rest)


def test_a_picture_counts_by_the_attack_that_saw_most():
    run = run_of(
        trial("x", 10, attack="a"),
        trial("x", 30, attack="b", hit=1),
        trial("y", 20, attack="a"),
        trial("y", None, attack="b"),
    )
    (summary,) = summaries(run)
    assert (summary.attempted, summary.scored, summary.identified, summary.failed) == (2, 2, 1, 1)
    assert summary.psnr is not None
    assert (summary.psnr.high, summary.psnr.median, summary.psnr.mean) == (30, 25, 25)


def test_a_failed_trial_moves_no_average():
    cell = cells(run_of(trial("x", 10), trial("y", None)))[0]
    spread = cell.spread("psnr")
    assert spread is not None
    assert (spread.high, spread.low, spread.mean) == (10, 10, 10)
    assert cell.attempted == 2


def test_undefended_first_then_the_leakiest():
    run = run_of(trial("x", 5, defense="weak"), trial("x", 4, defense="strong"), trial("x", 3))
    seen = run_of(trial("x", 5, defense="noisy"), trial("x", 4, defense="clear", hit=1))
    assert [s.defense for s in summaries(seen)] == [c.defense for c in cells(seen)] == ["clear", "noisy"]
    assert [s.defense for s in summaries(run)] == ["none", "weak", "strong"]
    assert [c.defense for c in cells(run)] == ["none", "weak", "strong"]


def test_a_label_is_undefended_if_its_method_is_none():
    run = run_of(trial("x", 5, defense="plain"), config={"defense": {"plain": {"name": "none"}}})
    assert summaries(run)[0].undefended


def test_pictures_survive_pixel_for_pixel():
    picture = np.arange(48, dtype=np.float32).reshape(3, 4, 4) / 255
    stored = base64.b64decode(png_uri(picture).partition(",")[2])
    back = np.asarray(Image.open(io.BytesIO(stored))).transpose(2, 0, 1)
    np.testing.assert_array_equal(back, np.arange(48).reshape(3, 4, 4))
    gray = Image.open(io.BytesIO(base64.b64decode(png_uri(picture[:1]).partition(",")[2])))
    assert gray.mode == "L"


def test_looking_the_same_is_less_than_one_level():
    picture = np.zeros((1, 2, 2), np.float32)
    assert looks_same(picture, picture + 0.4 / 255)
    assert not looks_same(picture, picture + 1 / 255)
    assert not looks_same(picture, np.zeros((1, 3, 3), np.float32))


@pytest.mark.parametrize("values", [[5.0], [-3.0, 12.0, 12.0], [8.0, 200.0], [200.0], [11.0] * 40])
def test_every_dot_and_tick_lies_on_the_plot(values):
    plot = strip_plot(cells(run_of(*(trial(str(i), v) for i, v in enumerate(values)))))
    assert plot is not None
    dots = plot.strips[0].dots
    assert len(dots) == len(values)
    places = [dot.x for dot in dots] + [x for x, _ in plot.ticks]
    assert all(0 <= x <= 100 for x in places)
    assert [dot.x for dot in dots] == sorted(dot.x for dot in dots)
    assert 2 <= len(plot.ticks) <= 8
    if max(values) > AXIS_END:
        assert plot.ticks[-1][1] == "60+"


def test_nothing_is_plotted_without_a_score():
    assert strip_plot(cells(run_of(trial("x", None)))) is None


def test_what_was_not_tested_follows_from_the_settings():
    bare = " ".join(not_tested(run_of(trial("x", 5, defense="prune"), config={"scenario": {"weights": ""}})))
    assert "undefended model" in bare
    assert "Adaptive attackers against prune" in bare
    assert "Trained models" in bare
    assert "FedAvg" in bare
    assert "malicious server" in bare
    scenario = {
        "weights": "w",
        "local_steps": 5,
        "attacker": "malicious",
        "batchnorm": "batch",
        "labels": "inferred",
        "rounds": 3,
    }
    records = (trial("x", 5), trial("x", 5, defense="prune", attacker="adaptive", attack="rogs"))
    full = " ".join(not_tested(run_of(*records, config={"scenario": scenario})))
    for said in (
        "undefended model",
        "Adaptive attackers",
        "Trained models",
        "malicious server",
        "several rounds",
        "learned",
    ):
        assert said not in full
    assert "Other stages of training" in full
    assert "An attacker who knows the labels" in full


def test_the_ledger_says_who_knows_which_defense():
    records = (
        trial("x", 5, defense="prune"),
        trial("x", 5, defense="oasis", attacker="adaptive"),
        trial("x", 5, defense="sign"),
        trial("x", 5, defense="sign", attacker="adaptive"),
    )
    ledger = {line.name: line.value for line in assumptions(run_of(*records))}
    assert ledger["Knows the defense"] == "prune: no; oasis: yes; sign: yes and no, both tried"
    assert ledger["Labels"].startswith("Not stated")


def test_redaction_hides_names_inside_other_texts():
    run = run_of(
        trial("ann", None, reason="ann: /data/ann.png of lung-cancer is bad; annual"),
        trial("ann b", 5, notes=("ann b was slow",)),
        config={"scenario": {"weights": "/home/ann/w.safetensors", "model": "lenet"}},
        provenance={"classes": ["lung-cancer"], "sha": "00ff", "host": "ward7"},
    )
    hidden = redacted(run)
    assert [r.client for r in hidden.records] == ["client 1", "client 2"]
    assert hidden.records[0].reason == "client 1: [left out] of [left out] is bad; annual"
    assert hidden.records[1].notes == ("client 2 was slow",)
    assert hidden.scenario == {"weights": "[left out]", "model": "lenet"}
    assert hidden.provenance == {"classes": "[left out]", "sha": "00ff", "host": "[left out]"}
