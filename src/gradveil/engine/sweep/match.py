"""The sweep back end: four passes over the program give the match and its gradient for every trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from gradveil.core.defense import Defense
from gradveil.core.own_loss import OwnLoss
from gradveil.core.scenario import Loss
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Images, Update
from gradveil.engine.distance import names_to_match
from gradveil.engine.matcher import OneTrial
from gradveil.engine.sweep.fx_program import CannotSweep, Node, program_of
from gradveil.engine.sweep.matrix import Products
from gradveil.engine.sweep.weighted_layers import Weighted

Streams = dict[str, Tensor | None]


class Sweep:
    """A matcher; raises `CannotSweep` at once if the model, the training or the defense is beyond it."""

    def __init__(self, one: OneTrial, graph: GraphModule) -> None:
        self.one, seen = one, one.seen
        refuse_what_needs_autograd(one)
        assert seen.labels is not None
        self.trials, self.labels = len(seen.names), seen.labels.flatten(0, 1)
        example = uniform((self.trials * seen.examples, *seen.shape), Seed().rng(), self.labels)
        with torch.no_grad():
            self.program = program_of(graph, self.trials, example, seen.update.keys())
        self.weighted: list[tuple[Node, Weighted]] = [
            (node, node.rule) for node in self.program.nodes if isinstance(node.rule, Weighted)
        ]
        self.after_weights: set[str] = set()
        for node in self.program.nodes:
            if isinstance(node.rule, Weighted) or any(name in self.after_weights for name in node.inputs):
                self.after_weights.add(node.name)
        self.plain = surrogate_is_plain(one)
        self.by_products = hasattr(one.distance, "of_products") and self.plain
        names = list(seen.update)
        if self.by_products:
            d: Any = one.distance
            names = names_to_match(names, d.only, d.without)
        self.targets = {n: r.pack(n, seen.update[n]) for _, r in self.weighted for n in r.names if n in names}
        self.lengths = torch.stack([t.square().flatten(1).sum(1) for t in self.targets.values()], 1)

    @torch.no_grad()
    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        values, caches = self.forward(fed.flatten(0, 1))
        logits = values[self.program.output]
        delta, curvature = loss_slopes(logits, self.labels, fed.shape[1], self.one.seen.training.loss)
        deltas = self.backward(delta, caches)
        value, moves = self.match(caches, deltas)
        dots = self.tangent(caches, moves)
        dot = dots[self.program.output]
        assert dot is not None, "no weight moves the logits"
        mu = self.adjoint(curvature(dot), caches, deltas, dots, moves)
        return value, mu.view_as(fed)

    def forward(self, x: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
        values: dict[str, Any] = {self.program.input: x}
        caches: dict[str, Any] = {}
        for node in self.program.nodes:
            values[node.name], caches[node.name] = node.rule.forward(*(values[n] for n in node.inputs))
        return values, caches

    def backward(self, delta: Tensor, caches: Mapping[str, Any]) -> Streams:
        deltas: Streams = {self.program.output: delta}
        for node in reversed(self.program.nodes):
            here = deltas.get(node.name)
            if here is None or not any(name in self.after_weights for name in node.inputs):
                continue  # nothing before the first layer has weights, so nobody asks for its delta
            _accumulate(deltas, node.inputs, node.rule.backward(caches[node.name], here))
        return deltas

    def match(self, caches: Mapping[str, Any], deltas: Streams) -> tuple[Tensor, dict[str, Any]]:
        return self.match_products(caches, deltas) if self.by_products else self.match_formed(caches, deltas)

    def match_products(self, caches: Mapping[str, Any], deltas: Streams) -> tuple[Tensor, dict[str, Any]]:
        """The distance from inner products alone; its slopes there say how far to go along target and gradient."""
        found: dict[str, Products] = {}
        for node, rule in self.weighted:
            delta = deltas.get(node.name)
            if delta is not None:
                targets = {n: self.targets[n] for n in rule.names if n in self.targets}
                found |= rule.products(caches[node.name], delta, targets)
        with torch.enable_grad():
            cross = torch.stack([found[n].cross for n in self.targets], 1).requires_grad_()
            squares = torch.stack([found[n].square for n in self.targets], 1).requires_grad_()
            rate = self.one.seen.training.rate
            distance: Any = self.one.distance
            value = distance.of_products(rate * cross, rate * rate * squares, self.lengths)
            along_target, along_own = torch.autograd.grad(value.sum(), (cross, squares))
        moves = {n: found[n].direction(along_target[:, i], 2 * along_own[:, i]) for i, n in enumerate(self.targets)}
        return value.detach(), moves

    def match_formed(self, caches: Mapping[str, Any], deltas: Streams) -> tuple[Tensor, dict[str, Any]]:
        """Any distance, any surrogate of the update stage: form the gradients and differentiate by them."""
        gradients: dict[str, Tensor] = {}
        for node, rule in self.weighted:
            delta = deltas.get(node.name)
            if delta is not None:
                found, sent = rule.gradients(caches[node.name], delta), self.one.seen.update
                gradients |= {n: rule.unpack(n, g).reshape(sent[n].shape) for n, g in found.items() if n in sent}
        value, slopes = self.slopes_of(gradients)
        moves: dict[str, Any] = {}
        for _, rule in self.weighted:
            moves |= {n: rule.move(n, rule.pack(n, slopes[n])) for n in rule.names if n in slopes}
        return value, moves

    def slopes_of(self, gradients: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The distance of each trial and its slopes by the gradients."""
        seen, rate = self.one.seen.update, self.one.seen.training.rate
        if self.plain and rate == 1.0 and hasattr(self.one.distance, "with_slopes"):
            distance: Any = self.one.distance
            return distance.with_slopes(gradients, seen)
        slopes, value = torch.func.vmap(torch.func.grad_and_value(self.distance_of))(gradients, dict(seen))
        return value, slopes

    def distance_of(self, gradient: Update, update: Update) -> Tensor:
        defense = surrogate(self.one, update)
        rate = self.one.seen.training.rate
        sent = gradient if rate == 1.0 else {n: rate * g for n, g in gradient.items()}
        dummy = defense.update(sent, Seed().rng())
        return self.one.distance(dummy, {n: u for n, u in update.items() if n in dummy})

    def tangent(self, caches: Mapping[str, Any], moves: Mapping[str, Any]) -> Streams:
        dots: Streams = {self.program.input: None}
        for node in self.program.nodes:
            incoming = tuple(dots[n] for n in node.inputs)
            if isinstance(node.rule, Weighted):
                dots[node.name] = node.rule.tangent_with(caches[node.name], incoming, moves)
            else:
                dots[node.name] = node.rule.tangent(caches[node.name], incoming)
        return dots

    def adjoint(
        self, mu: Tensor, caches: Mapping[str, Any], deltas: Streams, dots: Streams, moves: Mapping[str, Any]
    ) -> Tensor:
        mus: Streams = {self.program.output: mu}
        for node in reversed(self.program.nodes):
            here, delta = mus.pop(node.name, None), deltas.get(node.name)
            if here is None:
                continue
            if isinstance(node.rule, Weighted):
                assert delta is not None
                back = node.rule.adjoint_of(caches[node.name], delta, here, moves)
            else:
                incoming = tuple(dots[n] for n in node.inputs)
                back = node.rule.adjoint(caches[node.name], incoming, delta, here)
            _accumulate(mus, node.inputs, back)
        out = mus[self.program.input]
        assert out is not None
        return out


