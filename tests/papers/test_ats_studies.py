"""The scripts of papers/ats that make figure 5 and figure 11: what they shorten must stay what it stands for."""

from __future__ import annotations

import itertools
import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gradveil.attacks import ATTACKS
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.data.base import Dataset
from gradveil.defenses import DEFENSES
from gradveil.models import MODELS
from gradveil.search.privacy import PRIVACY_SCORES, areas
from gradveil.search.similarity import Similarity
from gradveil.transforms import Policy

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "papers" / "ats"))
import correlation  # noqa: E402  # pyright: ignore[reportMissingImports]
import correlation_figure  # noqa: E402  # pyright: ignore[reportMissingImports]
import models  # noqa: E402  # pyright: ignore[reportMissingImports]
import operations_compared  # noqa: E402  # pyright: ignore[reportMissingImports]
import sweeps  # noqa: E402  # pyright: ignore[reportMissingImports]
import sweeps_table  # noqa: E402  # pyright: ignore[reportMissingImports]
import victims  # noqa: E402  # pyright: ignore[reportMissingImports]
from policy_rounds import rounds_of  # noqa: E402  # pyright: ignore[reportMissingImports]

SHAPE = (3, 9, 9)


@pytest.fixture
def bench() -> victims.Bench:
    images = torch.rand(6100, *SHAPE, generator=Seed(1).rng())  # so many that there is a gallery
    labels = torch.eye(4)[torch.arange(6100) % 4]
    model = MODELS["convnet8"](classes=4, shape=SHAPE).eval()
    return victims.Bench(model=model, images=images, labels=labels, compute=Compute())


def test_rounds_of_many_policies_are_those_of_one_at_a_time(bench):
    texts = ("3-1-7", "none", "3-1-7+43-18-18")
    seen, fed = rounds_of(bench, [Policy.parse(text) for text in texts], 3)
    each = [bench.observed(DEFENSES["ats"](policy=text), 3) for text in texts]
    assert torch.equal(fed, torch.cat([truth.fed.images[:, 0] for _, truth in each]))
    for name, update in seen.update.items():
        torch.testing.assert_close(update, torch.cat([one.update[name] for one, _ in each]))
    assert seen.labels is not None
    assert torch.equal(seen.labels, torch.cat([one.labels for one, _ in each]))
    assert len(set(seen.names)) == 9


def test_policies_attacked_together_end_where_they_do_alone(bench):
    attack = ATTACKS["invertgrad-ats"](steps=3)
    defenses = [Defense(), DEFENSES["ats"](policy="3-1-7")]
    rounds, truths = zip(*(bench.observed(defense, 2) for defense in defenses), strict=True)
    both = victims.attacked_together(attack, rounds, truths, bench, defenses)
    renamed = victims.joined(rounds[1:], ["1"])
    alone = victims.attacked(attack, renamed, truths[1], bench, defenses[1])
    assert both[1]["psnr_fed"]["each"] == alone["psnr_fed"]["each"]
    assert both[0]["psnr_fed"]["each"] == both[0]["psnr_private"]["each"]
    assert both[1]["psnr_fed"]["each"] != both[1]["psnr_private"]["each"]


@pytest.mark.parametrize(("similarity", "preset"), [("flat", "ats-paper"), ("per-tensor", "ats-code")])
def test_scores_of_both_presets_from_one_walk(bench, similarity, preset):
    policy, pictures, labels = Policy.parse("3-1"), bench.images[200:210:5], bench.labels[200:210:5]
    starts, draw = (
        uniform(pictures.shape, Seed(2).at("starts").rng(), pictures),
        policy.draw(2, Seed(2).at("draw").rng()),
    )
    walk = Similarity(bench.model, LocalTraining(), bench.compute)
    expected = areas(PRIVACY_SCORES[preset], walk, policy, pictures, labels, starts, draw).mean().item()
    assert correlation.scores_of([policy], bench, 2)[similarity][0] == pytest.approx(expected, abs=1e-5)


def test_stages_are_kept_from_the_start_to_the_end(tmp_path):
    images = torch.rand(8, *SHAPE, generator=Seed(1).rng())
    data = Dataset(
        name="toy", images=images, targets=torch.eye(4).repeat(2, 1), class_names=tuple("abcd"), mean=(0.5,), std=(0.2,)
    )
    model = MODELS["convnet8"](classes=4, shape=SHAPE)
    models.trained(  # pyright: ignore[reportAttributeAccessIssue]
        "stages", "convnet8", model, data, Namespace(epochs=4, rate=0.1, bf16=False, device="cpu", out=tmp_path)
    )
    kept = {int(path.name.split("-")[1]): load_file(path) for path in tmp_path.glob("stage-*-convnet8.safetensors")}
    assert sorted(kept) == [0, 25, 50, 75, 100]
    assert torch.equal(kept[0]["fc.bias"], MODELS["convnet8"](classes=4, shape=SHAPE).state_dict()["fc.bias"])
    assert torch.equal(kept[100]["fc.bias"], model.state_dict()["fc.bias"])
    assert not torch.equal(kept[75]["fc.bias"], kept[100]["fc.bias"])


