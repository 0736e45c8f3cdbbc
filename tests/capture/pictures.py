"""Small captures and the pictures that they were made of."""

from __future__ import annotations

from functools import cache

from gradveil.capture import Capture
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.models import MODELS

NO_DEFENSE, FEDSGD = Defense(), LocalTraining()


@cache
def dataset() -> Dataset:
    return load("photos", size=16, count=48)


def rows(first: int, count: int = 1) -> Batch:
    at = slice(first, first + count)
    return Batch(dataset().images[at], dataset().targets[at])


def sent_by(
    *batches: Batch,
    model: str = "lenet",
    training: LocalTraining = FEDSGD,
    defense: Defense = NO_DEFENSE,
    fed: Batch | None = None,
) -> Capture:
    """The round of clients that hold these pictures; `fed`, if it is there, is what they really trained on."""
    data = dataset()
    made = MODELS[model](classes=8, shape=data.shape, seed=0, mean=data.mean, std=data.std).eval()
    client, rng = in_client_mode(made, training), Seed(3).rng()
    updates = {
        f"client-{k}": local_update(client, parameters_of(client), fed or batch, training, defense, rng)
        for k, batch in enumerate(batches)
    }
    return Capture(
        weights=made.state_dict(),
        updates=updates,
        round=0,
        training=training,
        examples={f"client-{k}": len(batch.images) for k, batch in enumerate(batches)},
        shape=data.shape,
        classes=8,
        normalization=(tuple(data.mean), tuple(data.std)),
        model=model,
    )
