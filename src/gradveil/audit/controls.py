"""What an attack is held against: the same attack with nothing of the picture in what it is given."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradveil.core.attack import Reconstruction
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, normal
from gradveil.core.types import Update


def blind(seen: Observation, seed: Seed) -> Observation:
    """The same round with noise of the same size for updates. What else the attacker knows stays: labels, model."""
    updates = [_noise(seen, client, seed.at(name)) for client, name in enumerate(seen.names)]
    return replace(
        seen,
        update={name: torch.stack([update[name] for update in updates]) for name in seen.update},
        statistics=None,
        history=tuple(blind(earlier, seed.at(number)) for number, earlier in enumerate(seen.history)),
    )


def _noise(seen: Observation, client: int, seed: Seed) -> Update:
    """Drawn per client, tensor by tensor as long as the update itself."""
    rng = seed.rng()
    return {name: _as_long_as(u[client], normal(u.shape[1:], rng, u)) for name, u in seen.update.items()}


def _as_long_as(update: Tensor, noise: Tensor) -> Tensor:
    return noise * (update.norm() / noise.norm().clamp_min(torch.finfo(noise.dtype).tiny))


def of_another(got: Reconstruction) -> Reconstruction:
    """To every client the reconstruction of the next one's picture."""

    def next_one(x: Tensor) -> Tensor:
        return x.roll(-1, 0)

    return replace(
        got,
        broke=None if got.broke is None else next_one(got.broke),
        images=next_one(got.images),
        fed=None if got.fed is None else next_one(got.fed),
        labels=next_one(got.labels),
        found=next_one(got.found),
        loss=next_one(got.loss),
        converged=None if got.converged is None else next_one(got.converged),
    )
