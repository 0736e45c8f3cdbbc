"""The fixed list of settings: what is attacked. New ones are added, none is changed, so that tables can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Extent = Literal["quick", "full"]
Kind = Literal["cifar10", "faces", "xrays", "cells", "photos"]
FALLBACK: Kind = "photos"  # built in, where nobody gives the pictures of a kind
MODEL_NAMES: Mapping[str, str] = {  # as in `gradveil list models`
    "mlp": "mlp",
    "lenet": "lenet",
    "lenet5": "lenet5",
    "convnet": "convnet8",
    "resnet20": "resnet20-4",
    "vit": "vit-tiny",
}
RATE = 0.01  # of several local steps
QUICK_STEPS = 60  # of each search of `autoattack`
# of `full`: so many seconds for the first search of all clients, by milliseconds for each step and picture
FULL_SECONDS, LEAST_STEPS, MOST_STEPS = 15, 20, 2400
COST: Mapping[str, float] = {"mlp": 4, "lenet": 0.7, "lenet5": 6, "convnet": 50, "resnet20": 200, "vit": 200}
SEVERAL = 12  # times that, through five local steps


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the benchmark: `clients` updates of `batch` pictures each."""

    model: str
    pictures: Kind = "cifar10"
    clients: int
    batch: int = 1
    steps: int = 1
    trained: bool = False
    labels: Literal["known", "inferred"] = "known"

    @property
    def name(self) -> str:
        """
        >>> Setting(model="lenet", clients=2, batch=4, labels="inferred").name
        'lenet-cifar10-b4-inferred'
        """
        parts = [self.model, self.pictures, f"b{self.batch}"]
        parts += [f"s{self.steps}"] if self.steps > 1 else []
        return "-".join([*parts, *(["trained"] if self.trained else []), *([self.labels] if self.infers else [])])

    @property
    def infers(self) -> bool:
        return self.labels == "inferred"

    @property
    def cost(self) -> float:
        """Milliseconds that one step of a search for all its pictures takes, about."""
        return COST[self.model] * self.clients * self.batch * (SEVERAL if self.steps > 1 else 1)

    def search_steps(self, extent: Extent) -> int:
        """Of `autoattack`, where nobody says how many.

        >>> Setting(model="lenet", clients=4, batch=4).search_steps("full")
        1339
        """
        fit = int(1000 * FULL_SECONDS / self.cost)
        return QUICK_STEPS if extent == "quick" else min(max(fit, LEAST_STEPS), MOST_STEPS)


def _quick() -> Iterator[Setting]:
    yield Setting(model="mlp", clients=2, batch=4)
    yield Setting(model="lenet", clients=4)
    yield Setting(model="lenet", clients=2, batch=4)
    yield Setting(model="lenet", clients=4, labels="inferred")
    yield Setting(model="lenet", clients=4, trained=True)
    yield Setting(model="lenet", clients=3, batch=1, steps=5)
    yield Setting(model="vit", clients=2)


def _full() -> Iterator[Setting]:
    for model in ("mlp", "lenet", "lenet5", "convnet"):
        yield Setting(model=model, clients=8)
        yield Setting(model=model, clients=4, batch=4)
        yield Setting(model=model, clients=2, batch=8)
        yield Setting(model=model, clients=4, steps=5)
        yield Setting(model=model, clients=8, trained=True)
        yield Setting(model=model, clients=4, batch=4, labels="inferred")
    for kind in ("faces", "xrays", "cells"):
        yield Setting(model="lenet", pictures=kind, clients=8)
        yield Setting(model="lenet", pictures=kind, clients=4, batch=4)
    for model in ("resnet20", "vit"):
        yield Setting(model=model, clients=4)
        yield Setting(model=model, clients=2, batch=4)
    yield Setting(model="resnet20", clients=4, trained=True)
    yield Setting(model="vit", clients=3, steps=5)


SETTINGS: Mapping[Extent, tuple[Setting, ...]] = {"quick": tuple(_quick()), "full": tuple(_full())}


def list_settings(extent: Extent, given: Iterable[str]) -> list[Setting]:
    """With photographs in the place of kinds that nobody gave, each setting once."""
    known = {*given}
    found = (one if one.pictures in known else replace(one, pictures=FALLBACK) for one in SETTINGS[extent])
    return list({one.name: one for one in found}.values())
