"""Where encodings start: a public picture, chosen by the private picture's hash, so alone and among others alike."""

from __future__ import annotations

import inspect
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil import data
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import sha256
from gradveil.core.seeds import Seed
from gradveil.models.start import Shape

Starts = Literal["own", "drawn"]
MOST = 256  # of the built-in photographs: cropping more takes seconds, and each is moved and mirrored anyway
SHIFT = 0.25  # of half the frame: how far a start of one's own is moved at most
GRAY = (0.299, 0.587, 0.114)


def hash_of(picture: Tensor) -> str:
    """SHA-256 of shape and pixels as float32: one changed bit changes it."""
    plain = picture.detach().float().cpu().contiguous()
    return sha256(f"{tuple(plain.shape)}|".encode() + plain.numpy().tobytes())


@lru_cache(maxsize=4)
def public_pool(spec: str, shape: Shape) -> Tensor:
    """The public pictures in the shape of the private ones."""
    wanted = {"size": max(shape[1:]), "channels": shape[0], "split": "train"}
    wanted |= {"limit": MOST} if spec == "photos" else {}
    try:
        pictures = data.load(spec, **{key: value for key, value in wanted.items() if key in options_for(spec)}).images
    except ConfigError as error:
        raise ConfigError(f"public: {error}") from error
    if not len(pictures):
        raise ConfigError(f"public: {spec} holds no picture, name another set")
    return fit_to(pictures, shape)


def options_for(spec: str) -> tuple[str, ...]:
    """What the loader takes that `gradveil.data.load` would call."""
    by_path = "image-folder" if Path(spec).is_dir() else "image-zip" if spec.endswith(".zip") else "npz"
    return tuple(inspect.signature(data.DATASETS[spec if spec in data.DATASETS else by_path]).parameters)


def fit_to(pictures: Tensor, shape: Shape) -> Tensor:
    """In other channels and another size, as far as these differ."""
    if pictures.shape[1] == 3 and shape[0] == 1:
        pictures = (pictures * torch.tensor(GRAY).view(1, 3, 1, 1)).sum(1, keepdim=True)
    pictures = pictures.expand(-1, shape[0], -1, -1)
    if pictures.shape[2:] != shape[1:]:
        pictures = F.interpolate(pictures, shape[1:], mode="bilinear", antialias=True, align_corners=False)
    return pictures.clamp(0, 1).contiguous()


def start_of(pool: Tensor, hashed: str, kind: Starts, seed: int) -> Tensor:
    """`drawn` is a public picture as it is, as in LODA. `own` also moves and mirrors it, so that no two are the same:
    two pictures with one start could be told to be two."""
    rng = Seed(seed).at("loda", "start", hashed).rng()
    picture = pool[int(torch.randint(len(pool), (), generator=rng))]
    if kind == "drawn":
        return picture
    across, down, mirror = torch.rand(3, generator=rng).tolist()
    turn = torch.tensor(
        [[[1.0 if mirror < 0.5 else -1.0, 0, SHIFT * (2 * across - 1)], [0, 1, SHIFT * (2 * down - 1)]]]
    )
    grid = F.affine_grid(turn, [1, *picture.shape], align_corners=False)
    return F.grid_sample(picture[None], grid, padding_mode="reflection", align_corners=False)[0].clamp(0, 1)
