"""A feature extractor of one's own: a model of the catalogue, trained on public pictures, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.files import write_whole
from gradveil.core.hashes import hash_tensors
from gradveil.core.provenance import own_version
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.models import MODELS
from gradveil.train.centralized import accuracy, fit

HELD_OUT = 0.1  # of the pictures, to say what the network learned


@dataclass(frozen=True, kw_only=True)
class Schooling:
    """How an extractor is trained: the recipe of `gradveil.train.centralized`."""

    model: str = "resnet18"
    epochs: int = 30
    rate: float = 0.1
    batch_size: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS, where="--model")
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.rate < 100:
            raise ConfigError(
                f"train-extractor: {self.epochs} epochs, batches of {self.batch_size} and a rate of {self.rate:g}, "
                "take 1 or more of the first two and a rate above 0"
            )


def train_extractor(
    dataset: Dataset, schooling: Schooling, device: str, on_epoch: Callable[[int, Tensor], None] | None = None
) -> tuple[nn.Module, float]:
    """The trained network and its accuracy on a tenth of the pictures, which it did not see."""
    if dataset.loss != "cross-entropy":
        raise ConfigError(f"{dataset.name}: has several labels per picture, train on pictures with one class each")
    held = int(HELD_OUT * len(dataset))
    if not held:
        raise ConfigError(f"{dataset.name}: {len(dataset)} pictures are too few to train on, give 10 or more")
    known = {"mean": dataset.mean, "std": dataset.std, "seed": schooling.seed}
    model = MODELS[schooling.model](classes=dataset.targets.shape[1], shape=dataset.shape, **known)
    settings = {name: value for name, value in asdict(schooling).items() if name != "model"}
    learned = Batch(dataset.images[held:], dataset.targets[held:])
    fit(model, learned, **settings, device=device, bf16=in_bf16(device), on_epoch=on_epoch)
    if not all(bool(x.isfinite().all()) for x in model.state_dict().values()):
        raise ConfigError("--rate: the extractor has numbers that are not finite, give a lower rate")
    return model.cpu(), accuracy(model, Batch(dataset.images[:held], dataset.targets[:held]))


def in_bf16(device: str) -> bool:
    """A GPU multiplies in bfloat16, several times as fast; weights and sums stay float32."""
    return torch.device(device).type == "cuda"


def store_extractor(model: nn.Module, dataset: Dataset, schooling: Schooling, right: float, out: Path) -> None:
    """Safetensors whose metadata say what it was trained on, how, and how well."""
    told = asdict(schooling) | {
        "data": dataset.name,
        "data_sha256": hash_tensors({"images": dataset.images, "targets": dataset.targets}),
        "pictures": len(dataset),
        "classes": dataset.targets.shape[1],
        "shape": "x".join(map(str, dataset.shape)),
        "accuracy": f"{right:.4f}",
        "gradveil": own_version(),
        "torch": torch.__version__,
    }
    state = {name: x.detach().contiguous() for name, x in model.state_dict().items()}
    write_whole(out, save(state, metadata={name: str(value) for name, value in told.items()}))
