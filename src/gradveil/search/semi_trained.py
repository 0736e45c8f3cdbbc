"""The semi-trained model that the privacy score looks at (ATS, section 4.4): a tenth of the data, 50 epochs.

It is kept in the user's cache under a hash of everything that it depends on, so that it is made once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.files import cache_folder, private_files, write_whole
from gradveil.core.hashes import hash_model, hash_tensors, sha256
from gradveil.core.types import Batch
from gradveil.experiment.parallel.pool import one_thread
from gradveil.models import load_weights
from gradveil.train.centralized import fit


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How it is trained. The defaults are those of ATS."""

    epochs: int = 50
    share: float = 0.1  # of the training pictures
    rate: float = 0.1
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4


def semi_trained_model(
    model: nn.Module,
    data: Batch,
    recipe: Recipe,
    seed: int,
    device: str = "cpu",
    on_epoch: Callable[[int, int], None] | None = None,
) -> nn.Module:
    """A trained copy of the model, on the CPU: out of the cache, or made and kept there."""
    trained = copy.deepcopy(model)
    path = cache_path(model, data, recipe, seed)
    if path.is_file():
        load_weights(trained, path)
        return trained.eval()

    def report(epoch: int, loss: Tensor) -> None:
        if on_epoch is not None:
            on_epoch(epoch, recipe.epochs)

    settings = {k: v for k, v in asdict(recipe).items() if k != "share"}
    with one_thread():  # the same weights on any machine, as far as the CPU goes
        fit(trained, data, **settings, seed=seed, device=device, on_epoch=report)
    trained = trained.cpu()
    if not all(bool(torch.isfinite(x).all()) for x in trained.state_dict().values()):
        raise ConfigError("the semi-trained model has numbers that are not finite, use a lower rate", key="semi_rate")
    _keep(trained, path)
    return trained


def cache_path(model: nn.Module, data: Batch, recipe: Recipe, seed: int) -> Path:
    """Where it lies, or will: under a hash of the start, the pictures, the recipe and the seed."""
    parts = [hash_model(model), hash_tensors(data._asdict()), repr(recipe), str(seed), repr(model)]
    return cache_folder() / "semi-trained" / f"{sha256('|'.join(parts).encode())[:32]}.safetensors"


def _keep(model: nn.Module, path: Path) -> None:
    """A cache that cannot be written costs time and nothing else."""
    state = {name: x.detach().contiguous() for name, x in model.state_dict().items()}
    try:
        with private_files():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, save(state))
    except OSError:
        return
