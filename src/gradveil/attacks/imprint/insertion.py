"""Where an imprint stands in a model, and what it sees there: the pictures, or the pictures scaled and shifted."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.imprint.identity_path import open_path
from gradveil.attacks.imprint.module import Imprint, Rows
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch
from gradveil.models.normalize import constants_of

MIDDLE, SPREAD = 0.5, 0.25  # of pixels, where the model does not say how it normalizes them


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place where z = (x - mean) / std of the picture x arrives, per channel."""

    at: str  # the layer that comes next; empty: in front of everything
    shape: tuple[int, int, int]
    mean: Float[Tensor, "channel 1 1"]
    std: Float[Tensor, "channel 1 1"]
    beside: int = 0  # numbers of further channels, which arrive behind those of the picture

    def arrives_as(self, pictures: Tensor) -> Float[Tensor, "picture pixel"]:
        return ((pictures - self.mean) / self.std).flatten(1)

    def pictures(self, read: Tensor) -> Tensor:
        return read[..., : prod(self.shape)].unflatten(-1, self.shape) * self.std + self.mean

    def over(self, rows: Rows) -> Rows:
        """The same for all that arrives: units look at the picture alone."""
        return Rows(weight=F.pad(rows.weight, (0, self.beside)), bias=rows.bias) if self.beside else rows


def site(model: nn.Module, shape: tuple[int, int, int], at: str, who: str, seed: Seed) -> tuple[nn.Module, Place]:
    """The place in front of the layer `at`, in a model that hands the picture on to there if it did not before."""
    try:
        return model, place_in(model, shape, at, who, seed)
    except FeaturesError:
        like = next(iter(model.parameters()))
        opened = open_path(model, at, uniform((1, *shape), seed.at("way").rng(), like))
        return opened, place_in(opened, shape, at, who, seed)


class FeaturesError(NotApplicableError):
    """What arrives is not the picture."""


def place_in(model: nn.Module, shape: tuple[int, int, int], at: str, who: str, seed: Seed) -> Place:
    """The place in front of the layer `at`, if what arrives there is still the picture."""
    like = next(iter(model.parameters()), torch.zeros(()))
    zero = torch.zeros(shape[0], 1, 1).to(like)
    front = Place(at=at, shape=shape, mean=zero, std=zero + 1)
    if not at:
        return front
    mean, std = (constant.to(like).view(-1, 1, 1) for constant in constants_of(model, shape[0]))
    pictures = uniform((2, *shape), seed.at("probe").rng(), like)
    arrived = _arriving(model, at, pictures, who)
    for place in (front, replace(front, mean=mean, std=std), _handed_on(arrived, pictures, front)):
        if place is not None and _agrees(arrived, place, pictures):
            return place
    raise FeaturesError(
        f"{who}: layer {at!r} sees features and not the pictures ({_size(arrived)} of {_size(pictures)}), "
        "choose an earlier layer or leave `at` out"
    )


def _agrees(arrived: Tensor, place: Place, pictures: Tensor) -> bool:
    """The first channels are the picture's, and nothing that the place does not know of lies beside them."""
    if arrived.shape[2:] != pictures.shape[2:] or arrived[0].numel() != prod(place.shape) + place.beside:
        return False
    expected = place.arrives_as(pictures).view_as(pictures)
    return torch.allclose(arrived[:, : place.shape[0]], expected, atol=1e-4 * float(expected.abs().max().clamp_min(1)))


def _handed_on(arrived: Tensor, pictures: Tensor, front: Place) -> Place | None:
    """Scale and shift of every channel, if the first channels are the picture's."""
    channels = pictures.shape[1]
    if arrived.dim() != 4 or arrived.shape[2:] != pictures.shape[2:] or arrived.shape[1] < channels:
        return None
    x, y = (z[:, :channels].transpose(0, 1).flatten(1).double() for z in (pictures, arrived))
    dx, dy = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    scale = (dx * dy).sum(1) / dx.square().sum(1)
    if not (scale > 0).all():
        return None
    std, shift = 1 / scale, y.mean(1) - scale * x.mean(1)
    mean, std = ((c.to(pictures)).view(-1, 1, 1) for c in (-shift * std, std))
    return replace(front, mean=mean, std=std, beside=arrived[0, channels:].numel())


def _size(x: Tensor) -> str:
    return " x ".join(map(str, x.shape[1:]))


def shape_of(public: Batch | None, who: str) -> tuple[int, int, int]:
    """Of the pictures, which an empty batch tells too."""
    if public is None:
        raise NotApplicableError("the size of the pictures is not known, give an empty batch of them at least", key=who)
    channels, height, width = public.images.shape[-3:]
    return channels, height, width


def _arriving(model: nn.Module, at: str, pictures: Tensor, who: str) -> Tensor:
    """The input of the layer `at`."""
    model, calls = copy.deepcopy(model).eval(), []
    layers = dict(model.named_modules())
    if at not in layers:
        raise NotApplicableError(f"the model has no layer {at!r}, {_others(at, list(layers)[1:])}", key=who)
    layers[at].register_forward_pre_hook(lambda _layer, inputs: calls.append(inputs[0]))
    with torch.no_grad():
        model(pictures)
    if not calls:
        raise NotApplicableError(f"layer {at!r} is never run, choose another", key=who)
    return calls[0]


def _others(at: str, layers: list[str]) -> str:
    near = get_close_matches(at, layers, n=1)
    first = f"the first are {', '.join(layers[:5])}"
    return f"did you mean {near[0]!r}? T{first[1:]}" if near else first


def insert(model: nn.Module, imprint: Imprint, place: Place) -> nn.Module:
    """The model with the imprint in that place; the model given stays as it is."""
    if not place.at:
        return nn.Sequential(OrderedDict(imprint=imprint, model=model))
    model = copy.deepcopy(model)
    parent, _, name = place.at.rpartition(".")
    after = model.get_submodule(place.at)
    setattr(model.get_submodule(parent), name, nn.Sequential(OrderedDict(imprint=imprint, layer=after)))
    return model


def standard_of(model: nn.Module, shape: tuple[int, int, int], like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of pixels as the model has them, or a guess, [channel, 1, 1]."""
    mean, std = (constant.to(like).view(-1, 1, 1) for constant in constants_of(model, shape[0]))
    if mean.eq(0).all() and std.eq(1).all():
        return torch.full_like(mean, MIDDLE), torch.full_like(std, SPREAD)
    return mean, std


def imprint_in(seen: Observation, who: str) -> tuple[str, Imprint]:
    """The planted module and its name."""
    require_gradients(seen, who)
    for name, layer in seen.model.named_modules():
        if isinstance(layer, Imprint):
            return name, layer
    raise NotApplicableError("the model that was sent holds no imprint, so there is nothing to read", key=who)


def place_of(seen: Observation, at: str, who: str) -> Place:
    """Where the imprint that was sent stands, found again by what arrives there."""
    name, _ = imprint_in(seen, who)
    return place_in(seen.model, seen.shape, name if at else "", who, Seed())
