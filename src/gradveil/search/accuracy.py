"""The accuracy score of a policy (ATS, Gao et al., section 4.3): how uncorrelated the Jacobians of transformed pictures
are under an untrained model, after Mellor et al., Neural Architecture Search without Training, ICML 2021.

Differs from eq. 14: the sign is turned as in the authors' code, so that higher is better, and the sum is divided by the
number of pictures, which their code does not do.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gradveil.core.client import in_client_mode
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.models.normalize import constants_of

ETA = 1e-5
# The authors' code drops what scores below -85, a sum over the pictures of a round. A hundred random pictures of
# CIFAR-100 without repeated labels are 63 on average, which makes it -1.35 a picture; uncorrelated ones score -1.
THRESHOLD = -85 / 63
PICTURES = {"cpu": 64, "cuda": 1024}  # at once


def spread_scores(rows: Float[Tensor, "policy image pixel"]) -> Float[Tensor, " policy"]:
    """How far the Jacobians of a round point in different directions.

    Higher is better; -1 for uncorrelated Jacobians, down to about -1/ETA where all are copies of one.
    """
    # on the CPU: a GPU takes small symmetric matrices one after the other, and slowly
    values = torch.linalg.eigvalsh(correlation(rows).cpu()).clamp_min(0) + ETA
    return -(values.log() + values.reciprocal()).mean(-1).to(rows.device)


def jacobians(model: nn.Module, pictures: Float[Tensor, "image channel height width"]) -> Float[Tensor, "image pixel"]:
    """d(sum of logits)/dx of every picture, x in the units in which the model's first layer sees it."""
    model = in_client_mode(model, LocalTraining()).to(pictures.device).requires_grad_(False)
    std = constants_of(model, pictures.shape[1])[1].to(pictures)
    size = PICTURES.get(pictures.device.type, PICTURES["cpu"])
    found = [_jacobians(model, some) for some in pictures.split(size)]
    return (torch.cat(found) * std.view(-1, 1, 1)).flatten(1)


def _jacobians(model: nn.Module, pictures: Tensor) -> Tensor:
    """Of all pictures in one backward: in eval mode no picture's logits depend on another picture."""
    with torch.enable_grad():
        x = pictures.detach().requires_grad_()
        return torch.autograd.grad(model(x).sum(), x)[0]


def correlation(rows: Float[Tensor, "*policy image pixel"]) -> Float[Tensor, "*policy image image"]:
    """Pearson's of the rows, in float64. A row that never changes correlates with nothing, not even with itself: a
    picture that the model does not answer to then counts like a copy of another, and not like the best of pictures."""
    eps = torch.finfo(rows.dtype).eps
    rows = rows.double()
    centered = rows - rows.mean(-1, keepdim=True)
    length = centered.norm(dim=-1, keepdim=True)
    moves = length > 8 * eps * rows.norm(dim=-1, keepdim=True)  # less is rounding
    unit = torch.where(moves, centered / torch.where(moves, length, 1.0), 0.0)
    return unit @ unit.mT


def accuracy_rounds(labels: Tensor, rounds: int, size: int, seed: Seed, distinct_labels: bool = False) -> list[Tensor]:
    """The pictures of each round: `size` of those whose classes `labels` [image] (or [image, class]) gives.

    No picture comes twice before each has come once. With `distinct_labels` the first of each class is kept, as in the
    authors' code: a round of CIFAR-100 then has about 63 pictures, and one of ten classes at most ten.
    """
    classes = labels.argmax(1) if labels.dim() == 2 else labels
    if not 1 <= size <= len(classes):
        raise ConfigError(f"accuracy score: {size} pictures a round of {len(classes)}, take 1 to {len(classes)}")
    order = torch.randperm(len(classes), generator=seed.at("accuracy").rng())
    picked = [order.roll(-number * size)[:size] for number in range(rounds)]
    return [firsts(classes.cpu(), one) for one in picked] if distinct_labels else picked


def firsts(classes: Tensor, picked: Tensor) -> Tensor:
    """Of the pictures picked, the first of each class."""
    seen: dict[int, int] = {}
    for place in picked.tolist():
        seen.setdefault(int(classes[place]), place)
    return torch.tensor(list(seen.values()), dtype=torch.long)
