"""An audit of a defense with views: who adapts has cells of its own, who would only repeat is copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import audit

from gradveil.attacks import ATTACKS
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.known_policy import known_policy, shifted
from gradveil.audit.audit import run_audit
from gradveil.audit.trial import SAME_RUN
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses.ats import Ats
from gradveil.defenses.prune import Prune
from gradveil.experiment import journal
from gradveil.experiment.record import Record

POLICY = Ats(policy="3-1")
SHORT: dict[str, Attack] = {
    "invertgrad": invertgrad(steps=5, tv=1e-2),
    "known-policy": known_policy(steps=5, tv=1e-2),
    "shifted": shifted(steps=5, restarts=1),
}


def records_of(folder: Path, defenses: dict[str, Defense], *, controls: bool = False) -> list[Record]:
    run_audit(audit(SHORT, defenses, clients=2, controls=controls), folder)
    return journal.read(folder / "journal.jsonl")


def test_who_adapts_has_cells_of_its_own(tmp_path: Path) -> None:
    records = records_of(tmp_path / "run", {"none": Defense(), "ats": POLICY})
    cells = {(r.defense, r.attack, r.attacker) for r in records}
    assert cells == {
        *(("none", attack, "unaware") for attack in SHORT),
        *(("ats", attack, "unaware") for attack in ("invertgrad", "shifted")),
        *(("ats", attack, "adaptive") for attack in SHORT),
    }
    assert {r.status for r in records} == {"ok"}
    report = {(r.attack, r.attacker): " ".join(r.notes) for r in records if r.defense == "ats"}
    assert "4 views of the known policy tried" in report["invertgrad", "adaptive"]
    assert "4 views of the known policy tried" in report["known-policy", "adaptive"]
    assert report["invertgrad", "unaware"] == ""
    assert report["shifted", "adaptive"] == SAME_RUN


def test_known_policy_has_its_controls_without_a_policy(tmp_path: Path) -> None:
    records = records_of(tmp_path / "run", {"ats": POLICY}, controls=True)
    mine = [r for r in records if r.attack == "known-policy"]
    assert {r.control for r in mine} == {"", "another", "prior", "random"}
    assert {r.status for r in mine} == {"ok"}
    assert {r.attacker for r in mine if r.defense == "ats" and not r.control} == {"adaptive"}


def test_an_audit_without_a_policy_to_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no defense here has a policy to know"):
        records_of(tmp_path / "run", {"none": Defense(), "prune": Prune(ratio=0.5)})
    assert not (tmp_path / "run").exists()


def test_known_policy_needs_one() -> None:
    assert ATTACKS["known-policy"]().requires == {"views"}
