"""Pictures out of the gradient of a planted layer: dW = sum_k d_k x_k' and db = sum_k d_k, row by row.

Only the rows that are asked for are touched: with 4,096 units and pictures of 224 x 224 the gradient takes 2.5 GB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gradveil.attacks.imprint.insertion import Place, imprint_in
from gradveil.core.attack import Reconstruction
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.types import Labels
from gradveil.engine.labels import given_or_idlg

ROUNDING = 16  # units in the last place of the largest entry: what is less is no picture
AT_ONCE = 2**26  # numbers of the gradient that are looked at together
BLANK = 0.5  # mid-gray where nothing was read


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """One client's gradient of the planted layer, without what weight decay has added to it."""

    weight: Tensor  # [unit, pixel]
    bias: Tensor  # [unit]
    sent: tuple[Tensor, Tensor]  # weight and bias, as the server sent them
    decay: float

    def rows(self, at: Int[Tensor, " row"]) -> Float[Tensor, "row pixel"]:
        return self.weight[at] - self.decay * self.sent[0][at] if self.decay else self.weight[at]

    @property
    def shift(self) -> Float[Tensor, " unit"]:
        """The gradient by the bias."""
        return self.bias - self.decay * self.sent[1] if self.decay else self.bias

    def chunks(self, at: Tensor) -> Iterator[Tensor]:
        """The places in parts whose rows fit the memory."""
        yield from at.split(max(1, AT_ONCE // self.weight.shape[1]))


def gradients(seen: Observation, who: str) -> Iterator[Gradient]:
    """Of every client, by the layer's name."""
    name, imprint = imprint_in(seen, who)
    weight, bias = (seen.update.get(f"{name}.first.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None:
        raise NotApplicableError(
            f"the update holds nothing of the planted layer {name!r}, choose another attack", key=who
        )
    training = seen.training
    decay = training.rate_at(0) * training.weight_decay if training.steps == 1 else 0.0
    sent = (imprint.first.weight.detach(), imprint.first.bias.detach())
    for client in range(len(seen.names)):
        yield Gradient(weight=weight[client], bias=bias[client], sent=sent, decay=decay)


@dataclass(frozen=True, kw_only=True)
class Read:
    """What one client's gradient gave: the layer's inputs, strongest first."""

    inputs: Float[Tensor, "example pixel"]
    found: Bool[Tensor, " example"]
    filled: int  # bins or units that held anything at all
    sound: bool = True  # all numbers were


def differences(gradient: Gradient, examples: int, *, cumulative: bool, bins: int) -> Read:
    """Bins of one functional: of neighboring rows one has seen the pictures between them and the other has not."""
    shift = gradient.shift
    strength = shift - _next(shift) if cumulative else shift
    at, strong = strongest(strength[:bins], examples, shift.abs().amax())
    rows = gradient.rows(at)
    if cumulative:
        last = at == len(shift) - 1
        above = gradient.rows((at + 1).clamp_max(len(shift) - 1))
        rows = rows - torch.where(last[:, None], 0.0, above)
    inputs = rows / strength[at][:, None]
    filled = int((strength[:bins].abs() > _floor(shift.abs().amax())).sum())
    return pad(inputs, strong, examples, filled, bool(shift.isfinite().all()))


def pad(inputs: Tensor, strong: Tensor, examples: int, filled: int, sound: bool) -> Read:
    """As many rows as there are examples; what is missing or no number is not found."""
    found = strong & inputs.isfinite().all(-1)
    missing = examples - len(inputs)
    inputs = torch.cat([torch.where(found[:, None], inputs, 0.0), inputs.new_zeros(missing, inputs.shape[1])])
    return Read(inputs=inputs, found=torch.cat([found, found.new_zeros(missing)]), filled=filled, sound=sound)


def strongest(strength: Tensor, most: int, largest: Tensor) -> tuple[Tensor, Tensor]:
    """The places of the largest entries, in falling order, and which of them are more than rounding."""
    size = strength.abs().nan_to_num(0.0, 0.0, 0.0)
    top = size.topk(min(most, len(size)))
    return top.indices, top.values > _floor(largest)


def _floor(largest: Tensor) -> Tensor:
    return ROUNDING * torch.finfo(largest.dtype).eps * largest


def _next(values: Tensor) -> Tensor:
    return torch.cat([values[1:], values.new_zeros(1)])


def labels_of(seen: Observation) -> Labels:
    """Given or inferred; where there is nothing to infer them from, every class alike."""
    try:
        return given_or_idlg(seen)
    except NotApplicableError:
        like = next(iter(seen.update.values()))
        return seen.target.even(like, len(seen.names), seen.examples)


def reconstruction(seen: Observation, reads: Sequence[Read], place: Place, notes: tuple[str, ...]) -> Reconstruction:
    """`loss` is the share of the pictures that were not found."""
    found = torch.stack([read.found for read in reads])
    pictures = place.pictures(torch.stack([read.inputs for read in reads])).clamp(0, 1)
    sound = torch.tensor([read.sound for read in reads], device=found.device)
    loss = 1 - found.to(pictures).mean(-1)
    return Reconstruction(
        images=torch.where(found[..., None, None, None], pictures, BLANK),
        labels=labels_of(seen),
        found=found,
        loss=loss.masked_fill(~sound, torch.nan),
        notes=(*notes, *doubts(seen)),
    )


def count_range(reads: Sequence[Read]) -> str:
    """`3 to 8` or `8`: how many bins or units held anything."""
    low, high = min(r.filled for r in reads), max(r.filled for r in reads)
    return str(low) if low == high else f"{low} to {high}"


def doubts(seen: Observation) -> tuple[str, ...]:
    if seen.training.steps > 1:
        return ("several local steps: the planted layer moves between them, so fewer pictures are read exactly",)
    return ()
