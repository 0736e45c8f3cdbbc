"""A vision transformer's picture in closed form, by its position embeddings (Lu et al., CVPR 2022).

Token p is z_p = W x_p + b + pos_p. So the gradient of pos_p is the slope d_p of the token itself, and dW = sum_p d_p
x_p': one least squares gives all patches x_p. Several local steps change nothing, since every step adds d_p to both.
Differs from APRIL's closed form, which solves for the token before the first attention and needs that layer's query,
key and value: this one needs the patch embedding's weight and the positions alone, under any name and in any order. It
is their equation with the position's gradient put where it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.closed.layer_input import LayerInput, called_layers, is_plain, random_value
from gradveil.attacks.closed.replay import find_nothing, is_alone, verify_labels, without_decay
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed, normal, uniform

PAPER = Paper(
    "APRIL: Finding the Achilles' Heel on Privacy for Vision Transformers", "Lu et al.", 2022, "arXiv:2112.14087"
)
SHAKEN = 0.02  # noise on the weights of the probe: a head of zeros would hide every slope
SAME = 1e-3  # of a slope's length, up to which two slopes are one
ALONE = "april reads a picture that is alone in its update, since the slopes of several add up"
EARLY = 8  # layers that are tried, in the order of their calls


def april() -> April:
    """Reads one picture off a transformer's patch and position embeddings in closed form; exact without a defense."""
    return April()


@dataclass(frozen=True, kw_only=True)
class April(Attack):
    """One least squares over the patches, verified by a replay."""

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        if not is_alone(seen):
            raise NotApplicableError(ALONE, key="april")
        find_embedding(seen)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is what a replay of the pictures leaves unexplained."""
        seen = seen.average_rounds()
        embedding = find_embedding(seen)
        if not is_alone(seen):
            return find_nothing(seen, ALONE)
        pictures = embedding.inputs.invert(embedding.read(seen))
        return verify_labels(seen, pictures.unsqueeze(1))


@dataclass(frozen=True, eq=False)
class Embedding:
    """Where patches become tokens, and which rows of the position embedding are added to them."""

    inputs: LayerInput
    places: str  # the position embedding, by its name
    rows: Tensor  # of it, one for each patch

    def read(self, seen: Observation, damping: float = 0.0) -> Tensor:
        """The patches of every client, [client, patch, number]; damped, for updates that something disturbed."""
        weight = without_decay(seen, f"{self.inputs.layer}.weight").flatten(2).double()
        places = without_decay(seen, self.places).double()
        slopes = torch.stack([as_rows(one, weight.shape[1]) for one in places])[:, self.rows]
        found = damped(slopes, weight, damping) if damping else least_squares(slopes, weight)
        return found.to(next(iter(seen.update.values())))


def least_squares(slopes: Tensor, weight: Tensor) -> Tensor:
    """What solves slopes' x = weight; short slopes count as much as long ones."""
    sizes = slopes.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(slopes.dtype).tiny)
    return torch.linalg.pinv((slopes / sizes).mT) @ weight / sizes


def damped(slopes: Tensor, weight: Tensor, damping: float) -> Tensor:
    """The same, held near zero where the slopes say little; `damping` in units of their mean square."""
    products = slopes @ slopes.mT
    size = products.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None].clamp_min(torch.finfo(slopes.dtype).tiny)
    ridge = damping * size * torch.eye(products.shape[-1]).to(products)
    return torch.linalg.solve(products + ridge, slopes @ weight)


def as_rows(places: Tensor, width: int) -> Tensor:
    """[place, width], whichever way a position embedding lies: tokens first, or channels before height and width."""
    if places.shape[-1] == width:
        return places.reshape(-1, width)
    whole = places.reshape(-1, *places.shape[-3:]) if places.dim() > 2 else places.unsqueeze(0)
    return whole.reshape(width, -1).T if width in whole.shape[:2] else places.new_zeros(0, width)


def find_embedding(seen: Observation) -> Embedding:
    """By the slopes of one random picture: those of a token are those of its place, wherever the model keeps them."""
    require_gradients(seen, "april")
    model = in_client_mode(seen.model, seen.training).requires_grad_()
    like, rng = next(model.parameters()), Seed().at("april").rng()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(SHAKEN * normal(parameter.shape, rng, parameter))
    parameters = {n: p for n, p in model.named_parameters() if n in seen.update and p.dim() > 1}
    with torch.enable_grad():
        outs = called_layers(model, uniform((1, *seen.shape), rng, like))
        value = random_value(outs.pop(""), rng)
        early = {n: out for n, out in list(outs.items())[:EARLY] if f"{n}.weight" in seen.update and out.requires_grad}
        slopes = torch.autograd.grad(value, [*early.values(), *parameters.values()], allow_unused=True)
    of_parameters = dict(zip(parameters, slopes[len(early) :], strict=True))
    for name, slope in zip(early, slopes, strict=False):
        layer = model.get_submodule(name)
        found = None if slope is None or not is_plain(layer) else find_places(layer, slope, of_parameters)
        inputs = LayerInput(model, name, seen.shape)
        if found is not None and inputs.is_affine():
            return Embedding(inputs, *found)
    raise NotApplicableError(
        "the model has no patch embedding whose tokens get a learned position each, choose another attack", key="april"
    )


def find_places(layer: nn.Module, slope: Tensor, parameters: Mapping[str, Tensor | None]) -> tuple[str, Tensor] | None:
    """The parameter that is added to the tokens and the row that each of them gets."""
    width = slope.shape[1] if isinstance(layer, nn.Conv2d) else slope.shape[-1]
    tokens = slope.flatten(2)[0].T if isinstance(layer, nn.Conv2d) else slope.reshape(-1, width)
    if not 1 < len(tokens) <= width:
        return None
    for name, places in parameters.items():
        if places is None or width not in places.shape or not len(rows := as_rows(places, width)) >= len(tokens):
            continue
        off, at = torch.cdist(tokens, rows, compute_mode="donot_use_mm_for_euclid_dist").min(1)
        if (off < SAME * tokens.norm(dim=1)).all() and len(at.unique()) == len(at):
            return name, at
    return None
