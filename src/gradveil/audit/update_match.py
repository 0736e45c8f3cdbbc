"""How well a reconstruction explains what was received: the only score that needs no original."""

from __future__ import annotations

import torch
from torch import Tensor

from gradveil.core.attack import Reconstruction
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.metric import Facts
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, PerClient, Update

MATCH = Facts(name="match", label="Match", digits=3)


def match_updates(seen: Observation, got: Reconstruction) -> PerClient:
    """Cosine between the update of the reconstruction, were it trained on, and the one received. 1 is the same.

    A high match is no proof: several pictures can have nearly the same update.
    """
    model = in_client_mode(seen.model, seen.training)
    params, found = parameters_of(model), []
    for client in range(len(seen.names)):
        batch = Batch(got.images[client].detach().clamp(0, 1).nan_to_num(0), got.labels[client].detach())
        own = local_update(model, params, batch, seen.training, Defense(), Seed().rng())
        found.append(cosine(own, {name: u[client] for name, u in seen.update.items()}))
    return torch.tensor(found)


def cosine(one: Update, other: Update) -> float:
    """Over all parameters that both have."""
    pairs = [(one[name].double().flatten(), other[name].double().flatten()) for name in other if name in one]
    product = sum((a @ b for a, b in pairs), torch.zeros((), dtype=torch.float64, device=pairs[0][0].device))
    return float(product / (length([a for a, _ in pairs]) * length([b for _, b in pairs])).clamp_min(1e-300))


def length(tensors: list[Tensor]) -> Tensor:
    return torch.stack([tensor.double().square().sum() for tensor in tensors]).sum().sqrt()
