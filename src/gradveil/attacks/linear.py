"""The picture behind a linear layer, in closed form (Phong et al., 2018; Geiping et al., 2020, proposition 3.1).

A linear layer's gradients are dW = sum_k d_k x_k' and db = sum_k d_k, so a row that only one picture has reached is
that picture times its entry of db. One picture: exact. Batches: one candidate per row; those that are no picture fall
away, and those that several rows agree on come first, since mixtures differ from row to row. Differs: one picture is
the least-squares fit over all rows instead of a single row, the same without noise and the better guess with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.closed.replay import labels_or_even
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed, uniform
from gradveil.engine.distance import names_to_match
from gradveil.models.normalize import constants_of

PAPER = Paper(
    "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption",
    "Phong et al.",
    2018,
    "doi:10.1109/TIFS.2017.2787987",
)
HERE = Compute()  # a closed form needs nothing of it: the result follows the update's device and dtype
Candidates = Float[Tensor, "client row pixel"]


def linear(
    *, box: float = 0.02, same: float = 1e-3, only: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> FirstLinear:
    """Reads a picture off the gradient of a first linear layer in closed form; exact for one picture.

    `box`: how far outside [0, 1] a candidate may lie; `same`: the RMS difference below which two are one picture;
    `only`, `without`: which parameters of the update may be read at all.
    """
    return FirstLinear(box=box, same=same, only=only, without=without)


@dataclass(frozen=True, kw_only=True)
class FirstLinear(Attack):
    """Reads the first linear layer, where it sees the pictures themselves."""

    box: float = 0.02
    same: float = 1e-3
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.box < 0 or self.same <= 0:
            raise ConfigError(f"{self} is out of range, take box >= 0 and same > 0", key="linear")

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        self._gradients_of(seen, first_linear(seen, Seed()))

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = HERE) -> Reconstruction:
        """`loss` is the share of dW that the pictures found do not explain."""
        seen = seen.average_rounds()
        weight, bias = self._gradients_of(seen, first_linear(seen, seed))
        if seen.as_fed().examples == 1:
            inputs, found = _fit(weight, bias)
        else:
            inputs, found = self._choose(seen, weight, bias)
        blank = torch.full_like(inputs, 0.5)  # mid-gray where nothing was read
        pixels = torch.where(found.unsqueeze(-1), _pixels(seen, inputs).clamp(0, 1), blank)
        return Reconstruction(
            images=pixels.unflatten(-1, seen.shape),
            labels=labels_or_even(seen),
            found=found,
            loss=_residue(weight, inputs).masked_fill(~bias.isfinite().all(-1), torch.nan),
            notes=_notes(seen),
        )

    def _gradients_of(self, seen: Observation, name: str) -> tuple[Tensor, Tensor]:
        readable = names_to_match(list(seen.update), self.only, self.without)
        if not {f"{name}.weight", f"{name}.bias"} <= set(readable):
            why = " that only and without let it read" if self.only or self.without else ""
            raise NotApplicableError(
                f"the update holds no weight and bias of layer {name!r}{why}, choose another attack", key="linear"
            )
        return seen.update[f"{name}.weight"], seen.update[f"{name}.bias"]

    def _choose(self, seen: Observation, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The best candidates of every client, [client, example, pixel]; zero where there are too few."""
        rows = weight / bias.unsqueeze(-1)
        shown = _pixels(seen, rows)
        inside = ((shown >= -self.box) & (shown <= 1 + self.box)).all(-1)  # NaN and infinity are outside
        shown = torch.where(inside.unsqueeze(-1), shown, 0.0)
        agreeing = torch.stack([_agreeing(s, i, self.same) for s, i in zip(shown, inside, strict=True)])
        strength = bias.abs() / bias.abs().amax(-1, keepdim=True)
        score = (agreeing + 0.5 * strength).masked_fill(~inside, 0.0)
        return _greedy(rows, shown, score, seen.examples, self.same)


def _agreeing(shown: Tensor, inside: Tensor, same: float) -> Tensor:
    """How many plausible rows of one client show the same picture as each row."""
    near = torch.cdist(shown, shown) <= same * shown.shape[-1] ** 0.5
    return (near & inside).sum(-1)


