"""Before one pass for all clients is trusted, it is compared with clients of their own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import in_client_mode, loss_of, parameters_of
from gradveil.core.types import Batch
from gradveil.train.grouped_batchnorm import group_batchnorm
from gradveil.train.settings import Federation

CLIENTS = PICTURES = 2
TOLERANCE = 1e-6  # of the longest gradient, in float64


def fused_gradient_agrees(model: nn.Module, data: Batch, federation: Federation) -> bool:
    """Whether the gradient of two clients in one pass is the mean of theirs: not if a layer looks across the batch."""
    model = copy.deepcopy(model).double()
    images, labels = (_rows_for_all(x).double() for x in data)
    params = parameters_of(model)

    def gradient(of_model: nn.Module, rows: slice) -> dict[str, Tensor]:
        def loss(params: dict[str, Tensor]) -> Tensor:
            return loss_of(functional_call(of_model, params, (images[rows],)), labels[rows], federation.loss)

        leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
        found = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    alone = in_client_mode(model, federation.local_training(PICTURES, 0.0))
    first, second = (gradient(alone, slice(c * PICTURES, (c + 1) * PICTURES)) for c in range(CLIENTS))
    both = gradient(group_batchnorm(model, CLIENTS, federation.batchnorm), slice(None))
    off = max(float((both[n] - (first[n] + second[n]) / 2).abs().max()) for n in both)
    return off <= TOLERANCE * max(float(g.abs().max()) for g in both.values())


def _rows_for_all(x: Tensor) -> Tensor:
    """Rows for both clients, again from the first where there are too few."""
    return x[torch.arange(CLIENTS * PICTURES, device=x.device) % len(x)]
