"""How public implementations do it: one victim at a time, a gradient of a gradient by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradveil.core.client import in_client_mode, loss_of
from gradveil.core.observation import Observation
from gradveil.engine.priors.prior import TotalVariation


def peer_step(seen: Observation, client: int, tv: float) -> Callable[[], None]:
    """One optimizer step of Inverting Gradients on one victim, as a closure to be timed.

    The last gradient is taken by the pixels alone; a plain `backward()`, which others call, would cost more.
    """
    assert seen.labels is not None
    model = in_client_mode(seen.model, seen.training).requires_grad_(True)
    parameters = dict(model.named_parameters())
    target = [seen.update[name][client] for name in parameters]
    labels = seen.labels[client]
    pixels = torch.randn(seen.examples, *seen.shape, dtype=labels.dtype, device=labels.device).requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=0.1)

    def step() -> None:
        loss = loss_of(model(pixels), labels, seen.training.loss)
        gradient = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        total = _cosine(gradient, target) + tv * TotalVariation().of(pixels[None]).sum()
        (pixels.grad,) = torch.autograd.grad(total, pixels)
        pixels.grad.sign_()
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(-2, 2)

    return step


def _cosine(gradient: tuple[Tensor, ...], target: list[Tensor]) -> Tensor:
    cross = sum(((g * t).sum() for g, t in zip(gradient, target, strict=True)), target[0].new_zeros(()))
    own = sum((g.square().sum() for g in gradient), target[0].new_zeros(()))
    seen = sum((t.square().sum() for t in target), target[0].new_zeros(()))
    return 1 - cross / (own.sqrt() * seen.sqrt())
