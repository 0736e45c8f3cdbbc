"""Which attacks count as evidence that a defense, or a scenario, gives nothing away.

One that knew the defense and can use what it knows, works without the defense here and where it is easiest, ran on
every picture, had come to its end, and whose own copy of the client explains the updates. Each other is named with
what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.audit.ladder import is_whole
from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import Check, Convergence
from gradveil.audit.verdict.conditions import build_attack, steps_and_restarts
from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, Baselines
from gradveil.audit.verdict.oracle import Oracle, check_oracle, find_shortfall
from gradveil.audit.verdict.positive import MOST_FAILED, least_recovered
from gradveil.audit.verdict.tally import Tally
from gradveil.experiment.record import Record

MOST = 0.25  # of an attack's trials: with one of these flags on more of them it is no evidence
IN_MOST = {"did-not-converge": "had not converged", "no-slope": "had no slope to follow"}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One attack against one defense, and every reason why it is no evidence; none: it is."""

    attack: str
    attacker: str
    control: Check | None
    oracle: Oracle | None  # None: it has no trial
    doubts: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.doubts

    @property
    def sentence(self) -> str:
        return f"{self.attack} is no evidence: {'; '.join(self.doubts)}."

    def to_json(self) -> dict[str, Any]:
        return {"attack": self.attack, "attacker": self.attacker, "counts": self.counts,
                "doubts": list(self.doubts), "oracle": self.oracle.to_json() if self.oracle else None}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What is known of each attack beside its trials."""

    positive: Mapping[str, Check]
    convergence: Sequence[Convergence]
    baselines: Baselines


def weigh_attacks(run: Run, tally: Tally, controls: Controls) -> tuple[Evidence, ...]:
    """Every attack that was tried on this defense, by the attacker who knows it where there is one to know."""
    attacker = "unaware" if tally.undefended else "adaptive"
    groups: dict[str, list[Record]] = {}
    for record in (r for r in tally.records if is_whole(r.attack)):  # fewer steps show nothing by finding nothing
        groups.setdefault(record.attack, [])
        if record.attacker == attacker:
            groups[record.attack].append(record)
    return tuple(
        Evidence(
            attack=attack,
            attacker=attacker,
            control=controls.positive.get(attack),
            oracle=check_oracle(records) if records else None,
            doubts=tuple(_doubts(run, tally, attack, records, controls)),
        )
        for attack, records in groups.items()
    )


def _doubts(run: Run, tally: Tally, attack: str, records: Sequence[Record], controls: Controls) -> Iterator[str]:
    if not tally.undefended and not is_informed(run, attack):
        yield "it takes no account of a defense"
    control = controls.positive.get(attack)
    if control is None:
        yield "it has no positive control"
    elif not control.passed:
        yield control.message
    else:
        yield from _doubts_here(run, tally, attack, controls)
    if records:
        yield from _oracle_doubts(check_oracle(records))
    yield from _incomplete(tally, records)
    yield from _unfinished(run, attack, records, controls.convergence)


def is_informed(run: Run, attack: str) -> bool:
    """Whether the attack can make use of a known defense: one that cannot is no test of it."""
    stated = run.provenance.get("uses")
    if isinstance(stated, Mapping) and isinstance(stated.get(attack), list):
        return bool(stated[attack])
    method = build_attack(run.choices("attack").get(attack))
    return method is None or bool(method.uses)


def _oracle_doubts(oracle: Oracle) -> Iterator[str]:
    if not oracle.passed:
        yield oracle.message.rstrip(".")


def _doubts_here(run: Run, tally: Tally, attack: str, controls: Controls) -> Iterator[str]:
    """Against a defense: what the same attack recovers without it, in the same scenario."""
    if tally.undefended and not tally.as_sent:
        return
    least = least_recovered(run, controls.baselines, tally.scenario, attack)
    if least is None:
        yield "it was not tried without a defense in this scenario"
    elif least <= tally.bound:
        yield (
            f"without a defense it surely recovers {least:.1%} of the pictures of this scenario only, "
            f"and with the defense up to {tally.bound:.1%} may have leaked unseen"
        )


def _incomplete(tally: Tally, records: Sequence[Record]) -> Iterator[str]:
    scored = {(r.client, r.example) for r in records if r.status == "ok" and _is_measured(r)}
    failed = sum(record.status == "failed" for record in records)
    if failed > MOST_FAILED * len(records):
        yield f"{failed} of {len(records)} trials failed"
    elif len(scored) < (1 - MOST_FAILED) * tally.pictures:
        yield f"it has a full score for {len(scored)} of {tally.pictures} pictures"


def _is_measured(record: Record) -> bool:
    return {CLOSENESS.name, IDENTIFICATION.name} <= record.scores.keys()


def _is_search(run: Run, attack: str) -> bool:
    """Whether it takes steps: as the run says, which knows attacks that no catalogue has, else as its settings do."""
    stated = run.provenance.get("searches")
    steps, _ = steps_and_restarts(run.choices("attack").get(attack))
    return steps is not None or (isinstance(stated, list) and attack in stated)


def _unfinished(run: Run, attack: str, records: Sequence[Record], convergence: Sequence[Convergence]) -> Iterator[str]:
    checked = [one for one in convergence if one.attack == attack]
    if _is_search(run, attack) and not checked:
        yield "it was not checked whether more steps see more (`convergence`)"
    if any(not one.converged for one in checked):
        yield "with twice the steps it recovers something else"
    if shortfall := find_shortfall(records):
        yield shortfall
    for flag, what in IN_MOST.items():
        if (flagged := sum(flag in record.flags for record in records)) > MOST * len(records):
            yield f"{flagged} of {len(records)} searches {what}"
