"""How long an audit takes is measured by a few steps and counted: exactly right where each step takes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradveil.audit import estimate as module
from gradveil.audit import probe
from gradveil.audit.audit import Audit
from gradveil.audit.estimate import Estimate, Part, estimate
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.config import AuditConfig, ScenarioConfig, build
from gradveil.core.attack import Attack
from gradveil.core.choice import Choice

FIXED, EACH, WHOLE = 0.25, 0.125, 3.0  # seconds


def audit_of(attacks: dict[str, Choice], *, images: int = 3, defense: str = "prune", **options: Any) -> Audit:
    scenario = ScenarioConfig(model="mlp", data="digits", data_options={"size": 8}, images=images)
    defenses = {"none": Choice(name="none"), defense: Choice(name=defense, options=options)}
    return build(AuditConfig(scenario=scenario, gallery=20, convergence=False, defense=defenses, attack=attacks))


def searches(steps: int = 64) -> dict[str, Choice]:
    return {"invertgrad": Choice(name="invertgrad", options={"steps": steps, "restarts": 1})}


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client's evaluation takes the same time, closed forms and line-ups theirs."""

    def search(cell: Cell, judge: Judge, method: Attack) -> float:
        assert method.evaluations is not None
        return len(cell.scenario.names) * (FIXED + EACH * method.evaluations[1])

    def whole(work: Callable[..., Any], *given: Any) -> float:
        return WHOLE

    monkeypatch.setattr(probe, "run_search", search)
    monkeypatch.setattr(module, "timed", whole)


def cells_of(audit: Audit) -> list[Cell]:
    return [cell for group in module.shards(audit, module.Compute(), 32) for cell in group]


def parts_of(found: Estimate) -> dict[str, Part]:
    return {part.name: part for part in found.parts}


@pytest.mark.parametrize("images", [2, 3])
@pytest.mark.parametrize("slow", [1e-9, 1e9])
def test_steps_that_take_the_same_are_counted(
    images: int, slow: float, steady: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, prune by two attackers, and the controls prior and random: five cells, whether all clients are measured
    or the first one speaks for all."""
    monkeypatch.setattr(module, "SLOW", slow)
    part = parts_of(estimate(audit_of(searches(), images=images)))["invertgrad"]
    cells = cells_of(audit_of(searches(), images=images))
    assert len(cells) == 5
    assert part.least == part.most == pytest.approx(len(cells) * images * (FIXED + EACH * 64))


def test_who_only_repeats_another_takes_no_time(steady: None) -> None:
    """Noise has no surrogate: the attacker who knows of it runs what the other runs."""
    audit = audit_of(searches(), defense="gaussian", scale=0.1)
    assert parts_of(estimate(audit))["invertgrad"].most == pytest.approx(4 * 3 * (FIXED + EACH * 64))


def test_what_takes_no_steps_is_run_on_the_first_client(steady: None) -> None:
    audit = audit_of({"linear": Choice(name="linear")})
    cells = cells_of(audit)
    counted = [cell for cell in cells if not (cell.attacker == "adaptive" and cell.repeats)]
    assert parts_of(estimate(audit))["linear"].most == pytest.approx(
        WHOLE * sum(len(c.scenario.names) for c in counted)
    )


def test_a_race_takes_its_first_search_at_least(steady: None) -> None:
    part = parts_of(estimate(audit_of({"portfolio": Choice(name="portfolio", options={"steps": 64})})))["portfolio"]
    assert part.least < part.most


def test_a_rough_one_leaves_out_closed_forms_and_line_ups(steady: None) -> None:
    found = parts_of(estimate(audit_of(searches() | {"linear": Choice(name="linear")}), rough=True))
    assert "line-up" not in found
    assert found["linear"].most == 0
    assert found["invertgrad"].most > 0


def test_it_measures_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = estimate(audit_of(searches(8)))
    assert {part.name for part in found.parts} == {"invertgrad", "line-up"}
    assert found.most >= found.least > 0
    assert found.measured > 0
    assert not [*tmp_path.iterdir()]
