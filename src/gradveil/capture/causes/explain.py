"""Reasons ranked by what they leave unexplained: one at a time, then two and three together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradveil.capture.causes import CAUSES, SAME
from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

DEPTH, BEAM, NEARLY = 3, 4, 1.1
WORTH = 0.6  # of the error before: what another reason may leave at most
SURE = 0.1  # of the tolerance: nothing further is tried
MORE, DRAWN = 1.25, 1.25  # what another reason and draws count, where nothing fits
ALIKE, FLOOR = 3.0, 1e-5  # errors that differ by less are the same


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What may have been the case, and what it leaves."""

    causes: tuple[str, ...]  # rows of `CAUSES`
    names: tuple[str, ...]
    do: tuple[str, ...]
    story: Story
    error: float  # relative, what is left
    before: float  # relative, of what was declared
    freedom: int
    is_like_a_draw: bool = False

    @property
    def share(self) -> float:
        """Of the squared difference, what is explained: 0 to 1."""
        return max(0.0, 1 - (self.error / max(self.before, 1e-300)) ** 2)

    @property
    def name(self) -> str:
        return ", and ".join(self.names)


def explain(story: Story, evidence: Evidence) -> list[Explanation]:
    """All reasons that were tried, the likeliest first. What takes many rounds is tried if nothing else fits."""
    error, _ = evidence.measure(story)
    start = Explanation(causes=(), names=(), do=(), story=story, error=error, before=error, freedom=0)
    ranked = _search(start, evidence, slow=False)
    best = ranked[0] if ranked else start
    if evidence.is_late or best.error <= evidence.tolerance or (best.is_like_a_draw and len(best.causes) == 1):
        return ranked
    return rank([*ranked, *_search(start, evidence, slow=True)], evidence)


def _search(start: Explanation, evidence: Evidence, slow: bool) -> list[Explanation]:
    """One reason, then those of the best with another one."""
    ranked, front = [], [start]
    for depth in range(DEPTH):
        found = [one for parent in front for one in _extend(parent, evidence, slow and not depth)]
        ranked = rank([*ranked, *found], evidence)
        front = _choose_front(found, evidence)
        if evidence.is_late or not front or ranked[0].error <= evidence.tolerance or ranked[0].is_like_a_draw:
            break
    return ranked


def rank(found: list[Explanation], evidence: Evidence) -> list[Explanation]:
    """Those that fit first, the simplest of them before the others; the rest by what they leave."""
    tolerance = evidence.tolerance
    order = list(CAUSES)
    least = min((one.error for one in found), default=0.0)
    near = ALIKE * max(least, FLOOR)

    def place(one: Explanation) -> tuple[float, ...]:
        if one.error <= tolerance:
            alike = one.error <= near
            believed = max(order.index(cause) for cause in one.causes)
            return (0, len(one.causes), 0 if alike else one.error, one.freedom, believed)
        drawn = DRAWN if one.story.training.draws else 1.0
        return (1 + _is_unlike(one, evidence), one.error * drawn * MORE ** (len(one.causes) - 1))

    return sorted(found, key=place)


def _extend(parent: Explanation, evidence: Evidence, slow: bool) -> Iterator[Explanation]:
    """The parent with one reason more; of attempts of one name the best."""
    best: dict[str, Explanation] = {}
    for key, attempt in _list_attempts(parent, evidence, slow):
        if parent.causes and evidence.is_late:
            break
        error, is_like_a_draw = evidence.measure(attempt.story)
        is_expected = key == "optimizer" and evidence.looks_adaptive
        if not error < (WORTH if parent.causes else 1.0) * parent.error and not is_expected:
            continue
        if attempt.name not in best or error < best[attempt.name].error:
            best[attempt.name] = replace(_add(parent, key, attempt, error), is_like_a_draw=is_like_a_draw)
        if error <= SURE * evidence.tolerance:
            break
    yield from best.values()


def _list_attempts(parent: Explanation, evidence: Evidence, slow: bool) -> Iterator[tuple[str, Attempt]]:
    keys = [key for key in CAUSES if key not in parent.causes and not _is_same(key, parent.causes)]
    if parent.causes and parent.story.training.draws:  # every attempt is as many rounds as are drawn
        keys = [key for key in keys if CAUSES[key].quick]
    for key in keys:
        if evidence.is_late:
            return
        if CAUSES[key].slow == slow:
            yield from ((key, attempt) for attempt in CAUSES[key].attempts(parent.story, evidence))


def _is_same(key: str, causes: tuple[str, ...]) -> bool:
    return any(key in group and other in group for group in SAME for other in causes)


def _add(parent: Explanation, key: str, attempt: Attempt, error: float) -> Explanation:
    names, do = [*parent.names, attempt.name], [*parent.do, attempt.do]
    if key == "rate" and "optimizer" in parent.causes:  # which gave a first guess of it
        place = parent.causes.index("optimizer")
        names[place], do[place] = names[place].partition(", its rate")[0], do[place].partition(" and training.rate")[0]
    return Explanation(
        causes=(*parent.causes, key),
        names=tuple(names),
        do=tuple(do),
        story=attempt.story,
        error=error,
        before=parent.before,
        freedom=parent.freedom + attempt.freedom,
    )


def _is_unlike(one: Explanation, evidence: Evidence) -> bool:
    """Whether the update looks like an adaptive optimizer's and this explanation is of none."""
    return evidence.looks_adaptive and one.story.training.optimizer == "sgd"


def _choose_front(found: list[Explanation], evidence: Evidence) -> list[Explanation]:
    """The best of each kind, and those that are nearly the best of all; a few of them."""
    ranked, kinds = rank(found, evidence), set()
    front: list[Explanation] = []
    for one in ranked:
        kind = (*sorted(one.causes), one.freedom > 0)
        is_good = one.error <= min(NEARLY * ranked[0].error, one.before / 2)
        if kind not in kinds or is_good:
            front.append(one)
        kinds.add(kind)
    return front[:BEAM]
