"""The doctor names why a round does not replay: plain loops of torch, each declared wrongly on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from loops import CLASSES, LOOPS, Loop, dataset

from gradveil.capture import Capture
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import Choice
from gradveil.core.local_training import LocalTraining
from gradveil.doctor.finding import Finding
from gradveil.doctor.replay import look_at_replay
from gradveil.doctor.subject import Subject

NAMED = 0.9  # of the loops, whose true cause comes first


def diagnose(loop: Loop, declared: LocalTraining | None = None) -> list[Finding]:
    model, update = loop.run()
    training = declared or loop.declared
    capture = Capture(
        weights=model.state_dict(), updates={"client": update}, round=0, training=training, examples={"client": 6},
        shape=dataset().shape, classes=CLASSES, normalization=None,
    )  # fmt: skip
    scenario = ScenarioConfig(capture="round.safetensors", data="photos", data_options={"size": 16, "count": 48})
    config = AuditConfig(scenario=replace(scenario, batch_size=6), defense={"none": Choice(name="none")})
    subject = Subject(
        config=config, by_budget={}, model=model.eval(), dataset=dataset(), training=training, capture=capture
    )
    return [finding for finding in look_at_replay(subject) if finding.topic == "replay"]


def names(loop: Loop) -> bool:
    first = diagnose(loop)[0]
    return first.level == "problem" and loop.cause in first.what.partition(". ")[2]


def share_named(loops: Sequence[Loop]) -> tuple[float, list[str]]:
    missed = [loop.name for loop in loops if not names(loop)]
    return 1 - len(missed) / len(loops), missed


def test_the_true_cause_comes_first() -> None:
    quick = [loop for loop in LOOPS if not loop.slow]
    assert len(quick) >= 30
    share, missed = share_named(quick)
    assert share >= NAMED, missed


@pytest.mark.more
def test_the_true_cause_comes_first_where_many_rounds_are_played() -> None:
    share, missed = share_named([loop for loop in LOOPS if loop.slow])
    assert share >= NAMED, missed


def test_a_loop_that_is_declared_as_it_is_replays() -> None:
    plain = next(loop for loop in LOOPS if loop.name == "five epochs")
    (finding,) = diagnose(plain, replace(plain.declared, steps=5))
    assert finding.level == "ok"


@pytest.mark.more
def test_pictures_of_others_are_not_explained_away() -> None:
    (finding,) = diagnose(Loop(name="other pictures", cause="", feed=lambda x: dataset().images[20:26]))
    assert finding.level == "problem"
    assert "nothing that was tried explains it" in finding.what
