"""The positive control: every attack by itself, on clients without a defense.

In the easiest case it must recover nearly everything, or it does not work. In the scenario that it is used in, it must
recover clearly more than it may have missed with the defense, or that nothing leaked there says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gradveil.audit.ladder import is_whole
from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import Check, by_picture, check_of
from gradveil.audit.verdict.leak import Baselines, guises_of
from gradveil.core.interval import at_least, at_least_of
from gradveil.experiment.record import Record

POSITIVE_NEEDS = 0.9  # of the undefended pictures of the easiest case must leak or be identified
AND_SURELY = 0.5  # with 95 % confidence: five of five pictures do
RARE = 0.05
MOST_FAILED = 0.02  # of the trials; more, and nothing can be said


def check_positive(run: Run, baselines: Baselines, attack: str | None = None) -> Check | None:
    """Undefended, alone in the batch, an early model: of one attack, or of all together."""
    scenario = easiest_scenario(run)
    records = control_records(run, str(scenario), attack)
    if not records:
        return None
    pictures = by_picture(records)
    hits = sum(any(_is_recovered(run, baselines, records, r) for r in of_one) for of_one in pictures.values())
    failed = sum(record.status == "failed" for record in records)
    message = f"without a defense {attack or 'these attacks'} {_recovers(attack)} {hits} of {len(pictures)} pictures"
    doubt = _doubt(hits, len(pictures), failed, len(records))
    return check_of(str(scenario), len(pictures), failed, hits, not doubt, message + doubt, attack or "")


def _recovers(attack: str | None) -> str:
    return "recovers" if attack else "recover"


def _doubt(hits: int, pictures: int, failed: int, trials: int) -> str:
    if hits < POSITIVE_NEEDS * pictures:
        return f", but at least {100 * POSITIVE_NEEDS:.0f} % are needed"
    if at_least(hits, pictures) <= AND_SURELY:
        return ", and these are too few pictures to rely on, at least five are needed"
    if failed > MOST_FAILED * trials:
        return f", but {failed} of {trials} trials failed"
    return ""


def check_attacks(run: Run, baselines: Baselines) -> dict[str, Check]:
    """The positive control of each attack by itself, where it has one."""
    attacks = dict.fromkeys(record.attack for record in run.records if is_whole(record.attack))
    checks = {attack: check_positive(run, baselines, attack) for attack in attacks}
    return {attack: check for attack, check in checks.items() if check is not None}


def least_recovered(run: Run, baselines: Baselines, scenario: str, attack: str) -> float | None:
    """The share of a scenario's undefended pictures that an attack recovers at least (95 %); None: not tried."""
    records = control_records(run, undefended_of(run, scenario), attack)
    if not records:
        return None
    hits: dict[str, list[bool]] = {}
    for (_, client, _), of_one in by_picture(records).items():
        found = any(_is_recovered(run, baselines, records, r) for r in of_one)
        hits.setdefault(client, []).append(found)
    return at_least_of([sum(of_client) / len(of_client) for of_client in hits.values()])


def control_records(run: Run, scenario: str, attack: str | None) -> list[Record]:
    """What the attack made of undefended clients. In a sequence later clients are those that others left over."""
    own = [r for r in run.records if r.scenario == scenario and not r.control and run.undefended(r.defense)]
    first = _first_clients(run, scenario)
    return [r for r in own if attack in (None, r.attack) and is_whole(r.attack) and (not first or r.client in first)]


def _first_clients(run: Run, scenario: str) -> Collection[str]:
    """Those that no attack of a sequence leaves out; none: all of them."""
    size = run.provenance.get("shard")
    return run.clients(scenario)[:size] if isinstance(size, int) and run.provenance.get("order") else ()


def _is_recovered(run: Run, baselines: Baselines, records: Sequence[Record], record: Record) -> bool:
    alone = _guessing_is_rare(run, records) and baselines.is_identified(record)
    return alone or baselines.is_leaked(record)


def _guessing_is_rare(run: Run, records: Sequence[Record]) -> bool:
    """Whether being identified says something by itself: by chance it happens to one picture in twenty at most."""
    tries = len({record.attack for record in records}) * len(guises_of(records))
    return run.gallery is not None and 1 - (1 - 1 / run.gallery) ** tries <= RARE


def easiest_scenario(run: Run) -> str | None:
    """The scenario of the positive control."""
    roles = run.scenarios
    chosen = [n for n, about in roles.items() if about.get("role") == "control" and not about.get("control_of")]
    chosen += [name for name, about in roles.items() if about.get("regime") == "diagnostic"]
    return chosen[0] if chosen else None


def undefended_of(run: Run, scenario: str) -> str:
    """Where the clients of a scenario run no defense: a scenario of its own, or the same one."""
    own = [name for name, about in run.scenarios.items() if about.get("control_of") == scenario]
    if own or run.scenarios.get(scenario, {}).get("regime") != "diagnostic":
        return own[0] if own else scenario
    has_own = any(r.scenario == scenario and not r.control and run.undefended(r.defense) for r in run.records)
    return scenario if has_own else str(easiest_scenario(run))
