"""Inner products of the gradients of single pictures, by parameter tensor: three back ends with one meaning.

Each takes `fed` [image, 1 + point, ...], the target first, and gives `cross` and `own` [image, 1 + point, tensor].
`loop` takes one picture at a time and is the reference; `vmap` forms all gradients at once; `sweep` walks the layers
once forward and once backward and forms a gradient only where that is cheaper than products of rows with rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.engine.sweep.fx_program import CannotSweep, Program, program_of
from gradveil.engine.sweep.match import loss_slopes
from gradveil.engine.sweep.matrix import ghost_is_cheaper
from gradveil.engine.sweep.weighted_layers import MatrixLayer, Weighted


class Inner(NamedTuple):
    """<gradient, target's gradient> and <gradient, gradient>."""

    cross: Tensor
    own: Tensor


@dataclass(frozen=True)
class OnePicture:
    """What a client sends that trains on one picture alone."""

    model: nn.Module
    training: LocalTraining
    params: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module, training: LocalTraining, compute: Compute) -> OnePicture:
        model = in_client_mode(model, training).to(compute.device, compute.dtype)
        params = parameters_of(model)
        return cls(model.requires_grad_(False), training, params)

    def __call__(self, picture: Tensor, label: Tensor) -> Mapping[str, Tensor]:
        data = Batch(picture[None], label[None])
        return local_update(self.model, self.params, data, self.training, Defense(), Seed().rng())


@dataclass(frozen=True)
class Loop:
    one: OnePicture

    def __call__(self, fed: Tensor, labels: Tensor) -> Inner:
        each = [self.of_image(pictures, label) for pictures, label in zip(fed, labels, strict=True)]
        return Inner(*(torch.stack(found) for found in zip(*each, strict=True)))

    def of_image(self, pictures: Tensor, label: Tensor) -> Inner:
        target = self.one(pictures[0], label)
        found = [between(target, target)] + [between(self.one(p, label), target) for p in pictures[1:]]
        return Inner(*(torch.stack(rows) for rows in zip(*found, strict=True)))


