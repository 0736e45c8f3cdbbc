"""A verdict is computed, not written: from the records, the controls beside them, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import (
    MOST_FAILED,
    Check,
    Convergence,
    check_convergence,
    check_negative,
    check_positive,
    count_missing,
)
from gradveil.audit.verdict.conditions import describe_conditions
from gradveil.audit.verdict.estimate import CellResult, cells_of
from gradveil.audit.verdict.leak import CLOSENESS, MARGIN, Baselines
from gradveil.audit.verdict.run_flags import find_run_flags
from gradveil.audit.verdict.tally import Tally, tally_run
from gradveil.core.interval import supports
from gradveil.experiment.record import NOT_REPLAYED

Word = Literal["leaks", "no leak found", "inconclusive", "not evaluated"]
UNSCORED = (
    "The originals are not available, so nothing was scored.",
    "Look at the reconstructions: what you recognize there, and not in the picture made without the update, "
    "came from the client.",
    "A high match of the updates is not a proof, and a low match is not a protection. Set `data` to score them.",
)
WORST_FIRST: tuple[Word, ...] = ("leaks", "inconclusive", "not evaluated", "no leak found")


@dataclass(frozen=True)
class Finding:
    """The verdict on one defense in one scenario, and why."""

    tally: Tally
    verdict: Word
    reasons: tuple[str, ...]

    def supports(self, claim: float) -> bool:
        """Whether "at most this share of such pictures leaks" may be said. Only of a defense without a finding."""
        return self.verdict == "no leak found" and supports(claim, self.tally.hits, self.tally.scored)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All that can be said of a run."""

    findings: tuple[Finding, ...]  # worst first, the undefended model before all
    under: str
    cells: tuple[CellResult, ...]  # controls among them
    positive: Check | None
    prior: Check | None
    random: Check | None
    another: Check | None
    convergence: tuple[Convergence, ...]
    missing: int  # trials that the run has not come to
    flags: tuple[str, ...]  # doubts about the run as a whole; those about trials are in the cells
    baselines: Baselines = field(repr=False)

    @property
    def judged(self) -> tuple[Finding, ...]:
        """What the word of the run is about: the defenses, or the undefended model where there are none."""
        return tuple(f for f in self.findings if not f.tally.undefended) or self.findings

    @property
    def word(self) -> Word:
        found: list[Word] = [finding.verdict for finding in self.judged]
        return sorted(found, key=WORST_FIRST.index)[0] if found else "not evaluated"


def judge(run: Run) -> Verdict:
    """The same folder, the same verdict."""
    baselines = Baselines.of(run.records)
    cells, counted, control = (
        cells_of(run.records, baselines, run.facts),
        tally_run(run, baselines),
        check_positive(run, baselines),
    )
    longer = check_convergence(run, cells)
    absent = count_missing(run, baselines)
    return Verdict(
        findings=tuple(_finding(tally, control, absent) for tally in counted),
        under=describe_conditions(run),
        cells=tuple(cells),
        positive=control,
        prior=check_negative(run, "prior"),
        random=check_negative(run, "random"),
        another=check_negative(run, "another"),
        convergence=tuple(longer),
        missing=absent,
        flags=find_run_flags(run, counted, longer),
        baselines=baselines,
    )


def _finding(tally: Tally, control: Check | None, missing: int) -> Finding:
    """A leak is a leak, whatever else went wrong; that none was found means something only if nothing did."""
    if found := tuple(_leaks(tally)):
        return Finding(tally, "leaks", found)
    if tally.records and not any(record.has_truth for record in tally.records):
        return Finding(tally, "not evaluated", UNSCORED)
    if not tally.undefended and not tally.has_adaptive:
        return Finding(tally, "not evaluated", ("No attacker who knows this defense was tried.",))
    if open_questions := tuple(_open(tally, control, missing)):
        return Finding(tally, "inconclusive", open_questions)
    bound = (
        f"None of {tally.scored} pictures leaked; at most {tally.at_most:.1%} of such pictures do (95 % confidence)."
    )
    return Finding(tally, "no leak found", (bound,))


def _leaks(tally: Tally) -> Iterator[str]:
    if tally.leaked:
        closer = f"{MARGIN:g} dB or more closer than any control"
        yield f"{tally.leaked} of {tally.scored} pictures leaked: identified, {closer}."
    if tally.beats_chance:
        guessing = f"random guessing: {100 * (tally.chance or 0):.1f} %"
        yield f"{tally.identified} of {tally.scored} pictures were identified ({guessing})."
    yield from (search.sentence for search in tally.found_otherwise)


def _open(tally: Tally, control: Check | None, missing: int) -> Iterator[str]:
    if control is None:
        yield "This run has no positive control, so it is unknown whether these attacks work here."
    elif not control.passed:
        yield f"The positive control failed: {control.message}."
    if wrong := len({record.client for record in tally.records if NOT_REPLAYED in record.flags}):
        yield f"The given pictures do not reproduce the updates of {wrong} clients: scores may be about wrong pictures."
    if tally.failed > MOST_FAILED * tally.attempted:
        yield f"{tally.failed} of {tally.attempted} trials failed; it is unknown what they would have shown."
    if tally.scored < tally.pictures:
        yield f"{tally.pictures - tally.scored} of {tally.pictures} pictures have no score."
    if missing:
        yield f"The run is not finished: {missing} trials are missing."
    if tally.identified is None:
        yield "Identification in a gallery was not measured."
    if CLOSENESS.name not in tally.worst:
        yield f"The squared error ({CLOSENESS.name}) was not measured."
