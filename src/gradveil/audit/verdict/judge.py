"""A verdict is computed, not written: from the records, the controls beside them, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradveil.audit.results import Run
from gradveil.audit.verdict.bound_words import WHO, explain_bound, explain_high, explain_link, explain_open
from gradveil.audit.verdict.bounds import Bounds, Linkable, weigh_bounds
from gradveil.audit.verdict.certified import CertifiedShare
from gradveil.audit.verdict.checks import Check, Convergence, check_convergence, check_negative
from gradveil.audit.verdict.completeness import count_missing
from gradveil.audit.verdict.conditions import describe_conditions
from gradveil.audit.verdict.estimate import CellResult, cells_of
from gradveil.audit.verdict.evidence import Controls, Evidence, is_informed, weigh_attacks
from gradveil.audit.verdict.leak import CLOSENESS, MARGIN, Baselines, describe_guises
from gradveil.audit.verdict.lineup import Key, LineUpResult, collect_line_ups
from gradveil.audit.verdict.lineup_controls import describe_foreign
from gradveil.audit.verdict.oracle import Oracle
from gradveil.audit.verdict.positive import MOST_FAILED, check_attacks, check_positive
from gradveil.audit.verdict.reach import Reach
from gradveil.audit.verdict.run_flags import doubts_about, find_run_flags
from gradveil.audit.verdict.tally import Tally, tally_run
from gradveil.audit.verdict.unfinished import Unfinished, find_unfinished
from gradveil.experiment.record import NOT_REPLAYED, Record
from gradveil.experiment.reseal import SEALED_AGAIN

Word = Literal["leaks", "inconclusive", "not evaluated", "no leak found", "bounded"]
UNSCORED = (
    "The originals are not available, so nothing was scored.",
    "Look at the reconstructions: what you recognize there, and not in the picture made without the update, "
    "came from the client.",
    "A high match of the updates is not a proof, and a low match is not a protection. Set `data` to score them.",
)
WORST_FIRST: tuple[Word, ...] = ("leaks", "inconclusive", "not evaluated", "no leak found", "bounded")


@dataclass(frozen=True)
class Finding:
    """The verdict on one defense in one scenario, and why."""

    tally: Tally
    verdict: Word
    reasons: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()  # every attack, and whether it counts
    bounds: Bounds = field(default_factory=Bounds)  # line-up and certificate
    reach: Reach | None = None  # of a run with limited time

    @property
    def lineup(self) -> LineUpResult | None:
        return self.bounds.lineup

    @property
    def certificate(self) -> CertifiedShare | None:
        return self.bounds.certificate

    @property
    def linkable(self) -> Linkable:
        """Whether the update names its picture to somebody who has it."""
        return self.bounds.linkable

    @property
    def link_answer(self) -> str:
        return explain_link(self.bounds, self.tally.records)

    @property
    def link_sentence(self) -> str:
        """With what it means and for whom it matters."""
        return f"{self.link_answer} {WHO}" if self.linkable == "linkable" else self.link_answer

    @property
    def at_most(self) -> float | None:
        """No larger share of such pictures leaks: to these attacks (95 %), or, where the word is *bounded*, to anyone.

        Only where nothing leaked, of pictures that were drawn at random, is there one.
        """
        if self.verdict == "bounded":
            return self.bounds.at_most
        return self.tally.bound if self.verdict == "no leak found" and self.tally.is_random else None

    def supports(self, claim: float) -> bool:
        """Whether "at most this share of such pictures leaks" may be said. Only of a defense without a finding."""
        return self.at_most is not None and self.at_most <= claim


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All that can be said of a run."""

    findings: tuple[Finding, ...]  # worst first, the undefended model before all
    under: str
    cells: tuple[CellResult, ...]  # controls among them
    positive: Check | None  # of all attacks together
    each_positive: tuple[Check, ...]  # of each attack by itself, which is what counts
    prior: Check | None
    random: Check | None
    another: Check | None
    convergence: tuple[Convergence, ...]
    missing: int  # trials that the run has not come to
    flags: tuple[str, ...]  # doubts about the run as a whole; those about trials are in the cells
    baselines: Baselines = field(repr=False)

    @property
    def judged(self) -> tuple[Finding, ...]:
        """What the word of the run is about: the defenses, or the undefended model where there are none.

        Of pictures that were chosen for being unusual a leak counts, and nothing else.
        """
        counted = tuple(f for f in self.findings if f.tally.is_sample or f.verdict == "leaks")
        return tuple(f for f in counted if not f.tally.undefended) or counted

    @property
    def oracles(self) -> tuple[Oracle, ...]:
        """Of every cell that rests on the attacker's copy of the client, where it was measured."""
        found = [one.oracle for finding in self.findings for one in finding.evidence]
        return tuple(one for one in found if one is not None and one.passed is not None)

    @property
    def word(self) -> Word:
        found: list[Word] = [finding.verdict for finding in self.judged]
        return sorted(found, key=WORST_FIRST.index)[0] if found else "not evaluated"


