"""The corridor: what attacks read, what the update contains and what theory allows, on one axis in one unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradveil.audit.verdict import Finding, Verdict
from gradveil.audit.verdict.bound_words import COPIES
from gradveil.audit.verdict.bounds import Bounds, Linkable
from gradveil.core.interval import Interval
from gradveil.core.percent import percent

MARGIN = 2.5  # percent of the width left free at both ends, for the marks' own size
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def place(share: float) -> float:
    """On the axis, in percent of the width.

    >>> place(0), place(0.5), place(1)
    (2.5, 50.0, 97.5)
    """
    return round(MARGIN + (100 - 2 * MARGIN) * share, 2)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One number on the axis, from 0 to 1. low, high: its 95 % interval. words, between: beside the plot."""

    share: float
    low: float
    high: float
    words: str
    between: str = ""

    @property
    def x(self) -> float:
        return place(self.share)

    @property
    def start(self) -> float:
        return place(self.low)

    @property
    def end(self) -> float:
        return place(self.high)

    @property
    def width(self) -> float:
        return max(round(self.end - self.start, 2), 0.4)


@dataclass(frozen=True, kw_only=True)
class Corridor:
    """One defense: three numbers, each None where it is not known, and why."""

    finding: Finding
    attack: Mark | None
    lineup: Mark | None
    certificate: float | None  # its place on the axis; beyond it nothing is possible
    limit: float  # place
    no_lineup: str  # why there is none
    near: str

    @property
    def attack_words(self) -> str:
        return self.attack.words if self.attack else "not measured"

    @property
    def lineup_words(self) -> str:
        return f"{self.lineup.words} ({self.lineup.between})" if self.lineup else self.no_lineup

    @property
    def certificate_words(self) -> str:
        certificate = self.finding.certificate
        if certificate is None:
            return "none"
        return f"at most {percent(certificate.at_most, up=True)} (random guessing: {percent(certificate.kappa)})"

    @property
    def text(self) -> str:
        """For those who do not see the plot."""
        return (
            f"{self.finding.tally.defense}: pictures identified by attacks: {self.attack_words}; "
            f"line-up: {self.lineup_words}; certificate: {self.certificate_words}"
        )


def draw_corridors(verdict: Verdict) -> list[Corridor]:
    """Of the audited scenario; nothing where no line-up was planned and no certificate is known, as in older runs."""
    found = [finding for finding in verdict.findings if not finding.tally.is_aside and finding.tally.is_sample]
    if not any(finding.bounds.planned or finding.certificate for finding in found):
        return []
    return [corridor_of(finding) for finding in found]


def corridor_of(finding: Finding) -> Corridor:
    bounds = finding.bounds
    return Corridor(
        finding=finding,
        attack=_attack(finding),
        lineup=_line_up(bounds),
        certificate=None if bounds.certificate is None else place(bounds.certificate.at_most),
        limit=place(bounds.limit),
        no_lineup=f"not evaluated: {bounds.reason}" if bounds.reason else "not held",
        near=_near(bounds),
    )


def _attack(finding: Finding) -> Mark | None:
    """Pictures identified, which is the unit of the others."""
    tally = finding.tally
    if tally.identified is None or not tally.scored:
        return None
    words = f"{tally.hits} of {tally.scored}"
    return _mark(sum(tally.shares) / len(tally.shares), tally.interval, words)


def _line_up(bounds: Bounds) -> Mark | None:
    one = bounds.lineup
    if one is None:
        return None
    between = one.own.interval()
    ends = f"95 %: {percent(between.low)} to {percent(between.high, up=True)}"
    kind = {"exact": "", "bound": ", an upper bound", "estimated": ", estimated"}[one.kind]
    doubts = "; doubtful, see the reasons" if bounds.doubts else ""
    words = f"{percent(one.own.share())} of {one.of}, among {one.candidates:,}{kind}{doubts}"
    return _mark(one.own.share(), between, words, ends)


def _mark(share: float, ends: Interval, words: str, between: str = "") -> Mark:
    return Mark(share=share, low=ends.low, high=ends.high, words=words, between=between)


def _near(bounds: Bounds) -> str:
    one = bounds.lineup
    if one is None or not one.near:
        return ""
    name = one.nearest_copy
    return f"{percent(one.near[name].share())} {COPIES[name]}"


def describe_epsilon(bounds: Bounds) -> tuple[str, str]:
    """What the line-up shows of an account's epsilon, by its own neighbors, and by others; nothing where it is zero."""
    added, replaced = bounds.epsilon("add-remove"), bounds.epsilon("replace-one")
    if not added and not replaced:
        return "", ""
    return f"at least {added or 0:.3g}", f"one picture added or removed; {replaced or 0:.3g} if one is replaced"


def group_links(corridors: Sequence[Corridor]) -> list[tuple[str, list[str]]]:
    """The answers to the second question with the defenses that they are about; what is said alike is said once."""
    found: dict[str, list[str]] = {}
    for one in corridors:
        tally = one.finding.tally
        name = "Without a defense" if tally.undefended and not tally.as_sent else tally.defense
        found.setdefault(one.finding.link_answer, []).append(name)
    return list(found.items())


def name_link(word: Linkable) -> str:
    """The answer to the second question where it stands by itself."""
    return "linkable: not evaluated" if word == "not evaluated" else word


def describe_corridors(verdict: Verdict) -> Iterator[str]:
    """The same for the terminal, a line for each defense."""
    for one in draw_corridors(verdict):
        near = f"; near copies {one.near}" if one.near else ""
        yield (
            f"{one.finding.tally.defense}: attacks identify {one.attack_words}; line-up {one.lineup_words}{near}; "
            f"certificate {one.certificate_words}; {name_link(one.finding.linkable)}"
        )
