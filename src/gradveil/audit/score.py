"""How near a reconstruction is: to the private picture, and to the picture as it was fed to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from gradveil.audit.controls import of_another
from gradveil.audit.fed import fed_gallery, link
from gradveil.audit.plan import Cell
from gradveil.core.attack import Reconstruction
from gradveil.core.metric import FED, Facts, Metric
from gradveil.core.observation import Truth
from gradveil.experiment.plausible import is_number
from gradveil.metrics import align
from gradveil.metrics.labels import labels
from gradveil.metrics.mask_iou import mask_iou
from gradveil.metrics.psnr import PSNR, peak_signal_to_noise
from gradveil.metrics.retrieval import RETRIEVAL


class Judge(NamedTuple):
    """How reconstructions are judged: the metrics, the color of the best guess of one who saw nothing, the gallery.

    Without a gallery it is not found out whether the picture as fed is still known as the private one.
    """

    metrics: Sequence[Metric]
    blank: Tensor  # [channel, 1, 1]
    gallery: Tensor | None = None

    @property
    def of_pictures(self) -> list[Metric]:
        return [metric for metric in self.metrics if metric.about == "pictures"]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Every tensor is [client, example]."""

    scores: Mapping[str, Tensor]
    floors: Mapping[str, Tensor]  # by score, what is reached without this picture's update
    linked: Tensor | None = None  # whether the picture as fed finds the private one; None where nothing else is fed
    chance: float | None = None  # of a link, where what is fed tells nothing of the private picture

    def floors_of(self, client: int, example: int) -> dict[str, float]:
        """Those that are numbers: a journal holds no others."""
        found = {name: value[client, example].item() for name, value in self.floors.items()}
        return {name: value for name, value in found.items() if is_number(value)}

    def fed_of(self, client: int, example: int) -> dict[str, float]:
        if self.linked is None or self.chance is None:
            return {}
        return {"linked": self.linked[client, example].item(), "chance": self.chance}


NOTHING_SCORED = Scored(scores={}, floors={})


def score(cell: Cell, got: Reconstruction, shown: Tensor, truth: Truth, judge: Judge) -> Scored:
    """Against the private picture, and against the picture as fed where the defense feeds another.

    `shown` are the reconstructions in the order of the private pictures.
    """
    private, fed = truth.private.images.float().cpu(), truth.fed.images.float().cpu()
    scores = {m.name: m.score(shown, private) for m in judge.of_pictures}
    floors = {name: floor(shown, private) for m in judge.of_pictures for name, floor in m.floors.items()}
    scores |= _score_targets(cell, got, truth, judge)
    if fed.equal(private):
        scores |= {m.name + FED: scores[m.name] for m in judge.of_pictures if m.as_fed}
    elif fed.shape[1] == cell.defense.copies * private.shape[1] and fed.shape[2:] == private.shape[2:]:
        as_fed = _score_as_fed(cell, got, private, fed.unflatten(1, (private.shape[1], -1)), judge)
        return replace(as_fed, scores={**scores, **as_fed.scores}, floors={**floors, **as_fed.floors})
    return Scored(scores=scores, floors=floors)


def pictures_of(got: Reconstruction) -> Tensor:
    return got.images.detach().float().cpu().nan_to_num(0, 0, 0).clamp(0, 1)


def pictures_as_fed(got: Reconstruction) -> Tensor:
    """What the model saw if the attacker is right: of one who reports pictures before a transformation, after it."""
    return pictures_of(got if got.fed is None else replace(got, images=got.fed))


def _score_targets(cell: Cell, got: Reconstruction, truth: Truth, judge: Judge) -> dict[str, Tensor]:
    """What was inferred of labels or masks. Numbers are not scored: how near is near is known to their owner alone."""
    target = cell.scenario.target
    asked = [metric for metric in judge.metrics if metric.about == "labels"]
    if not cell.scenario.threat.knows_labels:
        asked = [*asked, labels(), *([mask_iou()] if target.is_dense else [])]
    if not asked or target.kind == "numbers":
        return {}
    same_size = got.labels.shape == truth.fed.labels.shape  # else the attacker knows that copies were fed
    guessed, true = got.labels, truth.fed.labels if same_size else truth.private.labels
    if target.is_dense:
        guessed, true = _in_order(got, truth), truth.private.labels
    shape = truth.private.images.shape[:2]
    return {metric.name: metric.score(guessed, true)[:, : shape[1]].expand(shape) for metric in asked}


def _in_order(got: Reconstruction, truth: Truth) -> Tensor:
    """The masks that were inferred, in the order of the private pictures; nothing where none was found."""
    places = align(pictures_of(got), truth.private.images.float().cpu(), got.found.cpu()).places
    at = places.clamp_min(0).view(*places.shape, *(1,) * (got.labels.dim() - 2))
    masks = got.labels.detach().float().cpu().take_along_dim(at, 1)
    return masks.where((places >= 0).view(at.shape), 0.0)


def _score_as_fed(cell: Cell, got: Reconstruction, private: Tensor, fed: Tensor, judge: Judge) -> Scored:
    """As `score`, against the picture as fed: [client, example, copy, ...], of which the best copy counts."""
    among = None if judge.gallery is None else fed_gallery(cell, judge.gallery)
    metrics = [m for m in judge.of_pictures if m.as_fed]
    if among is not None:
        metrics = [m if m.among is None else m.among(among.pictures) for m in metrics]
    copies = fed.flatten(1, 2)
    blank = peak_signal_to_noise(judge.blank.expand(copies.shape), copies)
    floors = {PSNR.name: _best_copy(PSNR, blank, fed)}
    if among is not None and len(cell.scenario.names) > 1:  # what is found in the next client's picture is no finding
        deciding = [m for m in metrics if m.name in (PSNR.name, RETRIEVAL.name)]
        for name, value in _compare(deciding, of_another(got), fed).items():
            floors[name] = value.maximum(floors[name]) if name in floors else value
    linked = None if among is None else link(cell, private, fed, among)
    scores = {name + FED: value for name, value in _compare(metrics, got, fed).items()}
    floors = {name + FED: value for name, value in floors.items()}
    return Scored(scores=scores, floors=floors, linked=linked, chance=among.chance if among else None)


def _compare(metrics: Sequence[Metric], got: Reconstruction, fed: Tensor) -> dict[str, Tensor]:
    copies = fed.flatten(1, 2)
    matched = align(pictures_as_fed(got), copies, got.found.cpu()).images
    return {m.name: _best_copy(m, m.score(matched, copies), fed) for m in metrics}


def _best_copy(facts: Facts, values: Tensor, fed: Tensor) -> Tensor:
    """Of each picture, by the copy that shows most."""
    of_each = values.unflatten(1, fed.shape[1:3])
    return of_each.amax(2) if facts.more_is_leakier else of_each.amin(2)