def told_of_a_run_that_was_ended() -> dict:
    scores = [0.5, 0.1, 0.2, 0.3, 0.4, 0.45, 0.6]
    psnr = {kind: [10.0, *(10 * score for score in scores[1:6])] for kind in ("fed", "private", "blank", "gain")}
    both = {"flat": scores, "per-tensor": scores[::-1]}
    return {
        "policies": ["none", *"123456"],
        "scores": {"half-trained": both, "plain": both},
        "psnr": {"plain": psnr},
    }


def test_an_ended_run_has_a_figure_and_coefficients_without_the_control():
    report = told_of_a_run_that_was_ended()
    found = correlation.correlations(report)
    assert found["plain by half-trained, flat, fed"]["pearson"]["value"] == 1.0
    assert found["plain by half-trained, flat, fed"]["policies"] == 5
    assert correlation_figure.chart(report).svg().count("<circle") == 5
    assert len(correlation_figure.table(report).splitlines()) == 2 + 2 * 2 * 4
    del report["scores"]["plain"]  # the attacked models are scored last
    assert len(correlation_figure.table(report).splitlines()) == 2 + 2 * 4


def test_policies_with_an_operation_can_be_left_out_of_figure_and_coefficients():
    report = told_of_a_run_that_was_ended() | {"policies": ["none", "1", "3-1", "33", "4-3", "5", "6"]}
    fewer = correlation_figure.without(report, {"3"})
    assert fewer["policies"] == ["none", "1", "33", "5", "6"]
    assert fewer["scores"]["half-trained"]["flat"] == [0.5, 0.1, 0.3, 0.45, 0.6]
    assert fewer["psnr"]["plain"]["fed"] == [10.0, 1.0, 3.0, 4.5]  # as far as the run came
    assert correlation_figure.chart(fewer).svg().count("<circle") == 3


def test_the_file_is_there_before_the_first_attack(bench, tmp_path):
    out, report = tmp_path / "out.json", {"scores": {}, "seconds": {}}
    correlation.score("half-trained", [Policy.parse("3")], bench, report, Namespace(scored=2, out=out))
    assert json.loads(out.read_text())["scores"]["half-trained"]["flat"] == report["scores"]["half-trained"]["flat"]
    report["psnr"] = {"plain": {kind: [] for kind in correlation.KINDS}}
    args = Namespace(images=2, together=2, seconds=0.0, steps=1, tv=1e-4, out=out)
    correlation.attack_all([Policy.parse("none"), Policy.parse("3")], {"plain": bench}, report, args)
    written = json.loads(out.read_text())["psnr"]["plain"]
    assert {kind: len(values) for kind, values in written.items()} == dict.fromkeys(correlation.KINDS, 1)  # time was up
    assert written["gain"][0] == pytest.approx(written["fed"][0] - written["blank"][0], abs=2e-4)


def test_the_same_command_goes_on_where_it_was_ended(bench, tmp_path):
    policies = [Policy.parse(text) for text in ("none", "3", "43")]
    options = {"model": "convnet8", "images": 2, "scored": 2, "together": 4, "steps": 1, "tv": 1e-4}
    ended, whole = (Namespace(**options, seconds=limit, out=tmp_path / f"{limit}") for limit in (0.0, 1e6))
    for args in (ended, whole):
        correlation.attack_all(policies, {"plain": bench}, correlation.begun(policies, {"plain": bench}, args), args)
    assert len(json.loads(ended.out.read_text())["psnr"]["plain"]["fed"]) == 2
    ended.seconds = 1e6
    report = correlation.begun(policies, {"plain": bench}, ended)
    correlation.attack_all(policies, {"plain": bench}, report, ended)
    assert report["psnr"] == json.loads(whole.out.read_text())["psnr"]
    ended.steps = 2
    with pytest.raises(ConfigError, match="other options"):
        correlation.begun(policies, {"plain": bench}, ended)


