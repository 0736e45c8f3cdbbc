"""Candidates whose updates differ by rounding alone are played one by one, by the very steps that a client takes.

Many at once are computed by other kernels, whose last bits differ. Where a trained model is sure of a picture, its
gradient is nothing but such bits: `p - 1` with p near 1. Played by itself, the true picture gives the same bits again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradveil.core.types import Batch
from gradveil.lineup.candidates import Gallery, with_label
from gradveil.lineup.make import Setting
from gradveil.lineup.score import Guesser, Question

MOST, FURTHEST = 32, 128  # candidates of one update that are played again at most; where none of those is it
EXACT = -0.5  # the score of an update that is off by no more than `SAME`
DOUBT = 10.0  # times what rounding has moved the one that is it: further off is another picture


def settle_ties(guesser: Guesser, question: Question, scores: Tensor, gallery: Gallery) -> Tensor:
    """Scores [column, candidate] in which those that are too near to call are exact."""
    settled, reach = scores.clone(), guesser.law.reach
    if reach is None:
        return settled
    for setting in question.settings:
        for column in setting.columns:
            if column < question.answered:
                _settle(guesser, question, setting, settled[column], column, gallery)
    return settled


def _settle(
    guesser: Guesser, question: Question, setting: Setting, scores: Tensor, column: int, gallery: Gallery
) -> None:
    """Play the likeliest candidates of one column again, until the rest is further off than rounding moves any.

    How far it does is seen from the first that turns out to be exact. Without one, all that are in doubt are played.
    """
    rounding, found = math.inf, False
    assert guesser.law.reach is not None
    for number, at in enumerate(pick_doubtful(scores, guesser.law.reach)):
        before = distance_of(scores[at])
        if before > rounding or (number >= MOST and found):
            break
        scores[at] = _replay(guesser, question, setting, column, _candidate(question, gallery, at, guesser))
        if float(scores[at]) >= EXACT and not found and math.isfinite(guesser.law.reach):
            rounding, found = DOUBT * (before + 1), True


def distance_of(score: Tensor) -> float:
    """In units of `SAME`, where nothing is drawn.

    >>> distance_of(torch.tensor(-2.0))
    2.0
    """
    return math.sqrt(max(0.0, -2 * float(score)))


def pick_doubtful(scores: Tensor, reach: float) -> list[int]:
    """The likeliest, unless rounding cannot have confused the first with any other.

    More of them where nothing is drawn: a gradient that is all rounding may be computed as any other short one.
    """
    near = int((scores >= reach).sum())
    if near == 1:
        return []
    most = FURTHEST if math.isfinite(reach) else MOST
    return scores.topk(min(most, len(scores))).indices.tolist()


def _candidate(question: Question, gallery: Gallery, at: int, guesser: Guesser) -> Batch:
    label = question.settings[0].place.label
    if at < len(gallery.images):
        return gallery.take(slice(at, at + 1), label, guesser.own_labels)
    return with_label(question.own[at - len(gallery.images)].unsqueeze(0), label)


def _replay(guesser: Guesser, question: Question, setting: Setting, column: int, candidate: Batch) -> Tensor:
    """As `Guesser.score` does it, for one candidate."""
    found = [_score(guesser, question, setting, column, shown) for shown in guesser.ways(candidate)]
    return torch.stack(found).logsumexp(0) - torch.tensor(float(len(found))).log()


def _score(guesser: Guesser, question: Question, setting: Setting, column: int, shown: Batch) -> Tensor:
    made = {name: u.unsqueeze(0) for name, u in guesser.maker.play(setting, *_rows(shown)).items()}
    seen = {name: u[column : column + 1] for name, u in question.columns.items() if name in made}
    return guesser.law.score(seen, made)[0, 0].nan_to_num(nan=-torch.inf)


def _rows(one: Batch) -> Iterator[Batch]:
    yield from map(Batch, *one)