def _accumulate(streams: Streams, names: tuple[str, ...], values: tuple[Tensor | None, ...]) -> None:
    for name, value in zip(names, values, strict=True):
        before = streams.get(name)
        if value is not None:
            streams[name] = value if before is None else before + value


def loss_slopes(logits: Tensor, labels: Tensor, examples: int, kind: Loss | OwnLoss) -> tuple[Tensor, Any]:
    """dl/dlogits of each trial's mean loss, and the product of its second derivative with a tangent."""
    if kind == "binary-cross-entropy":
        p, share = torch.sigmoid(logits), 1 / (examples * logits.shape[1])
        return (p - labels) * share, lambda dot: p * (1 - p) * dot * share
    p, mass = torch.softmax(logits, 1), labels.sum(1, keepdim=True) / examples
    return p * mass - labels / examples, lambda dot: mass * p * (dot - (p * dot).sum(1, keepdim=True))


def surrogate(one: OneTrial, update: Update) -> Defense:
    return Defense() if one.seen.defense is None else one.seen.defense.surrogate(update)


def surrogate_is_plain(one: OneTrial) -> bool:
    return not surrogate(one, _first(one)).acts_at("update")


def _first(one: OneTrial) -> Update:
    return {name: u[0] for name, u in one.seen.update.items()}


def refuse_what_needs_autograd(one: OneTrial) -> None:
    training = one.seen.training
    if isinstance(training.loss, OwnLoss):
        raise CannotSweep("it writes out the slopes of the loss, and this one is the client's own")
    if one.seen.target.is_dense:
        raise CannotSweep("it writes out the slopes of one label a picture, and here there is one for every pixel")
    if training.steps != 1:
        raise CannotSweep(f"the client takes {training.steps} local steps")
    if training.weight_decay:
        raise CannotSweep("the client decays its weights")
    if not training.is_plain_step:
        raise CannotSweep(f"the update is not the rate times a mean gradient ({training.summary})")
    if training.batch_size is not None and training.batch_size < one.seen.examples:
        raise CannotSweep("one step sees a part of the client's data only")
    defense = surrogate(one, _first(one))
    for stage in ("data", "batch", "gradient"):
        if defense.acts_at(stage):
            raise CannotSweep(f"the attacker models the defense at stage {stage}")
