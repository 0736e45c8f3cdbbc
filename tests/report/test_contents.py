"""What the page is made of: pictures, geometry, the ledger, what was not tested, claims."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from synthetic import SCENE, random_run, run_of, trial

from gradveil.audit.results import Run
from gradveil.audit.verdict import judge
from gradveil.audit.verdict.conditions import describe_effort, describe_prior, steps_and_restarts
from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_most
from gradveil.report.assumptions import NOT_STATED, describe_attacker, list_assumptions
from gradveil.report.blocks import blocks, control_cells
from gradveil.report.claim import examine_claim, pictures_needed
from gradveil.report.figures import AXIS_END, MANY, Strip, axis_of, looks_same, png_uri, strip
from gradveil.report.not_tested import expiry_of, list_not_tested
from gradveil.report.page import interval, number, percent

FIFTEEN = (
    "Model weights",
    "Architecture",
    "Labels",
    "Normalization statistics",
    "Client mode",
    "Batch size",
    "Local steps",
    "Local optimizer and rate",
    "Sample count",
    "Data prior",
    "Defense algorithm",
    "Defense randomness",
    "Aggregation",
    "Rounds observed",
    "Compute budget",
)


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


def strip_of(run: Run) -> tuple[list[tuple[float, str]], Strip]:
    verdict = judge(run)
    axis = axis_of(verdict.cells, verdict.baselines)
    assert axis is not None
    return list(axis.ticks), strip(verdict.cells[0], axis, verdict.baselines)


@pytest.mark.parametrize("values", [[5.0], [-3.0, 12.0, 12.0], [8.0, 200.0], [200.0], [11.0] * 40])
def test_every_dot_and_tick_lies_on_the_plot(values):
    ticks, drawn = strip_of(run_of(*(trial(str(i), v) for i, v in enumerate(values))))
    assert len(drawn.dots) == len(values)
    places = [dot.x for dot in drawn.dots] + [x for x, _ in ticks] + list(drawn.floor or ())
    assert all(0 <= x <= 100 for x in places)
    assert [dot.x for dot in drawn.dots] == sorted(dot.x for dot in drawn.dots)
    assert 2 <= len(ticks) <= 8
    if max(values) > AXIS_END:
        assert ticks[-1][1] == "60+"


def test_dots_say_what_became_of_the_picture():
    run = run_of(trial("x", 9.0), trial("y", 12.0, hit=1), trial("z", 13.0, hit=1), trial("w", 14.0))
    _, drawn = strip_of(run)
    assert [dot.seen for dot in drawn.dots] == ["neither", "identified", "leaked", "neither"]  # blank: 10 dB, margin 3


def test_the_level_without_the_update_is_the_better_of_blank_and_prior():
    records = [trial("x", 20.0), trial("y", 20.0), trial("x", 15.0, control="prior")]
    _, drawn = strip_of(run_of(*records))
    _, blank_only = strip_of(run_of(*records[:2]))
    assert drawn.floor is not None
    assert blank_only.floor is not None
    assert drawn.floor[0] < drawn.floor[1] < drawn.floor[2]
    assert len(set(blank_only.floor)) == 1


def test_many_pictures_are_bars_that_count_them_all():
    rng = np.random.default_rng(0)
    levels = rng.normal(15, 4, 1000)
    run = run_of(*(trial(str(i), float(v), hit=1.0) for i, v in enumerate(levels)))
    _, drawn = strip_of(run)
    unit = max(bar.height for bar in drawn.bars)
    assert len(drawn.dots) == 1
    assert max(levels) == pytest.approx(float(drawn.dots[0].label.split(": ")[1][:-3]), abs=0.05)
    counts = [bar.height / 80 for bar in drawn.bars]
    leaked = sum(bar.leaked for bar in drawn.bars) / sum(bar.height for bar in drawn.bars)
    assert unit == 80
    assert leaked == pytest.approx((levels >= 13).mean(), abs=0.002)
    assert sum(counts) * max(np.bincount((levels - levels.min()).astype(int))) > MANY


def test_nothing_is_plotted_without_a_score():
    verdict = judge(run_of(trial("x", None)))
    assert axis_of(verdict.cells, verdict.baselines) is None


def test_blocks_keep_regimes_apart_and_leave_controls_out():
    for seed in range(20):
        run = random_run(seed)
        verdict = judge(run)
        found = blocks(run, verdict)
        assert len({block.regime for block in found}) == len(found)
        for block in found:
            for scene in block.scenes:
                assert run.scenarios[scene.name]["regime"] == block.regime
                assert run.scenarios[scene.name]["role"] != "control"
                assert not any(cell.control for cell in scene.cells)
                assert {cell.defense for cell in scene.cells} == {f.tally.defense for f in scene.findings}
        shown = sum(len(cell.records) for block in found for scene in block.scenes for cell in scene.cells)
        controls = sum(len(cell.records) for _, rows in control_cells(run, verdict) for _, cell in rows)
        doubled = sum(record.control == "doubled" for record in run.records)
        assert shown + controls + doubled == len(run.records)


def test_variations_say_what_changed_and_come_worst_first():
    scenes = {
        "s": SCENE | {"regime": "deployment"},
        "t": SCENE | {"role": "variation", "regime": "deployment", "batch_size": 4, "trained": True},
    }
    records = [trial("x", 5.0, scenario="t"), trial("x", 30.0, scenario="t", defense="d", hit=1), trial("x", 5.0)]
    run = run_of(*records, provenance={"scenarios": scenes})
    (block,) = blocks(run, judge(run))
    assert [finding.tally.defense for _, finding in block.variations] == ["d", "none"]
    assert block.variations[0][0].changed == "trained yes instead of no, batch size 4 instead of 1"


def ledger_of(run: Run) -> dict[str, tuple[str, str]]:
    return {line.name: (line.value, line.tag) for line in list_assumptions(run, judge(run))}


def test_the_ledger_has_its_fifteen_fields_whatever_is_known():
    bare = ledger_of(run_of(trial("x", 5.0)))
    assert tuple(bare) == FIFTEEN
    unstated = [name for name, (value, tag) in bare.items() if value == NOT_STATED and tag == ""]
    assert len(unstated) == 13  # what the records themselves tell: which defenses, and who knew them
    for seed in range(10):
        assert tuple(ledger_of(random_run(seed))) == FIFTEEN


def test_the_ledger_tells_what_was_declared_from_what_was_assumed():
    scenario = {"weights": "", "model": "lenet", "labels": "known", "batch_size": 4, "images": 8, "batchnorm": "eval"}
    attacks = {"a": {"name": "invertgrad", "steps": 100, "tv": [0.1, 0.2]}}
    config = {"scenario": scenario, "attack": attacks, "also": {"labels": ["inferred"]}}
    provenance = {"declared": ["scenario.batch_size", "attack"], "captured": ["scenario.model"]}
    report = ledger_of(run_of(trial("x", 5.0), config=config, provenance=provenance))
    assert report["Batch size"] == ("4", "declared")
    assert report["Compute budget"] == ("a: 100 steps, 2 restarts", "declared")
    assert report["Data prior"] == ("a: total variation (TV)", "declared")
    assert report["Architecture"] == ("lenet, known to the attacker", "from capture")
    assert report["Labels"] == ("known to the attacker; also tried: inferred", "assumed")
    assert report["Client mode"] == ("evaluation mode, which makes inversion easier", "assumed")
    assert report["Local steps"] == (NOT_STATED, "")
    assert report["Sample count"][0].startswith("8 clients with 4 each")


def test_the_ledger_says_who_knows_which_defense():
    records = (
        trial("x", 5, defense="prune"),
        trial("x", 5, defense="oasis", attacker="adaptive"),
        trial("x", 5, defense="sign"),
        trial("x", 5, defense="sign", attacker="adaptive"),
        trial("x", 5, defense="clip", control="prior"),
    )
    value, _ = ledger_of(run_of(*records))["Defense algorithm"]
    assert set(value.split("; ")) == {
        "prune: not known",
        "oasis: known",
        "sign: two attackers, one who knows it and one who does not",
    }
    assert describe_attacker(run_of(config={"scenario": {"attacker": "eavesdropper"}})).startswith("An eavesdropper")


def test_effort_and_prior_are_read_off_the_attack():
    assert steps_and_restarts({"name": "invertgrad"}) == (2400, 5)  # one restart for each TV weight
    assert describe_prior({"name": "dlg", "tv": 0.0}) == "none"
    assert describe_effort({"name": "linear"}) == "closed form, no search"
    assert describe_effort({"name": "from-elsewhere", "steps": 7, "restarts": 1}) == "7 steps, 1 restart"
    assert describe_effort({"name": "from-elsewhere"}) is None
    assert describe_prior({"name": "dlg", "unheard": 1}) is None


def gaps(*records, **rest) -> str:
    run = run_of(*records, **rest)
    return " ".join(list_not_tested(run, judge(run)))


def test_what_was_not_tested_follows_from_the_settings():
    bare = gaps(trial("x", 5, defense="prune"), config={"scenario": {"weights": ""}})
    for said in ("undefended model", "Adaptive attackers against prune", "Trained models", "malicious"):
        assert said in bare
    scenario = {"weights": "w", "local_steps": 5, "attacker": "malicious", "batchnorm": "batch", "labels": "inferred"}
    records = (trial("x", 5), trial("x", 5, defense="prune", attacker="adaptive", attack="rogs"))
    full = gaps(*records, config={"scenario": scenario | {"rounds": 3}})
    for said in ("undefended", "Adaptive", "Trained models", "malicious", "several rounds", "learned picture"):
        assert said not in full
    assert "Networks trained to invert updates" in full
    inverted = gaps(trial("x", 5), trial("x", 5, attack="learned-inverter-search"))
    assert "Networks trained" not in inverted
    assert "learned picture of the world" in inverted
    assert "Other stages of training" in full
    assert "An attacker who knows the labels" in full


def test_what_was_varied_is_not_called_untested():
    varied = {"role": "variation", "batch_size": 4, "local_steps": 5, "batchnorm": "batch", "labels": "inferred"}
    report = gaps(trial("x", 5), provenance={"scenarios": {"s": SCENE, "t": SCENE | varied}})
    assert "Batch sizes other than 1, 4." in report
    assert "local steps than 1, 5." in report
    assert "training mode" not in report
    assert "knows the labels" not in report


def test_something_is_always_left_and_it_expires():
    for seed in range(10):
        run = random_run(seed)
        report = list_not_tested(run, judge(run))
        assert report[0].startswith("Attacks published after the day of this run (2026-11-16)")
        assert len(report) == len(set(report)) >= 5
    assert expiry_of(run_of(provenance={"finished": "2028-02-29T23:00:00+00:00"})) == "2029-02-28"
    assert expiry_of(run_of()) == expiry_of(run_of(provenance={"finished": "tomorrow"})) == ""


@pytest.mark.parametrize("share", [0.5, 0.1, 0.05, 0.0295, 0.01, 0.001, 1e-6])
def test_the_fewest_pictures_that_support_a_claim(share):
    needed = pictures_needed(share)
    assert at_most(0, needed) <= share
    assert needed == 1 or at_most(0, needed - 1) > share


def test_a_claim_of_a_run_holds_for_every_judged_defense():
    scenes = {"s": SCENE}
    records = [trial(str(i), 30.0, hit=1) for i in range(9)]
    records += [trial(str(i), 5.0, defense=d, attacker="adaptive") for d in ("d", "e") for i in range(20)]
    verdict = judge(run_of(*records, provenance={"scenarios": scenes, "gallery": 99}))
    assert examine_claim(verdict, 0.2).supported
    assert not examine_claim(verdict, 0.1).supported
    assert {f.tally.defense for f in examine_claim(verdict, 0.1).against} == {"d", "e"}
    assert examine_claim(verdict, 0.1).bound == at_most(0, 20)
    with pytest.raises(ConfigError, match="claim"):
        examine_claim(verdict, 1.5)


def test_a_run_that_leaks_supports_no_claim():
    run = run_of(trial("x", 30.0, hit=1), provenance={"scenarios": {"s": SCENE}, "gallery": 99})
    assert not examine_claim(judge(run), 0.999).supported


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0 %"), (1, "100 %"), (0.00001, "0.01 %"), (0.5, "50 %"), (0.99999, "99.9 %"), (0.052, "5.2 %"),
     (1.00001, "100.1 %"), (1.0425, "104.2 %"), (5.13, "513 %")],
)  # fmt: skip
def test_percents_never_round_to_nothing_or_to_all(share, expected):
    assert percent(share) == expected


def test_upper_bounds_are_rounded_up():
    for n in range(1, 400):
        shown = float(percent(at_most(0, n), up=True).removesuffix(" %")) / 100
        assert shown >= at_most(0, n) - 1e-12


def test_numbers_that_are_not_there_are_dashes():
    assert "ndash" in number(None)
    assert number(3.14159, 2) == "3.14"
    assert interval(0, 4) == "0\u201360 %"
