"""The gradient of a linear layer as a product of two factors with as many columns as there are pictures."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.closed.layer_input import LayerInput, called_layers, random_value
from gradveil.core.client import in_client_mode
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, uniform

ZERO = 1e-4  # of the largest number of a column, below which a number is zero
MORE = 4  # zeros beyond those that were asked for: chance makes none
SAME = 1e-3  # sine of the angle below which two columns are one
SLEEPS = 0.05  # share of a layer's slopes that are exactly zero, where ReLU follows it
FAINT = 1e-6  # of the largest singular value, below which there is no further picture
GAP = 1e-2  # of the last picture's singular value, below which the next one must be


@dataclass(frozen=True, eq=False)
class Mixed:
    """dW = left right, of which the columns of `left` and the rows of `right` are mixtures over the pictures."""

    left: Tensor
    right: Tensor
    bias: Tensor

    def awake(self) -> Tensor:
        """Which units say anything."""
        lengths = self.left.norm(dim=1)
        return lengths > ZERO * lengths.max()

    def directions(self) -> Tensor:
        """Their rows of `left`, each of length one."""
        rows = self.left[self.awake()]
        return rows / rows.norm(dim=1, keepdim=True)

    def unmix(self, columns: list[Tensor]) -> tuple[Tensor, Tensor]:
        """What came into the layer for each picture, and the slopes of what went out, [unit, picture]."""
        mixing = torch.stack(columns, 1)
        slopes = self.left @ mixing
        scale = torch.linalg.lstsq(slopes, self.bias.unsqueeze(1), driver="gels").solution.T
        return torch.linalg.solve_ex(mixing * scale, self.right)[0], slopes * scale


def has_rank(sizes: Tensor, count: int) -> bool:
    """Whether the update is one of so many pictures: a defense that adds to it leaves more directions."""
    if len(sizes) < count or not sizes[count - 1] > FAINT * sizes[0]:
        return False
    return len(sizes) == count or bool(sizes[count] < GAP * sizes[count - 1])


def find_linear(seen: Observation, name: str, sleeping: bool) -> LayerInput:
    """The first linear layer with a bias that sees each picture through an affine map, and once.

    `sleeping`: units must sleep through some pictures, as those before a ReLU do.
    """
    require_gradients(seen, name)
    model = in_client_mode(seen.model, seen.training).requires_grad_()
    like, rng = next(model.parameters()), Seed().at(name).rng()
    with torch.enable_grad():
        outs = called_layers(model, uniform((4, *seen.shape), rng, like))
        value = random_value(outs.pop(""), rng)
        for layer, out in outs.items():
            inputs = LayerInput(model, layer, seen.shape)
            sent = {f"{layer}.weight", f"{layer}.bias"} <= set(seen.update)
            if not (sent and isinstance(model.get_submodule(layer), torch.nn.Linear) and out.dim() == 2):
                continue
            (slope,) = torch.autograd.grad(value, out, retain_graph=True)
            if (not sleeping or (slope == 0).double().mean() >= SLEEPS) and inputs.is_affine():
                return inputs
    follows = " and that ReLU follows" if sleeping else ""
    raise NotApplicableError(
        f"the model has no linear layer that sees the picture itself{follows}, choose another attack", key=name
    )
