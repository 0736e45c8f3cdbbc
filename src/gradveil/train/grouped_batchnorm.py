"""Batch normalization of many clients at once: pictures lie client after client, each client has its own statistics.

Sums are taken in float32 where pictures are bfloat16; torch casts inside its kernels, so nothing is written twice.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.core.client import BATCH_NORMS

Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def _statistics(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (biased) of every client and channel, [client, 1, channel, 1 ...]."""
    over = [d for d in range(grouped.dim()) if d not in (0, 2)]
    if grouped.dtype not in (torch.bfloat16, torch.float16):
        var, mean = torch.var_mean(grouped, over, correction=0, keepdim=True)
        return mean, var
    count = grouped.numel() // (grouped.shape[0] * grouped.shape[2])
    mean = grouped.sum(over, keepdim=True, dtype=torch.float32) / count
    length = torch.linalg.vector_norm(grouped, 2, over, keepdim=True, dtype=torch.float32)
    return mean, (length.square() / count - mean.square()).clamp_min(0)


class _PerClient(torch.autograd.Function):
    """Normalized pictures with the gradient written out, so that only the pictures themselves are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, clients: int, eps: float) -> tuple[Tensor, ...]:
        grouped = x.unflatten(0, (clients, -1))
        mean, var = _statistics(grouped)
        inverse = (var + eps).rsqrt()
        wide = (1, 1, -1, *[1] * (x.dim() - 2))
        scale = weight.view(wide) * inverse
        out = torch.empty_like(x)
        torch.addcmul(bias.view(wide) - mean * scale, grouped, scale, out=out.unflatten(0, (clients, -1)))
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        clients = mean.shape[0]
        grouped, g = (t.unflatten(0, (clients, -1)) for t in (x, gradients[0]))
        over = [d for d in range(grouped.dim()) if d not in (0, 2)]
        count = grouped.numel() // (clients * grouped.shape[2])
        total = g.sum(over, keepdim=True, dtype=mean.dtype)
        product = (g * grouped).sum(over, keepdim=True, dtype=mean.dtype)
        along = inverse * (product - mean * total)  # sum of gradient times normalized picture
        scale = weight.view(1, 1, -1, *[1] * (x.dim() - 2)) * inverse
        by_picture = -scale * inverse * along / count
        rest = -scale * total / count - by_picture * mean
        passed = torch.addcmul(rest, g, scale)
        out = torch.empty_like(x)
        torch.addcmul(passed, grouped, by_picture, out=out.unflatten(0, (clients, -1)))
        return out, along.sum(0).flatten(), total.sum(0).flatten(), None, None


class PerClientNorm(nn.Module):
    """In the place of a normalization layer, with its weights; moves its running statistics if they are shared."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, layer: Norm, clients: int, shared: bool) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.clients, self.eps, self.share, self.shared = clients, layer.eps, layer.momentum or 0.0, shared
        self.register_buffer("running_mean", layer.running_mean)
        self.register_buffer("running_var", layer.running_var)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # which would write a float32 copy for its sums
            out, mean, var = _PerClient.apply(x, self.weight, self.bias, self.clients, self.eps)  # type: ignore[misc]
        if self.shared:
            self.move(mean, var, x.numel() // (self.clients * x.shape[1]))
        return out

    @torch.no_grad()
    def move(self, mean: Tensor, var: Tensor, count: int) -> None:
        """The mean over clients of what each of them would send."""
        self.running_mean.lerp_(mean.mean(0).flatten().to(self.running_mean), self.share)
        self.running_var.lerp_((var.mean(0).flatten() * (count / (count - 1))).to(self.running_var), self.share)


def group_batchnorm(model: nn.Module, clients: int, batchnorm: str) -> nn.Module:
    """A copy of the model that takes the pictures of so many clients, one client after the other."""
    model = copy.deepcopy(model).eval()
    if batchnorm == "eval":
        return model
    for name, layer in list(model.named_modules()):
        if isinstance(layer, BATCH_NORMS):
            model.set_submodule(name, PerClientNorm(layer, clients, batchnorm == "batch-shared"))
    return model


def can_group(model: nn.Module) -> bool:
    """Whether every normalization layer has weights, statistics and a constant momentum."""
    layers = [layer for layer in model.modules() if isinstance(layer, BATCH_NORMS)]
    return all(x.affine and x.running_mean is not None and x.momentum is not None for x in layers)
