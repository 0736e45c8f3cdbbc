"""A search on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradveil.search.confirm import ATTACKERS
from gradveil.search.correlation import Correlation
from gradveil.search.outcome import Confirmed, Scored, SearchOutcome

COLUMNS = (
    "policy",
    "transformations",
    "S_pri",
    "95 % CI",
    "in top",
    "S_acc",
    "FSIM",
    "PSNR unaware",
    "adaptive",
    "leaked",
)


def rows(outcome: SearchOutcome) -> list[list[str]]:
    """The best, what else was confirmed, the hybrid, and no defense."""
    found = [_scored(one) for one in (*outcome.policies, *outcome.others)]
    for label, seen in ((f"hybrid {outcome.hybrid}", outcome.hybrid_confirmed), ("undefended", outcome.undefended)):
        if seen:
            found.append([label, *["-"] * 6, *_confirmed(seen)])
    return found


def _scored(one: Scored) -> list[str]:
    between = f"{one.low:.3f} to {one.high:.3f}"
    like = "-" if one.fsim is None else f"{one.fsim:.2f}"
    texts = [f"{one.privacy:.3f}", between, f"{one.in_top:.0%}", f"{one.accuracy:.2f}", like]
    return [one.policy, " ".join(one.functions), *texts, *_confirmed(one.confirmed)]


def _confirmed(seen: Iterable[Confirmed]) -> list[str]:
    by = {one.attacker: one for one in seen}
    if not by:
        return ["-"] * 3
    decibels = [f"{by[who].psnr:.1f}" if who in by else "-" for who in ATTACKERS]
    worst = max(by.values(), key=lambda one: one.leaked)
    return [*decibels, f"{worst.leaked} of {worst.pictures}"]


def sentences(outcome: SearchOutcome) -> Iterator[str]:
    """What the table does not say."""
    left_out = f", {outcome.distorted} too unlike the picture" if outcome.distorted else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    yield (
        f"{outcome.candidates} candidates, {outcome.distinct} of them different{left_out}; {outcome.passed} passed the "
        f"accuracy score, {outcome.scored} were scored on every picture{failed}"
    )
    yield (
        f"least accuracy score: {outcome.threshold:.2f} per picture ({outcome.rule}); pictures as they are score "
        f"{outcome.untransformed:.2f}"
    )
    yield outcome.control
    for found in outcome.validation:
        yield (
            f"score against {found.measure}, {found.attacker} attacker, {found.policies} policies: "
            f"Pearson {_describe(found.pearson)}, Spearman {_describe(found.spearman)}: {found.conclusion}"
        )
    yield f"hybrid: {outcome.hybrid or 'none, no policy passed: use a lower `threshold`'}"


def _describe(one: Correlation | None) -> str:
    return "unknown" if one is None else f"{one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})"
