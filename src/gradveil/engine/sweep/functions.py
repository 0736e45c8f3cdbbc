"""Which rule a function of a model's `forward` has, where there is a faster one than automatic differentiation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor

from gradveil.engine.sweep import rule
from gradveil.engine.sweep.activations import Curve, Gate, Window, gelu_slopes, silu_slopes
from gradveil.engine.sweep.attention import Product, Shares
from gradveil.engine.sweep.rule import Rule

ADD = (operator.add, torch.add, operator.iadd)
RELU = (F.relu, torch.relu, "relu")
MATMUL = (torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm")
CAT = (torch.cat, torch.concat, torch.concatenate)
SOFTMAX = (torch.softmax, F.softmax, "softmax")
RESHAPE = ("view", "reshape", "flatten", "unflatten", torch.flatten, torch.reshape, torch.unflatten)
LINEAR = ("transpose", "permute", "expand", "contiguous", "mean", "sum", torch.transpose, torch.permute, torch.mean,
          torch.sum, operator.getitem, F.avg_pool2d, F.adaptive_avg_pool2d)  # fmt: skip
SCALE = (operator.mul, torch.mul, operator.truediv, torch.div, "mul", "div")


def function_rule(node: torch.fx.Node, values: list[Tensor], function: Callable[..., Tensor]) -> Rule | None:
    """`values` are those of the example that depend on the picture, `function` takes them and nothing else."""
    target: Any = node.target
    if len(values) == 1:
        return _of_one(node, target, function)
    if target in ADD and not node.kwargs and values[0].shape == values[1].shape:
        return rule.Add()
    if target in MATMUL and len(node.args) == 2 and _are_stacks(values):
        return Product()
    if target in CAT and isinstance(node.args[0], list | tuple) and len(node.args[0]) == len(values):
        axis = _axis(node, 0)
        return None if axis is None else rule.Joined(axis)
    return None


def _are_stacks(values: list[Tensor]) -> bool:
    """Matrices one by one, with nothing to broadcast."""
    return values[0].dim() > 2 and values[0].shape[:-2] == values[1].shape[:-2]


def _of_one(node: torch.fx.Node, target: Any, function: Callable[..., Tensor]) -> Rule | None:
    if target in RELU:
        return Gate(torch.relu)
    if target in RESHAPE:
        return rule.Reshape(function)
    if target in LINEAR:
        return rule.LinearMap(function)
    if target in SCALE and isinstance(node.args[0], torch.fx.Node) and isinstance(node.args[1], int | float):
        return rule.LinearMap(function)
    if target in SOFTMAX and not node.kwargs.get("dtype"):
        axis = _axis(node, None)
        return None if axis is None else Shares(axis)
    if node.kwargs.get("inplace"):
        return None
    if target is F.gelu and "approximate" not in node.kwargs:
        return Curve(F.gelu, gelu_slopes)
    if target is F.silu:
        return Curve(F.silu, silu_slopes)
    return Window(0.0, 6.0) if target is F.relu6 else None


def _axis(node: torch.fx.Node, default: int | None) -> int | None:
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", default)
    return axis if isinstance(axis, int) else None
