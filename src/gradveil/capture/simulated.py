"""A capture of built-in pictures, for documentation and tests.

from gradveil.capture import save, simulate
save("round-0.safetensors", simulate(model="lenet", clients=2))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradveil import data
from gradveil.capture.format import Capture
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.models import MODELS

NO_DEFENSE, FEDSGD = Defense(), LocalTraining()


def simulate(
    *,
    model: str = "lenet",
    dataset: str = "photos",
    options: Mapping[str, Any] | None = None,
    clients: int = 1,
    examples: int = 1,
    training: LocalTraining = FEDSGD,
    defense: Defense = NO_DEFENSE,
    stated_defense: str = "",
    labels: bool = False,
    seed: int = 0,
) -> Capture:
    """The round of clients that hold the first pictures of the data. `stated_defense`: as a client would name it."""
    pictures = data.load(dataset, **{"limit": clients * examples, **(options or {})})
    shape, classes = pictures.shape, pictures.targets.shape[1]
    plain = MODELS[model](classes=classes, shape=shape, seed=seed, mean=pictures.mean, std=pictures.std)
    sent = defense.model(plain).eval()
    played, updates, own = in_client_mode(sent, training), {}, {}
    for number in range(clients):
        name, rows = f"client-{number}", slice(number * examples, (number + 1) * examples)
        batch = Batch(pictures.images[rows], pictures.targets[rows])
        rng = Seed(seed).at("round", 0, name).rng()
        updates[name] = local_update(played, parameters_of(played), defense.data(batch, rng), training, defense, rng)
        own[name] = batch.labels
    return Capture(
        weights=sent.state_dict(),
        updates=updates,
        round=0,
        training=training,
        examples=dict.fromkeys(updates, examples),
        shape=shape,
        classes=classes,
        normalization=(tuple(map(float, pictures.mean)), tuple(map(float, pictures.std))),
        model=model,
        defense=stated_defense,
        labels=own if labels else {},
        producer="gradveil.capture.simulate",
    )
