"""One candidate per unit, weight gradient over bias gradient: which are pictures, and which are the same picture."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from gradveil.attacks.imprint.insertion import Place
from gradveil.attacks.imprint.readout import Gradient, Read, pad, strongest
from gradveil.core.seeds import Seed, normal

SIGNATURE = 32  # numbers that a candidate is compared by
AGREED = 2  # units, from which on a candidate is a picture and no mixture
CLEARLY = 1e-4  # of the largest bias: a smaller activation may be rounding
OUTLIERS = 0.01  # share of the pixels that may lie outside the box


def candidates(
    gradient: Gradient, place: Place, examples: int, *, box: float, same: float, seed: Seed, consistent: bool = False
) -> Read:
    """The most plausible inputs: in the range of pictures, shown by many units, strongly.

    A mixture of two pictures differs from unit to unit, since each weighs them by its own way on (see `Imprint`). If
    `consistent`, what a unit shows must also be all that activates it, as far as others are known.
    """
    shift = gradient.shift
    at, active = strongest(shift, len(shift), shift.abs().amax())
    at = at[active]
    inside, signature = _looked_at(gradient, place, at, box, seed)
    at, signature = at[inside], signature[inside]
    near = torch.cdist(signature, signature) <= same
    strength = shift[at].abs() / shift.abs().amax()
    score = near.sum(-1) + 0.5 * strength
    if consistent:
        sure = _distinct(near, score.masked_fill(near.sum(-1) < AGREED, 0.0), examples)
        score = score.masked_fill(_contradicts(gradient, at, sure, near), 0.0)
    picked = _distinct(near, score, examples)
    inputs = gradient.rows(at[picked]) / shift[at[picked]][:, None]
    sound = bool(shift.isfinite().all())
    return pad(inputs, torch.ones_like(picked, dtype=torch.bool), examples, int(active.sum()), sound)


def _looked_at(gradient: Gradient, place: Place, at: Tensor, box: float, seed: Seed) -> tuple[Tensor, Tensor]:
    """Whether each candidate is in the box, and random projections of it: distances in them are RMS differences."""
    pixels = prod(place.shape)
    onto = normal((pixels, SIGNATURE), seed.at("signature").rng(), gradient.weight) / (pixels * SIGNATURE) ** 0.5
    inside, signature = [at.new_zeros(0, dtype=torch.bool)], [onto.new_zeros(0, SIGNATURE)]
    for part in gradient.chunks(at):
        shown = place.pictures(gradient.rows(part) / gradient.shift[part][:, None]).flatten(1)
        out = ~((shown >= -box) & (shown <= 1 + box))  # NaN and infinity are outside
        inside.append(out.to(onto).mean(-1) <= OUTLIERS)
        signature.append(shown.nan_to_num(0.0, 0.0, 0.0) @ onto)
    return torch.cat(inside), torch.cat(signature)


def _contradicts(gradient: Gradient, at: Tensor, sure: Tensor, near: Tensor) -> Tensor:
    """Which units show something else than a picture that several units agree on and that activates them too."""
    weight, bias = gradient.sent
    pictures = (gradient.rows(at[sure]) / gradient.shift[at[sure]][:, None]).T
    parts = [weight[part] @ pictures + bias[part][:, None] for part in gradient.chunks(at)]
    level = torch.cat([pictures.new_zeros(0, len(sure)), *parts])
    return ((level > CLEARLY * bias.abs().amax()) & ~near[:, sure]).any(-1)


def _distinct(near: Tensor, score: Tensor, most: int) -> Tensor:
    """Places of the highest score, of the highest that shows another picture, and so on."""
    picked: list[int] = []
    left = score.clone()
    while len(picked) < most and len(left) and float(left.max()) > 0:
        place = int(left.argmax())
        picked.append(place)
        left[near[place]] = 0.0
        left[place] = 0.0
    return torch.tensor(picked, dtype=torch.long, device=score.device)