def between(gradient: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> Inner:
    cross = torch.stack([(g * target[name]).sum() for name, g in gradient.items()])
    return Inner(cross, torch.stack([g.square().sum() for g in gradient.values()]))


@dataclass(frozen=True)
class Vmap:
    one: OnePicture

    def __call__(self, fed: Tensor, labels: Tensor) -> Inner:
        images, pictures = fed.shape[:2]
        each = torch.func.vmap(self.one, randomness="different")
        gradients = each(fed.flatten(0, 1), labels.repeat_interleave(pictures, 0))
        found = [of_formed(g.detach(), images) for g in gradients.values()]
        return Inner(*(torch.stack(rows, -1) for rows in zip(*found, strict=True)))


class Sweep:
    """One forward and one backward walk. Raises `CannotSweep` if the model or the training is beyond it."""

    def __init__(self, one: OnePicture, graph: GraphModule) -> None:
        refuse_what_needs_autograd(one.training)
        self.one, self.graph = one, graph
        self.programs: dict[tuple[int, ...], Program] = {}  # rules are made for a number of pictures

    @torch.no_grad()
    def __call__(self, fed: Tensor, labels: Tensor) -> Inner:
        stacked = fed.flatten(0, 1)
        program = self.program_for(stacked)
        logits, caches = forward(program, stacked)
        labels = labels.repeat_interleave(fed.shape[1], 0)
        delta, _ = loss_slopes(logits, labels, 1, self.one.training.loss)
        found = backward(program, delta, caches, fed.shape[0])
        nothing = Inner(*(delta.new_zeros(fed.shape[:2]) for _ in Inner._fields))  # layers off the way to the loss
        rows = [found.get(name, nothing) for name in self.one.params]
        scale = self.one.training.rate**2
        return Inner(*(scale * torch.stack(each, -1) for each in zip(*rows, strict=True)))

    def program_for(self, stacked: Tensor) -> Program:
        shape = tuple(stacked.shape)
        if shape not in self.programs:
            self.programs[shape] = program_of(self.graph, len(stacked), stacked, self.one.params.keys())
        return self.programs[shape]


def refuse_what_needs_autograd(training: LocalTraining) -> None:
    if training.steps != 1:
        raise CannotSweep(f"the client takes {training.steps} local steps")
    if not training.is_plain_step:
        raise CannotSweep(f"the update is not the rate times a mean gradient ({training.summary})")
    if training.weight_decay:
        raise CannotSweep("the client decays its weights")


def forward(program: Program, pictures: Tensor) -> tuple[Tensor, dict[str, Any]]:
    values, caches = {program.input: pictures}, {}
    for node in program.nodes:
        values[node.name], caches[node.name] = node.rule.forward(*(values[n] for n in node.inputs))
    return values[program.output], caches


def backward(program: Program, delta: Tensor, caches: dict[str, Any], images: int) -> dict[str, Inner]:
    """Every layer's products on the way back; what a layer remembered is let go as soon as it has been used."""
    deltas, found = {program.output: delta}, {}
    weighted = after_weights(program)
    for node in reversed(program.nodes):
        here, cache = deltas.pop(node.name, None), caches.pop(node.name)
        if here is None:
            continue
        if isinstance(node.rule, Weighted):
            found |= products_of(node.rule, cache, here, images)
        if any(name in weighted for name in node.inputs):
            for name, back in zip(node.inputs, node.rule.backward(cache, here), strict=True):
                if back is not None:
                    deltas[name] = deltas[name] + back if name in deltas else back
    return found


def after_weights(program: Program) -> set[str]:
    """Values that depend on a weight: before the first of them nobody asks for a delta."""
    after: set[str] = set()
    for node in program.nodes:
        if isinstance(node.rule, Weighted) or any(name in after for name in node.inputs):
            after.add(node.name)
    return after


def products_of(rule: Weighted, cache: Any, delta: Tensor, images: int) -> dict[str, Inner]:
    """Whichever way costs less; a bias is small and always formed."""
    if isinstance(rule, MatrixLayer):
        rows, signals = rule.rows(cache), rule.signals(delta)
        if ghost_is_cheaper(rows.shape[1], rows.shape[2], signals.shape[2]):
            found = {rule.weight_name: of_rows(rows, signals, images)}
            return found | ({} if rule.bias is None else {rule.bias_name: of_formed(signals.sum(1), images)})
    return {name: of_formed(gradient, images) for name, gradient in rule.gradients(cache, delta).items()}


def of_formed(gradient: Tensor, images: int) -> Inner:
    """From the gradients of all pictures [image * picture, ...], in whatever layout they lie."""
    each = gradient.unflatten(0, (images, -1))
    axes = tuple(range(2, each.dim()))
    # products first, then a sum by halves: a long float32 dot loses 3e-4
    cross = (each * each[:, :1]).sum(axes)
    return Inner(cross, torch.linalg.vector_norm(each, dim=axes).square())


def of_rows(rows: Tensor, signals: Tensor, images: int) -> Inner:
    """A weight gradient is rows^T @ signals, so <g, h> is the sum over (rows_g @ rows_h^T) * (signals_g @ signals_h^T):
    for few rows and wide layers that is far smaller than the gradients, which are never formed."""
    own = torch.bmm(rows, rows.mT) * torch.bmm(signals, signals.mT)
    cross = with_target(rows, images) * with_target(signals, images)
    return Inner(cross.sum((-2, -1)), own.sum((-2, -1)).clamp_min(0).unflatten(0, (images, -1)))


def with_target(x: Tensor, images: int) -> Tensor:
    """All pictures of an image against its target, which is read and not copied: [image, picture, row, row]."""
    each = x.unflatten(0, (images, -1))
    return torch.bmm(each.flatten(1, 2), each[:, 0].mT).unflatten(1, each.shape[1:3])
