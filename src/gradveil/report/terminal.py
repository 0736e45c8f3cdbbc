"""An audit on one screen: a table for each scenario, and the sentences below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gradveil.audit.update_match import MATCH
from gradveil.audit.verdict import Verdict
from gradveil.audit.verdict.estimate import CellResult, Estimate
from gradveil.audit.verdict.leak import CLOSENESS
from gradveil.core.metric import FED, Facts
from gradveil.report.corridor import describe_corridors
from gradveil.report.efforts import select_cells
from gradveil.report.scores import list_metrics

COLUMNS = ("defense", "attack", "attacker", "attempted", "failed", "leaked", "identified")
BLANK = "blank"  # the mean public picture in the place of the reconstruction
MOST_REASONS = 3


def columns(metrics: Sequence[Facts]) -> list[str]:
    """The first metric in full and beside a blank picture, of the others the worst picture."""
    names = [f"{one.label} worst" for one in metrics]
    return [*COLUMNS, *names[:1], *(["mean", "95 % CI", BLANK] if names else []), *names[1:]]


def row(cell: CellResult, metrics: Sequence[Facts]) -> list[str]:
    """One cell for people, below `columns`."""
    found = [
        "-" if MATCH.name in cell.metrics else str(cell.leaked),
        "-" if cell.identified is None else str(cell.identified),
    ]
    each = [_estimate(cell.metrics.get(one.name), one, in_full=one is metrics[0]) for one in metrics]
    head = [cell.defense, cell.attack, cell.attacker, str(cell.attempted), str(cell.failed)]
    if each:
        each[0].append("-" if cell.blank is None else f"{cell.blank.mean:.{metrics[0].digits}f}")
    return [*head, *found, *(text for texts in each for text in texts)]


def _estimate(value: Estimate | None, facts: Facts, in_full: bool) -> list[str]:
    if value is None:
        return ["-"] * (3 if in_full else 1)
    worst, mean = (f"{number:.{facts.digits}f}" for number in (value.worst, value.mean))
    low, high = (None if end is None else f"{end:.{facts.digits}f}" for end in (value.low, value.high))
    return [worst, mean, "-" if low is None else f"{low} to {high}"] if in_full else [worst]


def tables(cells: Sequence[CellResult]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows for each scenario: regimes are never mixed. One scenario needs no title."""
    found = select_cells([cell for cell in cells if not cell.control])
    names = {name for cell in found for name in cell.metrics if not name.endswith(FED)} | {CLOSENESS.name}
    metrics = [one for one in list_metrics(names, found[0].facts) if not one.lookup and one.as_fed] if found else []
    scenarios = dict.fromkeys(cell.scenario for cell in found)
    for scenario in scenarios:
        rows = [row(cell, metrics) for cell in found if cell.scenario == scenario]
        yield scenario if len(scenarios) > 1 else "", columns(metrics), rows


def sentences(verdict: Verdict) -> Iterator[str]:
    """What the tables do not say, the verdict last."""
    yield from matches(verdict.cells)
    yield from failures(verdict.cells)
    yield from judgments(verdict)


def matches(found: Sequence[CellResult]) -> Iterator[str]:
    """Without originals: how well each attack explains the updates received, and how well without having seen them."""
    for cell in (cell for cell in found if not cell.control and MATCH.name in cell.metrics):
        blind = [c for c in found if (c.scenario, c.attack, c.control) == (cell.scenario, cell.attack, "prior")]
        without = [c.metrics[MATCH.name].worst for c in blind if MATCH.name in c.metrics]
        compared = f", {without[0]:.3f} without the update" if without else ""
        who = f"{cell.scenario}, {cell.defense}, {cell.attack}, {cell.attacker}"
        yield f"{who}: updates match up to {cell.metrics[MATCH.name].worst:.3f}{compared}"


def failures(found: Sequence[CellResult]) -> Iterator[str]:
    """A failed trial is not a protected picture: say why, the most frequent reasons first."""
    attacks = [cell for cell in found if cell.control != "lineup"]  # whose failures are among the reasons of a verdict
    reasons = Counter(record.reason for cell in attacks for record in cell.records if record.status == "failed")
    for reason, count in reasons.most_common(MOST_REASONS):
        yield f"{count} trials failed: {''.join(c if c.isprintable() else ' ' for c in reason)}"
    if len(reasons) > MOST_REASONS:
        yield f"{len(reasons) - MOST_REASONS} more reasons are in the report"


def judgments(verdict: Verdict) -> Iterator[str]:
    """Each defense with its word and why; the positive control, which they all rest on."""
    control = verdict.positive
    yield f"positive control: {control.message if control else 'none in this run'}"
    for check in verdict.each_positive if len(verdict.each_positive) > 1 else ():
        yield f"positive control of {check.attack}: {'passed' if check.passed else 'failed'}, {check.message}"
    for finding in verdict.findings:
        tally = finding.tally
        where = f" ({tally.scenario})" if tally.is_aside else ""
        yield f"{tally.defense}{where}: {finding.verdict}. {' '.join(finding.reasons)}"
        if tally.rank:
            yield f"{tally.defense}{where}: the original has {tally.rank}"
    yield from describe_corridors(verdict)
    yield f"verdict: {verdict.word}, under {verdict.under}"
    if verdict.flags:
        yield f"flags: {', '.join(verdict.flags)}"
