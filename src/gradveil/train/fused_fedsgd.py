"""FedSGD of all clients in one pass: the mean of the clients' gradients is the gradient of the mean of their losses.

For defenses that act on pictures alone. Nothing in a block of rounds waits for the device: losses, and whether all
numbers were finite, are read when the block is over. A block in which they were not is played again client by
client, which finds out whose they were.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import in_client_mode, loss_of, parameters_of
from gradveil.core.cuda_graph import Step, capture_step
from gradveil.core.types import Batch
from gradveil.train.batches import RoundBatches
from gradveil.train.client import as_buffers, running_of
from gradveil.train.clients import Clients
from gradveil.train.grouped_batchnorm import can_group, group_batchnorm
from gradveil.train.server_rounds import ServerRounds, Sgd
from gradveil.train.settings import Federation
from gradveil.train.state import Outcome, State

ON_A_GPU = 2**28  # numbers of a block's pictures on a GPU: 1 GiB
ON_A_CPU = 2**24
TRIED = 2  # clients, and pictures of each, on which one pass is compared with clients of their own
AGREEMENT = 1e-6  # of the longest gradient, in float64


@dataclass(kw_only=True)
class FusedFedSgd:
    """The engine. `sent` is the model as it is evaluated, with its normalization layers."""

    clients: Clients
    sent: nn.Module
    bf16: bool = False
    graphs: bool = True
    notes: list[str] = field(default_factory=list)
    _step: Step | None = None
    _ahead: tuple[tuple[int, int], Batch] | None = None  # pictures of the next block, and its first round and length

    def __post_init__(self) -> None:
        settings = self.clients.federation
        self.model = group_batchnorm(self.sent, settings.per_round or settings.clients, settings.batchnorm)
        self.model.to(memory_format=self.layout)  # type: ignore[call-overload]
        self.feed, self.sgd = RoundBatches(self.clients), Sgd.of(settings)
        self.weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.velocity = {name: torch.zeros_like(p) for name, p in self.weights.items()} if settings.momentum else {}
        self.rate = torch.zeros(
            (), dtype=next(iter(self.weights.values())).dtype, device=self.clients.data.images.device
        )

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.bf16 else torch.contiguous_format

    def most(self) -> int:
        """Rounds of a block: as many as the memory for pictures allows."""
        settings, images = self.clients.federation, self.clients.data.images
        copies = self.clients.defense.copies
        each = (settings.per_round or settings.clients) * settings.batch_size * copies * images[0].numel()
        return max(1, (ON_A_GPU if images.is_cuda else ON_A_CPU) // each)

    def block(self, state: State, rounds: int) -> tuple[State, list[Outcome]]:
        self.load(state)
        results = self.advance(self.pictures(state.round + 1, rounds), state.round)
        self.look_ahead(state.round + rounds + 1, rounds)
        if not bool(results.isfinite().all()):
            self.notes.append(f"rounds {state.round + 1} to {state.round + rounds} were played client by client")
            return ServerRounds(self.clients).block(state, rounds)
        losses = results[:, 0].tolist()
        outcomes = [Outcome(round=state.round + 1 + n, loss=loss) for n, loss in enumerate(losses)]
        return self.state_after(state.round + rounds), outcomes

    def pictures(self, first: int, rounds: int) -> Batch:
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead and ahead[0] == (first, rounds) else self.feed.rounds(first, rounds)

    def look_ahead(self, first: int, rounds: int) -> None:
        """While a GPU works, the CPU draws for the next block, which is likely to be as long."""
        rounds = min(rounds, self.clients.federation.rounds - first + 1)
        if self.clients.data.images.is_cuda and rounds > 0:
            self._ahead = (first, rounds), self.feed.rounds(first, rounds)

    @torch.no_grad()
    def load(self, state: State) -> None:
        """Weights and all go into tensors that stay where they are, as a graph needs them."""
        for name, p in self.weights.items():
            p.copy_(state.params[name])
        for name, v in self.velocity.items():
            v.copy_(state.velocity[name])
        buffers = dict(self.model.named_buffers())
        for name, x in as_buffers(state.running).items():
            buffers[name].copy_(x)

    def state_after(self, round: int) -> State:
        tables = (self.weights, self._running(), self.velocity)
        params, running, velocity = ({name: x.detach().clone() for name, x in t.items()} for t in tables)
        return State(round=round, params=params, running=running, velocity=velocity)

    def _running(self) -> dict[str, Tensor]:
        if self.clients.federation.batchnorm != "batch-shared":
            return {}
        return running_of(self.model)

    def advance(self, fed: Batch, before: int) -> Tensor:
        """The steps of a block, [round, 2]: the loss, and a number that is finite if all were."""
        settings = self.clients.federation
        results = fed.images.new_zeros(len(fed.images), 2)
        if self._step is None:
            self.images = torch.empty_like(fed.images[0], memory_format=self.layout)
            self.labels = torch.empty_like(fed.labels[0])
            self._fill(fed, 0)
            self._step = self._compiled_step()
        for n in range(len(fed.images)):
            self._fill(fed, n)
            self.rate.fill_(settings.rate_at(settings.progress(before + n + 1)))
            results[n].copy_(self._step())
        return results

    def _fill(self, fed: Batch, n: int) -> None:
        self.images.copy_(fed.images[n])
        self.labels.copy_(fed.labels[n])

    def _compiled_step(self) -> Step:
        if not (self.graphs and self.images.is_cuda):
            return self.step
        changed = [*(p.detach() for p in self.weights.values()), *self.velocity.values(), *self._running().values()]
        try:
            return capture_step(self.step, changed)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            self.notes.append(f"steps run one kernel at a time, since they could not be captured: {reason}")
            return self.step

    def step(self) -> Tensor:
        """One round: pass, gradient, the server's step. Returns the loss and a number that tells if all is finite."""
        params: list[Tensor] = list(self.weights.values())
        with self._autocast():
            logits = self.model(self.images)
        loss = loss_of(logits.to(self.labels.dtype), self.labels, self.clients.federation.loss)
        gradient = torch.autograd.grad(loss, params)
        self.sgd.step(params, gradient, list(self.velocity.values()), self.rate)
        with torch.no_grad():
            seen = [*gradient, *self._running().values(), *params]
            return torch.stack([loss.detach(), torch.stack(list(torch._foreach_norm(seen))).sum()]).to(
                self.labels.dtype
            )

    def _autocast(self) -> AbstractContextManager:
        if not self.bf16:
            return nullcontext()
        return torch.autocast(self.images.device.type, torch.bfloat16, cache_enabled=False)


def can_fuse(clients: Clients, sent: nn.Module) -> bool:
    """Whether one pass does for all: see the module's first lines."""
    settings, defense = clients.federation, clients.defense
    sizes = {min(settings.batch_size, clients.count(i)) for i in range(settings.clients)}
    plain = settings.method == "fedsgd" and settings.topology == "central" and not settings.error_feedback
    pictures_only = not (defense.acts_at("gradient") or defense.acts_at("update"))
    return plain and pictures_only and len(sizes) == 1 and can_group(sent)


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

    alone = in_client_mode(model, federation.local_training(TRIED, 0.0))
    first, second = (gradient(alone, slice(c * TRIED, (c + 1) * TRIED)) for c in range(TRIED))
    both = gradient(group_batchnorm(model, TRIED, federation.batchnorm), slice(None))
    off = max(float((both[n] - (first[n] + second[n]) / 2).abs().max()) for n in both)
    return off <= AGREEMENT * max(float(g.abs().max()) for g in both.values())


def _rows_for_all(x: Tensor) -> Tensor:
    """Rows for both clients, again from the first where there are too few."""
    return x[torch.arange(TRIED * TRIED, device=x.device) % len(x)]
