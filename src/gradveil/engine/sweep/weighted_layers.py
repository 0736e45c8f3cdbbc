"""Rules for layers with weights: what they share, the linear layer, and a parameter that stands alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.engine.sweep.matrix import Direction, Formed, FormedProducts, Products, products, times
from gradveil.engine.sweep.rule import Deltas, Dots, Rule

Moves = Mapping[str, Any]  # parameter name -> the direction it moves in; absent: it does not move


class Weighted(Rule, ABC):
    """A layer with `weight` and `bias`, either of which may be missing.

    `pack` brings a stack of parameters into the layout in which the rule works, `unpack` back; `tangent_with` is the
    tangent sweep and `adjoint_of` the adjoint sweep with the weights moving.
    """

    def __init__(self, layer: nn.Module, name: str, trials: int) -> None:
        self.trials = trials
        self.weight: Any = getattr(layer, "weight", None)  # a tensor, or None for layers without
        self.bias: Any = getattr(layer, "bias", None)
        self.weight_name, self.bias_name = f"{name}.weight", f"{name}.bias"

    @property
    def names(self) -> list[str]:
        return [n for n, p in ((self.weight_name, self.weight), (self.bias_name, self.bias)) if p is not None]

    def pack(self, name: str, tensor: Tensor) -> Tensor:
        return tensor.flatten(1)[:, None]

    def unpack(self, name: str, packed: Tensor) -> Tensor:
        return packed

    def move(self, name: str, packed: Tensor) -> Any:
        """A direction given as packed numbers."""
        return Formed(packed, by_columns=False)

    @abstractmethod
    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]: ...

    def products(self, cache: Any, delta: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Products]:
        found = self.gradients(cache, delta)
        return {name: FormedProducts(found[name], target, False) for name, target in targets.items()}

    @abstractmethod
    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None: ...

    @abstractmethod
    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas: ...


class MatrixLayer(Weighted):
    """What linear and convolutional layers share: rows in, signals out."""

    by_columns = False

    @abstractmethod
    def rows(self, cache: Any) -> Tensor: ...

    @abstractmethod
    def signals(self, out: Tensor) -> Tensor: ...

    @abstractmethod
    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor: ...

    def move(self, name: str, packed: Tensor) -> Any:
        return Formed(packed, self.by_columns)

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        signals = self.signals(delta)
        found = {self.weight_name: times(self.rows(cache).mT, signals, self.by_columns)}
        if self.bias is not None:
            found[self.bias_name] = signals.sum(1, keepdim=True)
        return found

    def products(self, cache: Any, delta: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Products]:
        signals, found = self.signals(delta), {}
        if self.weight_name in targets:
            found[self.weight_name] = products(self.rows(cache), signals, targets[self.weight_name], self.by_columns)
        if self.bias_name in targets:
            summed = signals.sum(1, keepdim=True)
            found[self.bias_name] = FormedProducts(summed, targets[self.bias_name], False)
        return found

    def push(self, cache: Any, moves: Moves, shape: tuple[int, ...]) -> Tensor | None:
        """What the moving weights add to the tangent of the output."""
        move: Direction | None = moves.get(self.weight_name)
        shift: Formed | None = moves.get(self.bias_name)
        if move is None and shift is None:
            return None
        pushed = self.rows(cache).new_zeros(()) if move is None else move.push(self.rows(cache))
        if shift is not None:
            pushed = pushed + shift.v
        if move is None:
            pushed = pushed.expand(-1, self.rows(cache).shape[1], -1)
        return self.from_signals(pushed, shape)


class LinearRule(MatrixLayer):
    def pack(self, name: str, tensor: Tensor) -> Tensor:
        return tensor.mT if name == self.weight_name else super().pack(name, tensor)

    def unpack(self, name: str, packed: Tensor) -> Tensor:
        return packed.mT if name == self.weight_name else packed

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return F.linear(inputs[0], self.weight, self.bias), inputs[0]

    def rows(self, cache: Any) -> Tensor:
        return cache.reshape(self.trials, -1, cache.shape[-1])

    def signals(self, out: Tensor) -> Tensor:
        return out.reshape(self.trials, -1, out.shape[-1])

    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor:
        return signals.reshape(shape)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (delta @ self.weight,)

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        pushed = self.push(cache, moves, (*cache.shape[:-1], self.weight.shape[0]))
        if dots[0] is None:
            return pushed
        through = F.linear(dots[0], self.weight)
        return through if pushed is None else through + pushed

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        through = torch.matmul(mu, self.weight)
        move: Direction | None = moves.get(self.weight_name)
        return (through if move is None else through + move.pull(self.signals(delta)).reshape(through.shape),)


class ParameterRule(Weighted):
    """A parameter with a first dimension of 1, as one copy for each of `count` pictures: a class token, positions."""

    def __init__(self, parameter: Tensor, name: str, trials: int, count: int) -> None:
        self.parameter, self.name, self.trials, self.count = parameter, name, trials, count

    @property
    def names(self) -> list[str]:
        return [self.name]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return self.parameter.expand(self.count, *self.parameter.shape[1:]), None

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        return {self.name: delta.unflatten(0, (self.trials, -1)).sum(1).flatten(1)[:, None]}

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        if self.name not in moves:
            return None
        each = moves[self.name].v.reshape(self.trials, *self.parameter.shape[1:])
        return each.repeat_interleave(self.count // self.trials, 0)

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        return ()
