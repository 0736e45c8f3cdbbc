"""Flags of a run as a whole: each is raised by what it is for, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runs import ROLES, defended, hidden, record, run_of, undefended

from gradveil.audit.flags import FLAGS
from gradveil.audit.results import Run
from gradveil.audit.verdict import judge

BATCH_OF_FOUR = {"role": "variation", "regime": "deployment", "batch_size": 4, "labels": "known"}
INFERRED = {"role": "variation", "regime": "deployment", "batch_size": 1, "labels": "inferred"}


def flags(run: Run) -> set[str]:
    found = set(judge(run).flags)
    assert found <= set(FLAGS)  # each has its explanation
    return found


def in_scenario(name: str, count: int, leaking: int) -> list:
    return [(record if i < leaking else hidden)(i, scenario=name) for i in range(count)]


def test_one_of_everything_is_said() -> None:
    raised = flags(run_of(undefended(20), defended(20)))
    once = {"single-stage", "single-batch-size", "single-local-steps", "no-ablation"}
    assert raised == once | {"few-pictures", "few-seeds"}


@pytest.mark.parametrize(
    ("flag", "other"),
    [
        ("single-stage", {"trained": True}),
        ("single-batch-size", {"batch_size": 4}),
        ("single-local-steps", {"local_steps": 5}),
    ],
)
def test_a_second_value_takes_the_flag_away(flag: str, other: dict) -> None:
    roles = ROLES | {"other": {**ROLES["easy"], **other, "role": "variation"}}
    assert flag not in flags(run_of(undefended(20), in_scenario("other", 20, 10), roles=roles))


@pytest.mark.parametrize(
    ("also", "few"),
    [
        ({}, True),
        ({"attack_seed": [1, 2]}, True),
        ({"attack_seed": [1], "model_seed": [1]}, True),
        ({"attack_seed": [0, 1], "model_seed": [1]}, True),
        ({"attack_seed": [1, 2], "model_seed": [0]}, True),
        ({"attack_seed": [1, 2], "model_seed": [1]}, False),
        ({"attack_seed": [1, 2], "weights": ["other.safetensors"]}, False),
    ],
)
def test_a_claim_needs_three_seeds_of_attacks_and_two_models(also: dict, few: bool) -> None:
    run = run_of(undefended(20))
    scenario = {**run.scenario, "attack_seed": 0, "model_seed": 0, "weights": ""}
    run = replace(run, config={**run.config, "scenario": scenario, "also": also})
    assert ("few-seeds" in flags(run)) is few


def test_an_ablation_needs_labels_and_normalization() -> None:
    labels = ROLES | {"l": {**ROLES["easy"], "labels": "inferred"}}
    both = labels | {"n": {**ROLES["easy"], "batchnorm": "batch"}}
    assert "no-ablation" in flags(run_of(undefended(20), roles=labels))
    assert "no-ablation" not in flags(run_of(undefended(20), roles=both))


def test_a_small_gallery_and_many_pictures() -> None:
    assert "small-gallery" in flags(run_of(undefended(20), gallery=998))
    assert "small-gallery" not in flags(run_of(undefended(20), gallery=999))
    assert "few-pictures" not in flags(run_of(undefended(100)))


def test_an_undefended_model_that_holds() -> None:
    assert "undefended-holds" in flags(run_of(undefended(20, 0)))
    assert "undefended-holds" not in flags(run_of(undefended(20, 1)))


def test_knowing_must_not_hurt() -> None:
    def with_adaptive_at(psnr: float) -> Run:
        scores = {"psnr": psnr, "retrieval": 0.0}
        aware = [record(i, defense="d", attacker="adaptive", scores=scores) for i in range(20)]
        return run_of(undefended(20), [r for r in defended(20) if r.attacker == "unaware"], aware)

    assert "adaptive-weaker" in flags(with_adaptive_at(9.0))
    assert "adaptive-weaker" not in flags(with_adaptive_at(11.0))


def noise(label: str, leaking: int) -> list:
    return [(record if i < leaking else hidden)(i, defense=label) for i in range(20)]


@pytest.mark.parametrize(("little", "much", "raised"), [(0, 20, True), (20, 0, False), (9, 11, False), (0, 0, False)])
def test_more_noise_must_not_leak_more(little: int, much: int, raised: bool) -> None:
    run = run_of(undefended(20), noise("little", little), noise("much", much))
    run.config["defense"].update(  # type: ignore[index]
        little={"name": "gaussian", "scale": 0.1}, much={"name": "gaussian", "scale": 0.2}
    )
    assert ("not-monotone" in flags(run)) is raised


@pytest.mark.parametrize("harder", [BATCH_OF_FOUR, INFERRED])
def test_a_larger_batch_or_less_knowledge_must_not_leak_more(harder: dict) -> None:
    roles = ROLES | {"harder": harder}
    for easy, hard, raised in ((0, 20, True), (20, 0, False), (10, 12, False)):
        run = run_of(undefended(20, easy), in_scenario("harder", 20, hard), roles=roles)
        assert ("not-monotone" in flags(run)) is raised


def doubled(count: int, leaking: int, loss: float) -> list:
    return [(record if i < leaking else hidden)(i, control="doubled", loss=loss) for i in range(count)]


@pytest.mark.parametrize(
    ("leaking", "loss", "converged"),
    [(20, 0.1, True), (20, 0.0995, True), (20, 0.05, True), (19, 0.05, False), (12, 0.1, False)],
)
def test_twice_the_steps_must_change_little(leaking: int, loss: float, converged: bool) -> None:
    run = run_of(undefended(20), doubled(20, leaking, loss))
    (one,) = judge(run).convergence
    assert one.converged is converged
    assert ("not-converged" in flags(run)) is not converged
    assert "convergence-not-checked" not in flags(run)
