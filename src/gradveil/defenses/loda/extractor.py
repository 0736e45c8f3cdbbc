"""The network whose features an encoding keeps: `resnet18:FILE`, a model of the catalogue and its safetensors weights.

A file is held together with the beginning of its SHA-256, so that a run cannot go on with other weights.
`resnet18:untrained` is the network as it is before training: for tests, and to compare with.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from torch import nn

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.hashes import sha256
from gradveil.models import MODELS, load_weights
from gradveil.models.header import read_header
from gradveil.models.start import Shape

UNTRAINED = "untrained"
DIGEST = re.compile(r"(.+)#([0-9a-f]{16})")
LAST = "fc.weight"  # of every model of the catalogue
TRAIN = "gradveil train-extractor"


def check_extractor(spec: str) -> str:
    """The extractor with the hash of its file; ConfigError if there is no such thing."""
    name, colon, file = spec.partition(":")
    if not colon or not file:
        raise ConfigError(f"extractor: {spec!r} is no extractor, write MODEL:FILE.safetensors; make one by {TRAIN}")
    if name not in MODELS:
        raise unknown("model", name, MODELS, where="extractor")
    if file == UNTRAINED:
        return spec
    path, claimed = split_digest(file)
    if not path.is_file():
        raise ConfigError(f"extractor: {path}: no such file, make one by {TRAIN}")
    digest = digest_of(path)
    if claimed and claimed != digest:
        raise ConfigError(f"extractor: {path}: its SHA-256 begins with {digest}, not {claimed}, restore the file")
    return f"{name}:{path}#{digest}"


def split_digest(file: str) -> tuple[Path, str]:
    found = DIGEST.fullmatch(file)
    return (Path(found[1]), found[2]) if found else (Path(file), "")


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def identity(spec: str) -> str:
    """What a checked extractor is, wherever its file lies."""
    name, _, file = spec.partition(":")
    return f"{name}:{split_digest(file)[1] or UNTRAINED}"


@lru_cache(maxsize=4)
def load_extractor(spec: str, shape: Shape) -> nn.Module:
    """The network for pictures of this shape, on the CPU in float32. Who changes it makes a copy."""
    name, _, file = spec.partition(":")
    if file == UNTRAINED:
        return MODELS[name](classes=10, shape=shape, mean=(0.5,) * shape[0], std=(0.25,) * shape[0])
    path, digest = split_digest(file)
    header = read_header(path, path)
    _check_channels(path, header, shape)
    if LAST not in header:
        raise ConfigError(f"extractor: {path}: has no {LAST}, so it is no {name} of gradveil, make one by {TRAIN}")
    constants = {"mean": (0.0,) * shape[0], "std": (1.0,) * shape[0]} if "normalize.mean" in header else {}
    model = MODELS[name](classes=header[LAST][0], shape=shape, **constants)
    load_weights(model, path)
    if digest and digest != digest_of(path):
        raise ConfigError(f"extractor: {path}: changed while it was read, give the command again")
    return model


def _check_channels(path: Path, header: dict[str, tuple[int, ...]], shape: Shape) -> None:
    """Of the normalization, or of the one convolution that sees pictures: the fewest channels that enter any."""
    entering = [sizes[1] for sizes in header.values() if len(sizes) == 4]
    channels = header["normalize.mean"][0] if "normalize.mean" in header else min(entering, default=shape[0])
    if channels != shape[0]:
        raise ConfigError(
            f"extractor: {path}: takes pictures of {channels} channels, these have {shape[0]}, "
            "train one on pictures like these"
        )


def fingerprint(*parts: object) -> str:
    return sha256("|".join(map(repr, parts)).encode())[:32]
