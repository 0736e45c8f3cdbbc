"""Tiny scenes, seconds on one core: one picture, a batch, FedAvg, batch statistics, several labels at once."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from

SHAPE, CLASSES = (3, 8, 8), 5
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
FEDSGD, NO_DEFENSE, CURIOUS = LocalTraining(), Defense(), ThreatModel()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in [0, 1) of which nobody else takes any."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Usual(nn.Module):
    """Two convolutions and the usual layers around them: normalization, ReLU, sigmoid, pooling, a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.normalize = Normalize(MEAN, STD)
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.act1, self.pool1 = nn.ReLU(), nn.MaxPool2d(2)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.act2, self.pool2 = nn.Sigmoid(), nn.AvgPool2d(2)
        self.flatten, self.fc = nn.Flatten(), nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.act1(self.norm1(self.conv1(self.normalize(x)))))
        x = x + self.act2(self.norm2(self.conv2(x)))
        return self.fc(self.flatten(self.pool2(x)))


def settled(model: nn.Module) -> nn.Module:
    """In float64, with the running statistics and scales of a model that has been trained for a while."""
    model.double()
    for place, layer in enumerate(m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)):
        size = layer.num_features
        if layer.running_mean is not None and layer.running_var is not None:
            layer.running_mean.copy_(0.4 * drawn(size, seed=place) - 0.2)
            layer.running_var.copy_(0.5 + drawn(size, seed=place + 1))
        if layer.affine:
            layer.weight.data.copy_(0.5 + drawn(size, seed=place + 2))
            layer.bias.data.copy_(0.4 * drawn(size, seed=place + 3) - 0.2)
    return model


def usual(shape: tuple[int, int, int] = SHAPE) -> nn.Module:
    with weights_from(0):
        model = Usual()
        model.eval()(torch.zeros(1, *shape))  # the lazy layer learns its size
    return settled(model)


def smooth() -> nn.Module:
    """Easy to invert: sigmoids, wide weights, no pooling."""
    with weights_from(1):
        model = nn.Sequential(
            Normalize(MEAN, STD),
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.Sigmoid(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(8 * 4 * 4, CLASSES),
        )
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
    return model.double()


def perceptron() -> nn.Module:
    """Its first layer is linear and sees the pictures themselves."""
    with weights_from(2):
        layers = [nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, CLASSES)]
        return nn.Sequential(Normalize(MEAN, STD), *layers).double()


def one_hot(clients: int, examples: int, classes: int = CLASSES) -> Tensor:
    """Every class in turn."""
    return F.one_hot(torch.arange(clients * examples) % classes, classes).double().view(clients, examples, classes)


def scene(
    model: nn.Module,
    clients: int = 3,
    examples: int = 1,
    *,
    shape: tuple[int, int, int] = SHAPE,
    labels: Tensor | None = None,
    training: LocalTraining = FEDSGD,
    threat: ThreatModel = CURIOUS,
) -> Scenario:
    labels = one_hot(clients, examples) if labels is None else labels
    return Scenario(
        name="tiny",
        model=model,
        private=Batch(drawn(clients, examples, *shape, seed=9), labels),
        names=tuple(f"client-{i}" for i in range(clients)),
        training=training,
        threat=threat,
    )


def one_picture(clients: int = 3, model: nn.Module | None = None) -> Scenario:
    return scene(model or usual(), clients)


def four_pictures(clients: int = 3, model: nn.Module | None = None) -> Scenario:
    return scene(model or usual(), clients, 4)


def fedavg(clients: int = 3, model: nn.Module | None = None) -> Scenario:
    training = LocalTraining(steps=3, rate=0.1, batch_size=2, momentum=0.9, weight_decay=1e-2)
    return scene(model or usual(), clients, 4, training=training)


def batch_statistics(clients: int = 3, shared: bool = False, steps: int = 1) -> Scenario:
    """The client normalizes by its own batch; if `shared`, the server is told the running statistics."""
    training = LocalTraining(steps=steps, batchnorm="batch-shared" if shared else "batch")
    return scene(usual(), clients, 4, training=training)


def several_labels(clients: int = 3, examples: int = 2) -> Scenario:
    labels = (drawn(clients, examples, CLASSES, seed=3) < 0.4).double()
    return scene(usual(), clients, examples, labels=labels, training=LocalTraining(loss="binary-cross-entropy"))


SCENES = {
    "one picture": one_picture,
    "four pictures": four_pictures,
    "FedAvg": fedavg,
    "batch statistics": batch_statistics,
    "batch statistics, shared": lambda clients=3: batch_statistics(clients, shared=True),
    "several labels": several_labels,
}


def as_float32(scenario: Scenario) -> Scenario:
    private = Batch(*(x.float() for x in scenario.private))
    return replace(scenario, model=scenario.model.float(), private=private)


class Onlooker(Attack):
    """Plants nothing; for scenes that are only looked at."""

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        raise NotImplementedError


def seen_in(scenario: Scenario, defense: Defense = NO_DEFENSE, seed: int = 0) -> Observation:
    """What the server sees of a scene."""
    return observe(scenario, defense, Onlooker(), Seed(seed))[0]
