"""R-GAP: one picture, layer by layer from the head to the front (Zhu and Blaschko, ICLR 2021).

The head's dW = d x' and db = d give its input x. An activation that can be inverted gives what went into it and the
slope there. Of each layer below, two sets of equations are then linear in its input: what the layer makes of it, and
its weights' gradient. Least squares in float64 solves them together, and so on to the picture.
Differs: the head's slope is read off its bias instead of being solved for from the loss; the two sets weigh alike, but
an equation through a flat part of an activation, which magnifies rounding, less; what stands before the first layer may
be anything affine; and the picture is verified by a replay of the update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.attacks.closed.chain import Chain, Layer, chain_of
from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.closed.layer_equations import solve_layer
from gradveil.attacks.closed.layer_input import LayerInput
from gradveil.attacks.closed.replay import BLANK, find_nothing, is_alone, verify_labels, without_decay
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.engine.labels import gain

PAPER = Paper("R-GAP: Recursive Gradient Attack on Privacy", "Zhu and Blaschko", 2021, "arXiv:2010.07733")
ALONE = "r-gap reads a picture that is alone in its update and took one local step"
CONTRADICTION = 0.1  # of the length of what the equations of the first layer say
DEEPER = 0.02  # the same for the layers behind it: errors grow on the way to the front
ROUGH = 1e-2  # of an update that the picture may leave unexplained: small errors of the last layers grow on the way


def r_gap() -> RGap:
    """Reads one picture off a chain of layers with invertible activations in closed form: 78 dB and more on `lenet`."""
    return RGap()


@dataclass(frozen=True, kw_only=True)
class RGap(Attack):
    """Least squares for each layer."""

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        if not is_alone(seen) or seen.training.steps > 1:
            raise NotApplicableError(ALONE, key="r-gap")
        find_chain(seen)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is what a replay of the pictures leaves unexplained."""
        seen = seen.average_rounds()
        chain, inputs = find_chain(seen)
        if not is_alone(seen) or seen.training.steps > 1:
            return find_nothing(seen, ALONE)
        gradients = {name: without_decay(seen, name).double() / gain(seen.training) for name in chain.names}
        pictures = [
            walk_back(chain, inputs, {name: g[client] for name, g in gradients.items()})
            for client in range(len(seen.names))
        ]
        return verify_labels(seen, torch.stack(pictures).unsqueeze(1), ROUGH)


def find_chain(seen: Observation) -> tuple[Chain, LayerInput]:
    require_gradients(seen, "r-gap", exact=True)
    model = in_client_mode(seen.model, seen.training).requires_grad_(False)
    chain = chain_of(model, seen.shape, "r-gap")
    if missing := [name for name in chain.names if name not in seen.update]:
        raise NotApplicableError(f"the update does not hold {missing[0]!r}, choose another attack", key="r-gap")
    inputs = LayerInput(model, chain.layers[0].name, seen.shape)
    if not inputs.is_affine():
        raise NotApplicableError("the first layer does not see the picture itself, choose another attack", key="r-gap")
    return chain, inputs


def walk_back(chain: Chain, inputs: LayerInput, gradient: dict[str, Tensor]) -> Tensor:
    """One client's picture, mid-gray where the equations have no solution."""
    *rest, head = chain.layers
    slope, out, trust = gradient[f"{head.name}.bias"], None, None
    for layer in (head, *reversed(rest)):
        slope = slope.view(layer.made)
        if out is not None:
            out, trust = layer.undo_activation(out.view(layer.made))
            slope = slope * trust
        most = CONTRADICTION if layer is chain.layers[0] else DEEPER
        x = solve(layer, gradient[f"{layer.name}.weight"], slope, out, trust, most)
        if not x.isfinite().all():
            return torch.full(inputs.shape, BLANK, device=x.device)
        slope, out = layer.pull(slope), x
    like = next(inputs.model.parameters())
    return inputs.invert_whole(x.view(1, *chain.layers[0].shape).to(like))[0]


def solve(
    layer: Layer, gradient: Tensor, slope: Tensor, out: Tensor | None, trust: Tensor | None, most: float
) -> Tensor:
    """What went into a layer, by its weights' gradient and, where that is known, by what came out of it.

    No number where the equations contradict each other, as they do in an update that a defense has changed.
    """
    if layer.is_linear:
        flat = slope.flatten()
        return flat @ gradient / (flat @ flat)
    if out is None or trust is None:
        return torch.full(layer.shape, torch.nan, dtype=slope.dtype, device=slope.device)
    solution, left = solve_layer(layer, gradient, slope, out, trust)
    return solution if left <= most else torch.full_like(solution, torch.nan)
