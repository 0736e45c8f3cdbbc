"""The line that a verdict holds under names what makes an update harder or easier to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from runs import record, run_of, undefended

from gradveil.audit.verdict.conditions import describe_conditions, describe_effort, describe_prior, list_changes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "; 1 local step; 4 pictures; "),
        ({"aggregate": 1, "rounds": 1}, "; 1 local step; 4 pictures; "),
        ({"aggregate": 3}, "; 1 local step; sums over 3 clients; 4 pictures; "),
        ({"aggregate": 3, "rounds": 5}, "; sums over 3 clients; 5 rounds; 4 pictures; "),
    ],
)
def test_sums_and_rounds_are_named_where_there_are_any(given: dict[str, Any], said: str) -> None:
    run = run_of(undefended(4))
    run.config["scenario"].update(given)  # type: ignore[attr-defined]
    assert said in describe_conditions(run)


def test_options_that_are_not_the_default_are_named() -> None:
    run = run_of(undefended(4))
    run.config["attack"]["a"] = {"name": "invertgrad", "steps": 150, "restarts": 1, "rate": 0.0}  # type: ignore[index]
    assert "rate 0 instead of 0.1" in describe_conditions(run)
    run.config["attack"]["a"] = {"name": "linear"}  # type: ignore[index]
    assert "instead of" not in describe_conditions(run)


def test_the_line_in_full() -> None:
    run = run_of(undefended(4))
    attacks = {"a": {"name": "dlg", "steps": 1500, "restarts": 1}, "b": {"name": "linear"}, "c": {"name": "nobody's"}}
    run.config["attack"].update(attacks)  # type: ignore[attr-defined]
    more = [record(i, attack=attack) for attack in ("b", "c") for i in range(3)]
    other = [record(9, scenario="other"), record(9, control="prior"), record(9, control="lineup", attack="line-up")]
    run = replace(run, records=(*run.records, *more, *other))
    run.provenance["scenarios"]["other"] = {"role": "variation"}  # type: ignore[index]
    assert describe_conditions(run) == (
        "a (1,500 steps, 1 restart; steps 1,500 instead of 4,800, restarts 1 instead of 2), "
        "b (closed form, no search), c; an honest-but-curious server; labels known; batch size 1; 1 local step; "
        "4 pictures; seed 0"
    )


@pytest.mark.parametrize(
    ("attacker", "words"),
    [("eavesdropper", "an eavesdropper"), ("malicious", "a malicious server"), ("x", "an attacker that is not stated")],
)
def test_who_attacks_is_named(attacker: str, words: str) -> None:
    run = run_of(undefended(4))
    run.config["scenario"].update(attacker=attacker)  # type: ignore[attr-defined]
    assert f"; {words}; labels known; " in f"; {describe_conditions(run)}"


def test_what_is_not_stated_is_not_made_up() -> None:
    run = replace(run_of(undefended(4)), config={})
    assert describe_conditions(run) == (
        "a; an attacker that is not stated; labels not stated; batch size not stated; not stated local steps; "
        "4 pictures; seed not stated"
    )


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"name": "invertgrad", "tv": [1e-4, 1e-3]}, ["tv 0.0001+0.001 instead of 0.0001+0.001+0.01+0.03+0.1"]),
        ({"name": "invertgrad", "tv": [1e-4, 1e-3, 1e-2, 3e-2, 1e-1]}, []),  # a list and the tuple that it means
        ({"name": "rtf", "neurons": 1}, ["neurons 1 instead of"]),
        ({"name": "linear", "only": ["fc.weight"]}, ["only fc.weight instead of"]),
        ({"name": "nobody's", "steps": 1}, []),
        ("dlg", []),
    ],
)
def test_options_are_compared_by_value_and_written_as_they_are_given(given: Any, changes: list[str]) -> None:
    found = list_changes(given)
    assert len(found) == len(changes)
    assert all(text.startswith(start) for text, start in zip(found, changes, strict=True))


@pytest.mark.parametrize(
    ("given", "effort", "prior"),
    [
        ({"name": "dlg", "steps": 1, "restarts": 2, "tv": 0.0}, "1 step, 2 restarts", "none"),
        ({"name": "invertgrad", "steps": 2000, "restarts": 1}, "2,000 steps, 1 restart", "total variation (TV)"),
        ({"name": "linear"}, "closed form, no search", "none"),
        ({"name": "nobody's"}, None, None),
        ({"name": "nobody's", "steps": 7}, "7 steps", None),
        ({"name": "dlg", "rate": "fast"}, None, None),  # no attack at all
        (None, None, None),
    ],
)
def test_effort_and_prior_of_an_attack_in_words(given: Any, effort: str | None, prior: str | None) -> None:
    assert (describe_effort(given), describe_prior(given)) == (effort, prior)
