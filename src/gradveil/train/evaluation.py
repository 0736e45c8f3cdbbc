"""How good a model is: the share of validation pictures that it gets right."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import in_client_mode
from gradveil.core.scenario import Loss
from gradveil.core.types import Batch
from gradveil.train.client import as_buffers
from gradveil.train.gossip import at, mean_of
from gradveil.train.settings import Federation
from gradveil.train.state import State, Table

AT_ONCE = 500  # pictures of a batch


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Classifies the validation pictures; clients that keep their statistics are judged by those of the batch."""

    model: nn.Module
    validation: Batch
    federation: Federation
    bf16: bool = False

    def accuracy(self, state: State) -> tuple[float, float | None]:
        """Of the shared model; in gossip of the mean of all nodes, and of the worst node."""
        params, running = shared_of(state, self.federation)
        whole = self.right(params, running)
        if self.federation.topology != "gossip":
            return whole, None
        nodes = range(self.federation.clients)
        return whole, min(self.right(at(state.params, i), at(state.running, i)) for i in nodes)

    @torch.no_grad()
    def right(self, params: Table, running: Table) -> float:
        if self.federation.batchnorm == "batch":
            model, weights = in_client_mode(self.model, self.federation.local_training(1, 0.0)), params
        else:
            model, weights = self.model, params | as_buffers(running)
        total = torch.zeros((), device=self.validation.images.device)
        with torch.autocast(total.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            for images, labels in zip(*(x.split(AT_ONCE) for x in self.validation), strict=True):
                total += share_right(functional_call(model, dict(weights), (images,)), labels, self.federation.loss)
        return total.item() / len(self.validation.images)


def share_right(logits: Tensor, labels: Tensor, kind: Loss) -> Tensor:
    """Summed over pictures: 1 for the right class; with several labels per picture, the share of right ones."""
    if kind == "binary-cross-entropy":
        return ((logits > 0) == (labels > 0.5)).float().mean(1).sum()
    return (logits.argmax(1) == labels.argmax(1)).float().sum()


def shared_of(state: State, federation: Federation) -> tuple[Table, Table]:
    """Weights and running statistics of the model that the federation would hand out."""
    if federation.topology == "gossip":
        return mean_of(state.params), mean_of(state.running)
    return state.params, state.running


def model_at(model: nn.Module, state: State, federation: Federation) -> nn.Module:
    """A copy on the CPU with the weights of a state."""
    params, running = shared_of(state, federation)
    fresh: Mapping[str, Tensor] = params | as_buffers(running)
    model = copy.deepcopy(model).cpu().eval()
    model.load_state_dict({**model.state_dict(), **{name: x.cpu() for name, x in fresh.items()}})
    return model
