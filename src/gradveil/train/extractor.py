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
from gradveil.core.hashes import hash_tensors, own_version
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.models import MODELS
from gradveil.train.centralized import accuracy, fit

HELD_OUT = 0.1  # of the pictures, to say what the network learned


@dataclass(frozen=True, kw_only=True)
class ExtractorTraining:
    """How an extractor is trained: the recipe of `gradveil.train.centralized`."""

    model: str = "resnet18"
    epochs: int = 30
    rate: float = 0.1
    batch_size: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.rate < 100:
            raise ConfigError(
                "`epochs` and `batch_size` must be 1 or more and `rate` between 0 and 100, "
                f"got {self.epochs}, {self.batch_size} and {self.rate:g}"
            )


def train_extractor(
    dataset: Dataset, schooling: ExtractorTraining, device: str, on_epoch: Callable[[int, Tensor], None] | None = None
) -> tuple[nn.Module, float]:
    """The trained network and its accuracy on a tenth of the pictures, which it did not see."""
    if not dataset.has_labels:
        raise ConfigError(
            f"{dataset.name} has several labels per picture, take pictures with one class each", key="data"
        )
    count = int(HELD_OUT * len(dataset))
    if not count:
        raise ConfigError(f"{dataset.name} must have 10 or more pictures, got {len(dataset)}", key="data")
    known = {"mean": dataset.mean, "std": dataset.std, "seed": schooling.seed}
    model = MODELS[schooling.model](classes=dataset.targets.shape[1], shape=dataset.shape, **known)
    settings = {name: value for name, value in asdict(schooling).items() if name != "model"}
    training = Batch(dataset.images[count:], dataset.targets[count:])
    fit(model, training, **settings, device=device, bf16=in_bf16(device), on_epoch=on_epoch)
    if not all(bool(x.isfinite().all()) for x in model.state_dict().values()):
        raise ConfigError("the trained extractor has numbers that are not finite, take a lower rate", key="rate")
    return model.cpu(), accuracy(model, Batch(dataset.images[:count], dataset.targets[:count]))


def in_bf16(device: str) -> bool:
    """A GPU multiplies in bfloat16, several times as fast; weights and sums stay float32."""
    return torch.device(device).type == "cuda"


def store_extractor(model: nn.Module, dataset: Dataset, schooling: ExtractorTraining, right: float, out: Path) -> None:
    """Safetensors whose metadata say what it was trained on, how, and how well."""
    metadata = asdict(schooling) | {
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
    write_whole(out, save(state, {name: str(value) for name, value in metadata.items()}))
