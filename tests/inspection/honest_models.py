"""Honest checkpoints: several architectures, inits and stages of training, and what people do to them afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import torch
from torch import Tensor, nn

from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.base import Dataset
from gradveil.data.digits import digits
from gradveil.data.photos import photos
from gradveil.models.convnet import convnet
from gradveil.models.lenet import lenet
from gradveil.models.mlp import mlp
from gradveil.models.mobilenet_v2 import mobilenet_v2
from gradveil.models.resnet20 import Block
from gradveil.models.start import weights_from
from gradveil.models.vit import vit
from gradveil.train.centralized import fit


@dataclass(frozen=True, kw_only=True)
class Host:
    """A model, pictures of a client, and pictures to train on."""

    model: nn.Module
    images: Tensor
    public: Batch


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model at one stage, and a client's pictures."""

    label: str
    model: nn.Module
    images: Tensor


@cache
def _digits(size: int) -> tuple[Dataset, Dataset]:
    return digits(split="train", size=size, limit=512), digits(size=size, limit=64)


@cache
def _photos(size: int) -> tuple[Dataset, Dataset]:
    return photos(size=size, count=400, limit=256), photos(size=size, limit=64)


def _of(data: tuple[Dataset, Dataset], crop: int, make: Callable[..., nn.Module], **options: object) -> Host:
    """The factory's model on these pictures; `crop` columns are cut off, so that they are not square."""
    train, own = data
    shape = (train.shape[0], train.shape[1], train.shape[2] - crop)
    model = make(classes=train.targets.shape[1], shape=shape, mean=train.mean, std=train.std, **options)
    images, public = own.images[..., crop:], Batch(train.images[..., crop:], train.targets)
    return Host(model=model.eval(), images=images, public=public)