def _greedy(rows: Candidates, shown: Candidates, score: Tensor, examples: int, same: float) -> tuple[Tensor, Tensor]:
    """The highest score, then the highest that shows another picture, and so on."""
    chosen, found = [], []
    for _ in range(examples):
        at = score.argmax(-1, keepdim=True)
        plausible = score.gather(-1, at) > 0
        picked = _row(rows, at)
        chosen.append(torch.where(plausible.unsqueeze(-1), picked, 0.0))
        found.append(plausible)
        difference = (shown - _row(shown, at)).square().mean(-1).sqrt()
        score = score.masked_fill(difference <= same, 0.0).scatter(-1, at, 0.0)
    return torch.cat(chosen, 1), torch.cat(found, 1)


def _row(rows: Candidates, at: Tensor) -> Tensor:
    return rows.gather(1, at.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


def _fit(weight: Tensor, bias: Tensor) -> tuple[Tensor, Bool[Tensor, "client 1"]]:
    """The one input that comes nearest to dW = db x'."""
    share = (bias / bias.abs().amax(-1, keepdim=True)).unsqueeze(1)  # first, or squares of small numbers underflow
    inputs = share @ weight / (share @ bias.unsqueeze(-1))
    found = inputs.isfinite().all(-1)
    return torch.where(found.unsqueeze(-1), inputs, 0.0), found


def _residue(weight: Tensor, inputs: Tensor) -> Float[Tensor, " client"]:
    """What is left of dW outside the span of the inputs, relative; NaN where the update itself is not finite."""
    sane = weight.nan_to_num(0.0, 0.0, 0.0)  # the decomposition inside pinv raises on NaN
    rest = sane - sane @ torch.linalg.pinv(inputs) @ inputs
    whole = sane.flatten(1).norm(dim=-1)
    share = torch.where(whole > 0, rest.flatten(1).norm(dim=-1) / whole, 1.0)
    return share.masked_fill(~weight.isfinite().flatten(1).all(-1), torch.nan)


def first_linear(seen: Observation, seed: Seed) -> str:
    """The name of the first linear layer to run, if a probe shows that its input is the pictures, normalized."""
    require_gradients(seen, "linear")
    model = in_client_mode(seen.model, seen.training)
    like = next(model.parameters())
    pictures = uniform((2, *seen.shape), seed.at("probe").rng(), like)
    first = _first_call(model, pictures)
    if first is None:
        raise NotApplicableError("the model has no linear layer, choose another attack", key="linear")
    expected = _normalize(seen, pictures).flatten(1)
    if first.input.shape != expected.shape or not torch.allclose(first.input, expected, atol=1e-4):
        raise NotApplicableError(
            f"the first linear layer, {first.name!r}, sees features and not the pictures, choose another attack",
            key="linear",
        )
    return first.name


class Call(NamedTuple):
    name: str
    input: Tensor


def _recorder(name: str, calls: list[Call]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    return lambda _layer, inputs: calls.append(Call(name, inputs[0]))


def _first_call(model: nn.Module, pictures: Tensor) -> Call | None:
    calls: list[Call] = []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(_recorder(name, calls))
    with torch.no_grad():
        model(pictures)
    return calls[0] if calls else None


def _normalize(seen: Observation, pictures: Tensor) -> Tensor:
    mean, std = (c.to(pictures).view(-1, 1, 1) for c in constants_of(seen.model, seen.shape[0]))
    return (pictures - mean) / std


def _pixels(seen: Observation, inputs: Tensor) -> Tensor:
    """From the layer's input back to flat pictures in [0, 1]."""
    mean, std = (c.to(inputs).view(-1, 1, 1) for c in constants_of(seen.model, seen.shape[0]))
    return (inputs.unflatten(-1, seen.shape) * std + mean).flatten(-3)


def _notes(seen: Observation) -> tuple[str, ...]:
    if seen.training.weight_decay:
        return ("linear: weight decay is in the update, so the ratio of weight to bias holds approximately",)
    if seen.training.steps > 1 and seen.examples > 1:
        return ("linear: several local steps, so which rows a picture reaches changes and fewer are read exactly",)
    return ()