def judge(run: Run) -> Verdict:
    """The same folder, the same verdict."""
    baselines = Baselines.of(run.records)
    cells, counted = cells_of(run.records, baselines, run.facts), tally_run(run, baselines)
    longer = check_convergence(run, cells)
    controls = Controls(positive=check_attacks(run, baselines), convergence=longer, baselines=baselines)
    absent, line_ups = count_missing(run, baselines), collect_line_ups(run)
    findings = tuple(
        _finding(run, tally, counted, controls, find_unfinished(run, tally, baselines, absent), line_ups)
        for tally in counted
    )
    return Verdict(
        findings=findings,
        under=describe_conditions(run),
        cells=tuple(cells),
        positive=check_positive(run, baselines),
        each_positive=tuple(controls.positive.values()),
        prior=check_negative(run, "prior"),
        random=check_negative(run, "random"),
        another=check_negative(run, "another"),
        convergence=tuple(longer),
        missing=absent,
        flags=tuple(
            sorted({*find_run_flags(run, counted, longer), *_find_contradictions(findings), *_find_flags(line_ups)})
        ),
        baselines=baselines,
    )


def _finding(
    run: Run,
    tally: Tally,
    tallies: Sequence[Tally],
    controls: Controls,
    left: Unfinished,
    line_ups: Mapping[Key, Sequence[Record]],
) -> Finding:
    """A leak is a leak; then what no attacker can do counts, and only then what these attacks did not do."""
    evidence = weigh_attacks(run, tally, controls)
    bounds = weigh_bounds(run, tally, evidence, line_ups, left.bounding)
    if found := tuple(_leaks(tally)):
        return Finding(tally, "leaks", found, evidence, bounds, left.reach)
    foreign = describe_foreign(line_ups.get((tally.scenario, tally.defense), ()))
    alone, reasons = _judge_attacks(run, tally, tallies, evidence, left, foreign)
    if bounds.bounded_by is not None:
        reasons = (*explain_bound(bounds), f"By attacks alone: {alone}.")
        return Finding(tally, "bounded", reasons, evidence, bounds, left.reach)
    more = explain_high(bounds) if alone == "no leak found" else explain_open(bounds)
    return Finding(tally, alone, (*reasons, *more), evidence, bounds, left.reach)


def _judge_attacks(
    run: Run,
    tally: Tally,
    tallies: Sequence[Tally],
    evidence: tuple[Evidence, ...],
    left: Unfinished,
    foreign: Iterable[str],
) -> tuple[Word, tuple[str, ...]]:
    """Where nothing leaked: the word without line-up and certificate. That nothing was found needs all in order."""
    if tally.records and not any(record.has_truth for record in tally.records):
        return "not evaluated", UNSCORED
    if not tally.undefended and not tally.has_adaptive:
        return "not evaluated", ("No attacker who knows this defense was tried.", *left.sentences)
    doubts = [*_open(run, tally, left), *doubts_about(run, tally, tallies), *_about_evidence(run, tally, evidence)]
    doubts += [f"By the line-up {why}." for why in foreign]
    if doubts:
        return "inconclusive", tuple(doubts)
    return "no leak found", (_bound(tally), *_evidence(evidence))