def residual(*, classes: int, shape: tuple[int, int, int], seed: int, **_: object) -> nn.Module:
    with weights_from(seed):
        stem = nn.Sequential(nn.Conv2d(shape[0], 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        body = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        return nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def cnn(*, classes: int, shape: tuple[int, int, int], seed: int, **_: object) -> nn.Module:
    with weights_from(seed):
        return nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(), nn.Flatten(), nn.Linear(32 * -(-shape[1] // 4) * -(-shape[2] // 4), 96), nn.ReLU(),
            nn.Linear(96, classes),
        )  # fmt: skip


def wide_mlp(*, classes: int, shape: tuple[int, int, int], seed: int, **_: object) -> nn.Module:
    inputs = shape[0] * shape[1] * shape[2]
    with weights_from(seed):
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, classes))


def small_vit(**options: object) -> nn.Module:
    return vit(width=48, heads=3, depth=3, **options)  # type: ignore[arg-type]


ARCHITECTURES: dict[str, Callable[..., Host]] = {
    "lenet": lambda seed: _of(_photos(16), 0, lenet, seed=seed),
    "mlp": lambda seed: _of(_photos(16), 0, mlp, seed=seed),
    "wide-mlp": lambda seed: _of(_digits(16), 3, wide_mlp, seed=seed),
    "convnet8": lambda seed: _of(_photos(16), 0, convnet, width=8, seed=seed),
    "residual": lambda seed: _of(_photos(16), 0, residual, seed=seed),
    "cnn": lambda seed: _of(_photos(16), 3, cnn, seed=seed),
    "gray-cnn": lambda seed: _of(_digits(16), 0, cnn, seed=seed),
    "mobilenet": lambda seed: _of(_photos(16), 0, mobilenet_v2, seed=seed),
    "vit": lambda seed: _of(_digits(16), 0, small_vit, seed=seed),
}
SLOW = {"mobilenet"}  # a second a training epoch and more


def orthogonal(model: nn.Module) -> None:
    _each_weight(model, nn.init.orthogonal_)


def uniform(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)


def zero_biases(model: nn.Module) -> None:
    _each_weight(model, nn.init.kaiming_normal_)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


def _each_weight(model: nn.Module, init: Callable[[Tensor], object]) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            init(module.weight)


INITS: dict[str, Callable[[nn.Module], None]] = {
    "default": lambda model: None,
    "orthogonal": orthogonal,
    "uniform": uniform,
    "zero biases": zero_biases,
}


def dead_rows(model: nn.Module, seed: int) -> None:
    """Structured pruning: a third of the neurons of every layer, weights and bias alike."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            dead = torch.rand(len(module.weight), generator=Seed(seed).rng()) < 1 / 3
            module.weight.data[dead] = 0
            if module.bias is not None:
                module.bias.data[dead] = 0


def small_weights_zero(model: nn.Module, seed: int) -> None:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data[parameter.abs() < parameter.abs().flatten().quantile(0.8)] = 0


def half_precision(model: nn.Module, seed: int) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to((torch.float16, torch.bfloat16)[seed % 2]).float()


def tied_rows(model: nn.Module, seed: int) -> None:
    """A layer widened by copies of its neurons, as Net2Net does."""
    layer = next(m for m in model.modules() if isinstance(m, nn.Linear) and len(m.weight) >= 8)
    half = len(layer.weight) // 2
    layer.weight.data[half : 2 * half] = layer.weight.data[:half]
    layer.bias.data[half : 2 * half] = layer.bias.data[:half]


def folded(model: nn.Module, seed: int) -> None:
    """BatchNorm multiplied into the convolution before it."""
    layers = list(model.modules())
    for conv, norm in pairwise(layers):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.running_var is not None:
            scale = norm.weight.data / (norm.running_var + norm.eps).sqrt()
            before = 0.0 if conv.bias is None else conv.bias.data
            conv.weight.data *= scale.view(-1, 1, 1, 1)
            conv.bias = nn.Parameter((before - norm.running_mean) * scale + norm.bias.data)
            norm.reset_parameters()
            norm.reset_running_stats()


AFTERWARDS: dict[str, Callable[[nn.Module, int], None]] = {
    "dead rows": dead_rows,
    "pruned": small_weights_zero,
    "half precision": half_precision,
    "tied rows": tied_rows,
    "folded": folded,
}


RUNS = (("default", 0.1), ("orthogonal", 0.02), ("uniform", 0.01), ("zero biases", 0.05), ("default", 0.02))
STAGES = (1, 4, 12)  # epochs, beside the untrained model


def honest(architectures: Iterable[str], runs: int, stages: tuple[int, ...]) -> Iterator[Checkpoint]:
    """The checkpoints of so many training runs of each architecture."""
    for name in architectures:
        for number, (init, rate) in enumerate(RUNS[:runs]):
            yield from checkpoints(name, init, rate, number, (1,) if name in SLOW else stages)


def blown_up(stages: tuple[int, ...]) -> Iterator[Checkpoint]:
    """Training that diverged: weights ten times too large and a rate ten times too high."""
    for seed, name in product(range(3), ("mlp", "wide-mlp", "cnn", "gray-cnn")):
        yield from checkpoints(name, "uniform", 0.1, seed, stages)


def checkpoints(architecture: str, init: str, rate: float, seed: int, stages: tuple[int, ...]) -> Iterator[Checkpoint]:
    """One training run, looked at after so many epochs, and the last one as people change it."""
    host = ARCHITECTURES[architecture](seed=seed)
    with weights_from(seed):
        INITS[init](host.model)
    kept: dict[str, nn.Module] = {"untrained": copy.deepcopy(host.model)}

    def keep(epoch: int, _: Tensor) -> None:
        if epoch in stages:
            kept[f"epoch {epoch}"] = copy.deepcopy(host.model).eval()

    fit(host.model, host.public, epochs=max(stages), rate=rate, batch_size=64, seed=seed, on_epoch=keep)
    for name, change in AFTERWARDS.items():
        if name != "folded" or any(isinstance(m, nn.BatchNorm2d) for m in host.model.modules()):
            kept[name] = copy.deepcopy(host.model).eval()
            change(kept[name], seed)
    for stage, model in kept.items():
        if all(p.isfinite().all() for p in model.parameters()):
            label = f"{architecture}, {init}, rate {rate}, seed {seed}, {stage}"
            yield Checkpoint(label=label, model=model, images=host.images)