def test_a_cell_of_two_sweeps_is_attacked_once(bench, tmp_path):
    args = Namespace(policy="3", model="convnet8", data="toy", images=2, steps=1, tv=1e-4, out=tmp_path / "lines.jsonl")
    study = sweeps.Study(args=args, test=None, benches={100: bench})
    sweeps.run("batches", 1, ("none", "3"), study)
    sweeps.run("stacked", "", ("none", "3-43"), study)
    lines = [json.loads(text) for text in args.out.read_text().splitlines()]
    assert [(one["sweep"], one["policy"]) for one in lines] == [
        ("batches", "none"), ("batches", "3"), ("stacked", "none"), ("stacked", "3-43")
    ]  # fmt: skip
    assert len(study.cells) == 3
    assert lines[0]["psnr_fed"] == lines[2]["psnr_fed"] != lines[3]["psnr_fed"]


def line(sweep: str, value: int, policy: str, mean: float) -> dict:
    psnr = {"mean": mean, "low": mean - 1, "high": mean + 1, "each": [mean] * 3}
    report = {"sweep": sweep, "value": value, "policy": policy, "model": "convnet8", "data": "cifar100", "seconds": 1.0}
    return report | {
        "psnr_fed": psnr,
        "psnr_private": psnr,
        "blank_fed": 8.125,
        "identified_fed": 2,
        "identified_private": 1,
    }


def test_a_cell_that_was_run_twice_counts_as_last():
    lines = [line("steps", 4800, "none", 9.0), line("steps", 7800, "none", 11.0), line("steps", 4800, "none", 12.5)]
    (only,) = sweeps_table.by_sweep(lines).values()
    assert sweeps_table.table(only).splitlines()[2:] == [
        "| 4800 | none | 12.50 (11.50 to 13.50) | 8.12 | 12.50 (11.50 to 13.50) | 2 | 1 | 3 | 1.0 |",
        "| 7800 | none | 11.00 (10.00 to 12.00) | 8.12 | 11.00 (10.00 to 12.00) | 2 | 1 | 3 | 1.0 |",
    ]
    assert "<polyline" in sweeps_table.chart("steps", only).svg()


def test_equal_operations_count_once():
    groups = operations_compared.same_functions()
    assert len(groups) == 28
    assert sorted(place for group in groups for place in group) == list(range(50))
    assert [24, 42, 43, 48] in groups
    assert [28, 39] in groups  # which do nothing
    assert operations_compared.means(range(50), [[24, 42, 43, 48]]) == [39.25]


def test_ranks_are_compared_with_the_published_table(tmp_path):
    table = tmp_path / "published.csv"
    lines = [f"{place},{place / 100},0,{-place}" for place in reversed(range(50))]
    table.write_text("\n".join(["index,privacy_score_mean,privacy_score_variance,accuracy_score", *lines]) + "\n")
    score = dict.fromkeys(operations_compared.SCORES)
    ours = {str(place): {name: [place**2] for name in score} | {"accuracy": place} for place in range(50)}
    found = operations_compared.compared(ours, operations_compared.columns(table))
    assert found["ats-code/unaware"]["entries"]["value"] == 1.0
    assert found["accuracy"]["entries"]["value"] == -1.0
    assert found["ats-code/unaware"]["functions"]["count"] == 28


def test_a_policy_is_a_kind_of_training(tmp_path):
    images = torch.rand(8, *SHAPE, generator=Seed(1).rng())
    data = Dataset(
        name="toy", images=images, targets=torch.eye(4).repeat(2, 1), class_names=tuple("abcd"), mean=(0.5,), std=(0.2,)
    )
    ends = []
    for kind in ("stages", "0", "13-43-18+21-3-16"):
        model = MODELS["convnet8"](classes=4, shape=SHAPE)
        args = Namespace(epochs=1, rate=0.1, bf16=False, device="cpu", out=tmp_path)
        models.trained(kind, "convnet8", model, data, args)  # pyright: ignore[reportAttributeAccessIssue]
        ends.append(model.state_dict()["fc.weight"])
    assert not any(torch.equal(*pair) for pair in itertools.combinations(ends, 2))
    assert victims.policy_of("21-3-16").library.name == "ats-paper"
    assert victims.policy_of("3-1-7").library.name == "ats-code"


def test_several_labels_have_their_own_loss(bench):
    faces = replace(bench, training=LocalTraining(loss="binary-cross-entropy"))
    one, other = (some.observed(Defense(), 1)[0].update["fc.bias"] for some in (bench, faces))
    assert abs(one.sum()) < 1e-6  # softmax: what one class gains the others lose
    assert abs(other.sum()) > 1e-3