def _find_flags(line_ups: Mapping[Key, Sequence[Record]]) -> Iterator[str]:
    """Of line-ups, which are in no cell of an attack."""
    yield from (flag for records in line_ups.values() for record in records for flag in record.flags)


def _find_contradictions(findings: Sequence[Finding]) -> Iterator[str]:
    """Attacks that see more than a bound allows: one of both is wrong."""
    if any(finding.verdict == "leaks" and finding.bounds.bounded_by for finding in findings):
        yield "leaks-and-bounded"
    if any(finding.bounds.exceeded for finding in findings):
        yield "attack-above-line-up"


def _bound(tally: Tally) -> str:
    if not tally.is_random:
        why = "the first of the data and not drawn" if tally.is_sample else "chosen for being unusual"
        return f"None of {tally.scored} pictures leaked. They were {why}, so there is no bound."
    updates = f" of {tally.updates} updates" if tally.updates < tally.scored else ""
    return (
        f"None of {tally.scored} pictures{updates} leaked; "
        f"at most {tally.bound:.1%} of such pictures do (95 % confidence)."
    )


def _evidence(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Which attacks the bound rests on, and which do not count."""
    yield f"Evidence: {', '.join(one.attack for one in evidence if one.counts)}."
    yield from (one.sentence for one in evidence if not one.counts)


def _about_evidence(run: Run, tally: Tally, evidence: Sequence[Evidence]) -> Iterator[str]:
    """Where attacker and client speak of different updates nothing can be said, whatever another attack shows."""
    for one in evidence:
        if one.counts or one.oracle is None or one.oracle.passed is not False:
            continue
        if tally.undefended or is_informed(run, one.attack):
            yield one.oracle.message
    if not any(one.counts for one in evidence):
        yield from (one.sentence for one in evidence)


def _leaks(tally: Tally) -> Iterator[str]:
    if tally.leaked:
        identified = "" if tally.identified is None else "identified, "
        closer = f"{MARGIN:g} dB or more closer than any control"
        guises = f" ({words})" if (words := describe_guises(tally.leaked_as)) else ""
        yield f"{tally.leaked} of {tally.scored} pictures leaked: {identified}{closer}{guises}."
    if tally.beats_chance and (tally.identified or 0) > tally.leaked:
        guessing = f"random guessing: {100 * (tally.chance or 0):.1f} %"
        yield f"{tally.identified} of {tally.scored} pictures were identified ({guessing})."
    yield from (search.sentence for search in tally.found_otherwise)


def _open(run: Run, tally: Tally, left: Unfinished) -> Iterator[str]:
    if run.provenance.get(SEALED_AGAIN):
        yield "The seal was lost or broken and made again: it is unknown whether the journal is as the run wrote it."
    if wrong := len({record.client for record in tally.records if NOT_REPLAYED in record.flags}):
        yield f"The given pictures do not reproduce the updates of {wrong} clients: scores may be about wrong pictures."
    if tally.failed > MOST_FAILED * tally.attempted:
        yield f"{tally.failed} of {tally.attempted} trials failed; it is unknown what they would have shown."
    if tally.scored < tally.pictures:
        yield f"{tally.pictures - tally.scored} of {tally.pictures} pictures have no score."
    if not run.plan:
        yield "The run does not say which trials were planned, so it is unknown whether some are missing."
    yield from left.sentences
    if tally.identified is None:
        yield "Identification in a gallery was not measured."
    if CLOSENESS.name not in tally.worst:
        yield f"The squared error ({CLOSENESS.name}) was not measured."
