"""What an attack needs of a generator, and generators by file: the metadata say which network a file holds.

Python code is run where the command line names it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.generators.conditional import ConditionalGan
from gradveil.generators.progan import ProGan
from gradveil.generators.stored import load_network, metadata_of

GANS: dict[str, Callable[..., nn.Module]] = {"progan": ProGan, "conditional-gan": ConditionalGan}
AUTOENCODER = "autoencoder"


class Generator(Protocol):
    """Frozen, without draws or changes in place, so that `torch.func` can go through it."""

    latent: tuple[int, ...]
    size: tuple[int, int, int]

    def __call__(self, z: Tensor) -> Tensor:
        """Latents [n, *latent] to pictures [n, channel, height, width] in [0, 1]."""
        ...


def load_generator(path: str | Path, *, classes: int = 0, shape: tuple[int, int, int] = (3, 32, 32)) -> Generator:
    """The frozen generator in a file, on the CPU. `file.py:factory` runs that file, told classes and shape."""
    if is_user_generator(str(path)):
        return _of_user(str(path), classes, shape)
    kind = kind_of(path)
    if kind == AUTOENCODER:
        from gradveil.generators.autoencoder import load_autoencoder

        return load_autoencoder(path)
    return cast(Generator, load_network(path, kind, GANS[kind]))


def is_user_generator(spec: str) -> bool:
    """`file.py:factory`, or something that tries to be one."""
    return ".py:" in spec or spec.endswith(".py")


def kind_of(path: str | Path) -> str:
    """What the metadata say the file holds."""
    kind = metadata_of(path).get("kind", "")
    if kind not in (*GANS, AUTOENCODER):
        held = repr(kind[:40]) if kind else "weights of unknown kind"
        raise ConfigError(f"{path}: holds {held}, not a generator, make one by gradveil train-gan")
    return kind


def _of_user(spec: str, classes: int, shape: tuple[int, int, int]) -> Generator:
    """The user's own, made as `gradveil.models.user` makes models. It must say what goes in and what comes out."""
    from gradveil.models.user import load_model

    model = load_model(spec, classes=classes, shape=shape)
    for name, length in (("latent", 1), ("size", 3)):
        value = getattr(model, name, None)
        if not isinstance(value, tuple) or len(value) < length or not all(type(n) is int and n > 0 for n in value):
            raise ConfigError(f"{spec}: the generator has no tuple `{name}` of whole numbers, see docs/methods/rogs.md")
    return cast(Generator, model.eval().requires_grad_(False))
