"""A line-up as a function: one update, some candidates, and how likely each of them is to have made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.client import parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.types import Batch, Update
from gradveil.defenses import parse_defense
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import Kind, Trial, make_settings, prepare
from gradveil.lineup.score import Question

NO_DEFENSE, FEDSGD = Defense(), LocalTraining()


@dataclass(frozen=True, kw_only=True)
class Guess:
    """How likely every candidate is to have made the update.

    kind: `exact` where the likelihood is known, `bound` where the guesser was granted something, `estimated` where
    draws were simulated: then a better guesser may exist.
    """

    log_likelihood: Tensor  # [candidate], up to a constant
    kind: Kind

    @cached_property
    def order(self) -> list[int]:
        """Candidates, the most likely first."""
        return self.log_likelihood.argsort(descending=True, stable=True).tolist()

    @property
    def best(self) -> int:
        """The most likely one."""
        return self.order[0]

    @property
    def posterior(self) -> Tensor:
        """The probability of each, if each was equally likely before."""
        return self.log_likelihood.softmax(0)

    def rank_of(self, candidate: int) -> int:
        """1 is the most likely."""
        return self.order.index(candidate) + 1


def lineup(
    model: nn.Module,
    update: Mapping[str, Tensor] | Sequence[Tensor],
    candidates: Tensor,
    labels: Tensor | int,
    *,
    classes: int,
    defense: Defense | str = NO_DEFENSE,
    training: LocalTraining = FEDSGD,
    others: Batch | None = None,
) -> Guess:
    """Say which candidate made this update: the best guess that there is, whoever attacks.

    Args:
        model: The model as it was sent to the client.
        update: What the client sent: tensors by parameter name, or in the order of `model.parameters()`.
        candidates: Pictures in [0, 1], [candidate, channel, height, width].
        labels: One class for all, or a class for each candidate.
        classes: Number of classes.
        defense: What the client ran, as a `Defense` or as `NAME[:k=v,...]` (default: none).
        training: How the client trains (default: one step, so that the update is the gradient).
        others: The other pictures of the client's batch and their soft labels (default: none). The candidate comes
            first in the batch.
    """
    _check_pictures(candidates, others, classes)
    applied = parse_defense(defense) if isinstance(defense, str) else defense
    gallery = Gallery(images=candidates, labels=_soften(labels, len(candidates), classes))
    trial, client = _play(model, gallery, applied, training, others)
    trial = replace(trial, updates=[by_name(client.model, update)])
    guesser, kind, granted = prepare(client, trial, candidates)
    columns = {name: u.unsqueeze(0) for name, u in trial.updates[0].items()}
    settings = make_settings([(trial, 0)], bool(guesser.views), granted)
    question = Question(settings=tuple(settings), columns=columns, own=candidates[:0], answered=1)
    if not isinstance(labels, int):
        guesser = guesser.with_own_labels()
    (scores,) = guesser.score([question], gallery)
    return Guess(log_likelihood=scores[0], kind=kind)


def _play(
    model: nn.Module, gallery: Gallery, defense: Defense, training: LocalTraining, others: Batch | None
) -> tuple[Trial, Client]:
    """A client with the first candidate in the place that is asked about."""
    assert gallery.labels is not None
    held = Batch(gallery.images[:1], gallery.labels[:1])
    if others is not None:
        held = Batch(*(torch.cat(pair) for pair in zip(held, others, strict=True)))
    private = Batch(*(x.unsqueeze(0) for x in held))
    scenario = Scenario(name="line-up", model=model, private=private, names=("client",), training=training)
    place = places_of(scenario, 0)[0]
    return Trial(place=place, row=0, picture=place.picture, updates=[], seeds=[]), Client.of(scenario, defense)


def _check_pictures(candidates: Tensor, others: Batch | None, classes: int) -> None:
    shape = tuple(candidates.shape)
    if candidates.dim() != 4 or len(candidates) < 2 or not candidates.is_floating_point():
        raise ConfigError(
            "must be 2 or more pictures [candidate, channel, height, width] of numbers from 0 to 1, got "
            f"{shape} of {candidates.dtype}",
            key="candidates",
        )
    if others is not None:
        images, labels = (tuple(x.shape) for x in others)
        if images[1:] != shape[1:] or labels != (len(others.images), classes):
            raise ConfigError(
                f"must be pictures {shape[1:]} and soft labels of {classes} classes, got {images} and {labels}",
                key="others",
            )


def _soften(labels: Tensor | int, count: int, classes: int) -> Tensor:
    given = torch.full((count,), labels) if isinstance(labels, int) else labels
    if given.shape != (count,) or not 0 <= int(given.min()) <= int(given.max()) < classes:
        raise ConfigError(f"must be one class from 0 to {classes - 1}, or one for each candidate", key="labels")
    return F.one_hot(given.long(), classes).float()


def by_name(model: nn.Module, update: Mapping[str, Tensor] | Sequence[Tensor | None], key: str = "update") -> Update:
    """By parameter name, each of its parameter's shape. None, as autograd has it where nothing depends, is zeros."""
    parameters = parameters_of(model)
    if len(update) != len(parameters):
        raise ConfigError(
            f"has {len(update)} tensors, the model has {len(parameters)} parameters, give one for each", key=key
        )
    found = update if isinstance(update, Mapping) else dict(zip(parameters, update, strict=True))
    if missing := [name for name in parameters if name not in found]:
        raise ConfigError(f"has no {missing[0]!r}, name the tensors as `model.named_parameters()` does", key=key)
    return {name: _check_tensor(name, found[name], parameter, key) for name, parameter in parameters.items()}


def _check_tensor(name: str, given: Tensor | None, parameter: Tensor, key: str) -> Tensor:
    if given is None:
        return torch.zeros_like(parameter)
    if given.shape != parameter.shape:
        raise ConfigError(f"{name} must be {tuple(parameter.shape)}, got {tuple(given.shape)}", key=key)
    if not bool(given.isfinite().all()):
        raise ConfigError(f"{name} holds numbers that are not finite, so no picture made it", key=key)
    return given
