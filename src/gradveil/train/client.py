"""One client's round, the same in every engine: which pictures, what is done to them, and what is sent.

All random numbers are of `Seed(seed).at("round", round, client)`, so a round does not depend on who else takes part,
and can be played again at any time. Only the order in which `fedsgd` walks through a client's pictures belongs to an
epoch, so that every picture is fed once in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import batch_statistics, local_steps, loss_of, newest_share
from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Params, Update
from gradveil.defenses.error_feedback import ErrorFeedback
from gradveil.train.fedprox import local_optimizer
from gradveil.train.settings import Federation
from gradveil.transforms.pipeline import CropAndFlip

Statistics = Mapping[str, Tensor]  # layer.mean and layer.var, as in an observation


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a client sends, and the loss of its last step for the curve."""

    update: Update
    statistics: Statistics  # running statistics after the round; empty unless they are shared
    examples: int
    loss: Tensor
    residual: Update | None = None  # what error feedback remembers; stays with the client


def stream_of(federation: Federation, round: int, client: str) -> Seed:
    return Seed(federation.seed).at("round", round, client)


def pictures_of(count: int, federation: Federation, client: str, round: int) -> Tensor:
    """Which of the client's pictures the round is about, in order. `fedsgd`: the next batch of the epoch.

    Of an epoch the pictures that fill no whole batch are left out; they are others in every epoch.
    """
    if federation.method != "fedsgd":
        return torch.randperm(count, generator=stream_of(federation, round, client).at("order").rng())
    size = min(federation.batch_size, count)
    epoch, place = divmod(round - 1, count // size)
    return _epoch(federation.seed, epoch, client, count)[place * size : (place + 1) * size]


@lru_cache(maxsize=1024)
def _epoch(seed: int, epoch: int, client: str, count: int) -> Tensor:
    return torch.randperm(count, generator=Seed(seed).at("epoch", epoch, client).rng())


def round_data(data: Batch, federation: Federation, defense: Defense, *, client: str, round: int) -> Batch:
    """The client's pictures of this round, shuffled, after `Defense.data`, cropped and flipped if `augment`."""
    at = pictures_of(len(data.images), federation, client, round).to(data.images.device)
    stream = stream_of(federation, round, client)
    data = defense.data(Batch(data.images[at], data.labels[at]), stream.at("data").rng())
    if not federation.augment:
        return data
    crop = CropAndFlip.draw(len(data.images), stream.at("crop").rng())
    return Batch(crop.apply(data.images), data.labels)


def client_reply(
    model: nn.Module,
    params: Params,
    data: Batch,
    federation: Federation,
    defense: Defense,
    *,
    client: str,
    round: int,
    progress: float,
    running: Statistics | None = None,
    residual: Update | None = None,
) -> Reply:
    """One client's round by `local_steps`. `model` is in client mode; `running` are the statistics as sent."""
    data = round_data(data, federation, defense, client=client, round=round)
    examples = len(data.images)
    around, training = local_optimizer(params, federation), federation.local_training(examples, progress)
    rng = stream_of(federation, round, client).at("client").rng()
    statistics = dict(running or {}) if federation.batchnorm == "batch-shared" else {}
    for number, step in enumerate(local_steps(model, params, data, training, defense, rng, around)):
        if statistics:
            statistics = move_statistics(statistics, model, step.params, step.batch.images, number)
    loss = last_loss(model, step.params, step.batch, federation)
    sent, owed = _apply_defense(defense, step.update, federation, residual, rng)
    return Reply(update=sent, statistics=statistics, examples=examples, loss=loss, residual=owed)


def client_round(
    model: nn.Module,
    params: Params,
    data: Batch,
    federation: Federation,
    defense: Defense,
    *,
    client: str,
    round: int,
    progress: float,
) -> Update:
    """What one client sends: `client_reply` without statistics and loss."""
    return client_reply(model, params, data, federation, defense, client=client, round=round, progress=progress).update


def _apply_defense(
    defense: Defense, update: Update, federation: Federation, residual: Update | None, rng: torch.Generator
) -> tuple[Update, Update | None]:
    if not federation.error_feedback:
        return defense.update(update, rng), None
    feedback = ErrorFeedback(defense)
    return feedback.step(update, feedback.start(update) if residual is None else residual, rng)


@torch.no_grad()
def last_loss(model: nn.Module, params: Params, batch: Batch, federation: Federation) -> Tensor:
    logits = functional_call(model, dict(params), (batch.images,))
    return loss_of(logits, batch.labels, federation.loss)


@torch.no_grad()
def move_statistics(
    statistics: Statistics, model: nn.Module, params: Params, images: Tensor, steps: int
) -> dict[str, Tensor]:
    """Running statistics after one more step, as torch moves them."""
    batch = batch_statistics(model, params, images)
    shares = {key: newest_share(model.get_submodule(key.rpartition(".")[0]), steps) for key in statistics}  # type: ignore[arg-type]
    return {key: (1 - shares[key]) * old + shares[key] * batch[key] for key, old in statistics.items()}


def running_of(model: nn.Module) -> dict[str, Tensor]:
    """The running statistics of a model that is not in client mode."""
    found: dict[str, Tensor] = {}
    for name, buffer in model.named_buffers():
        layer, _, kind = name.rpartition(".")
        if kind in ("running_mean", "running_var"):
            found[f"{layer}.{kind.removeprefix('running_')}"] = buffer.detach()
    return found


def as_buffers(statistics: Statistics) -> dict[str, Tensor]:
    """Running statistics under their names in a state dict."""
    names = {key: key.rpartition(".") for key in statistics}
    return {f"{layer}.running_{kind}": statistics[key] for key, (layer, _, kind) in names.items()}
