"""A tiny audit and attacks that behave as told, for the tests of everything around an attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gradveil.audit.audit import Audit
from gradveil.audit.lineup_plan import Size
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.metrics import METRICS

SHAPE, CLASSES = (3, 8, 8), 4


@dataclass(frozen=True, kw_only=True)
class Noise(Attack):
    """Returns noise, drawn per client; keeps what it was shown."""

    seen: list[Observation] = field(default_factory=list, compare=False, repr=False)
    loss: Callable[[str], float] = field(default=lambda name: 1.0, repr=False)
    change: Callable[[str, Tensor], Tensor] = field(default=lambda name, picture: picture, repr=False)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        self.seen.append(seen)
        like = next(iter(seen.update.values()))
        shape = (seen.examples, *seen.shape)
        drawn = {name: uniform(shape, seed.at(name).rng(), like) for name in seen.names}
        images = torch.stack([self.change(name, picture) for name, picture in drawn.items()])
        return Reconstruction(
            images=images,
            labels=torch.zeros(len(images), seen.examples, seen.classes),
            found=torch.ones(images.shape[:2], dtype=torch.bool),
            loss=torch.tensor([self.loss(name) for name in seen.names]),
            backend="toy",
            fell_back=True,
            converged=torch.tensor([name != "c0001" for name in seen.names]),
            notes=("sweep cannot run this: toy",),
        )


@dataclass(frozen=True, kw_only=True)
class Raises(Attack):
    """Fails with a given error."""

    error: BaseException

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        raise self.error


class Plants(Noise):
    """Changes the model."""

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return model


def pictures(count: int, seed: int) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def scenario(clients: int = 3, examples: int = 1, **changes) -> Scenario:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, CLASSES))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    labels = torch.eye(CLASSES)[torch.arange(clients * examples) % CLASSES].view(clients, examples, CLASSES)
    private = Batch(pictures(clients * examples, 0).unflatten(0, (clients, examples)), labels)
    settings = {"training": LocalTraining(), "threat": ThreatModel(), **changes}
    names = tuple(f"c{client:04d}" for client in range(clients))
    return Scenario(name="toy", model=model, private=private, names=names, **settings)


def audit(
    attacks: Mapping[str, Attack],
    defenses: Mapping[str, Defense] | None = None,
    clients: int = 3,
    examples: int = 1,
    seed: int = 0,
    controls: bool = False,
    lineup: Size = 0,
    **changes,
) -> Audit:
    gallery = pictures(10, 1)
    return Audit(
        scenario=scenario(clients, examples, **changes),
        defenses=defenses or {"none": Defense(), "gaussian": Gaussian(scale=0.1)},
        attacks=attacks,
        metrics=(METRICS["psnr"](), METRICS["retrieval"](gallery=gallery)),
        gallery=gallery,
        gallery_labels=torch.eye(CLASSES)[torch.arange(len(gallery)) % CLASSES],
        seed=seed,
        controls=controls,
        lineup=lineup,
    )
