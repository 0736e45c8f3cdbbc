"""The planted module: a linear layer that looks at the whole picture, and a way on for the picture itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed, normal

Connection = Literal["cancel", "add", "linear", "replace"]
GAINS: Mapping[Connection, float] = {"cancel": 1e4, "add": 1e-2, "linear": 1e-2, "replace": 1.0}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What the hidden units measure of a picture."""

    weight: Tensor  # [unit, pixel]
    bias: Tensor  # [unit]


class Imprint(nn.Module):
    """Hidden units h of the picture x, and what the rest of the model gets of both.

    `cancel`: x + s(h - h'), where h' are the same units with weights that are not trained: the honest model's output
    bit for bit, and yet a gradient of any size. `add`: x + s(h). `linear`: the same, the second layer trained too.
    `replace`: s(h) alone. s is linear and of rank `directions`; with one, every unit gets the same gradient from above.
    """

    back: Tensor
    pattern: Tensor

    def __init__(
        self, rows: Rows, connection: Connection, *, gain: float, sparse: bool, directions: int, seed: Seed
    ) -> None:
        super().__init__()
        units, pixels, like = *rows.weight.shape, rows.weight
        self.connection: Connection = connection
        self.first = _linear(rows.weight, rows.bias)
        self.activation = nn.Hardtanh(0.0, 1.0) if sparse else nn.ReLU()
        share = torch.ones(units, 1) if directions == 1 else normal((units, directions), seed.at("back").rng(), like)
        size = gain or GAINS[connection]
        self.register_buffer("back", size / units * share.to(like))
        signs = normal((directions, pixels), seed.at("pattern").rng(), like).sign()
        self.register_buffer("pattern", signs)
        if connection == "linear":
            self.second = _linear((self.back @ signs).T.contiguous(), torch.zeros_like(signs[0]))

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        hidden = self.activation(self.first(flat))
        if self.connection == "cancel":
            fixed = F.linear(flat, self.first.weight.detach(), self.first.bias.detach())
            hidden = hidden - self.activation(fixed)
        pushed = self.second(hidden) if self.connection == "linear" else hidden @ self.back @ self.pattern
        passed = pushed if self.connection == "replace" else flat + pushed
        return passed.view_as(images)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A layer of these weights, which may take gigabytes: none is drawn first, and nothing is copied."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def check_options(name: str, neurons: int, connection: str, gain: float) -> None:
    if not 2 <= neurons <= 1_000_000:
        raise ConfigError(f"neurons = {neurons} is out of range, take 2 to 1,000,000", key=name)
    if connection not in GAINS:
        raise ConfigError(f"connection = {connection!r} is unknown, take {', '.join(GAINS)}", key=name)
    if not 0 <= gain < float("inf"):
        raise ConfigError(f"gain = {gain} is out of range, take a number >= 0", key=name)
