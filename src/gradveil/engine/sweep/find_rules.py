"""Which rules a layer or a function of a model's `forward` is made of, or why there are none for it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.formula import without_fused_attention
from gradveil.engine.sweep import activations, rule
from gradveil.engine.sweep.activations import Curve, Gate, Window, gelu_slopes, silu_slopes
from gradveil.engine.sweep.attention import Product, Shares
from gradveil.engine.sweep.convolution import convolution_rule
from gradveil.engine.sweep.grouped import GroupedConv
from gradveil.engine.sweep.normalization import AffineRule, Standardized
from gradveil.engine.sweep.rule import Rule
from gradveil.engine.sweep.weighted_layers import LinearRule


class CannotSweep(Exception):
    """Why this model needs another back end."""


def module_rules(name: str, layer: nn.Module, trials: int, x: Tensor) -> list[Rule]:
    """One after the other, for values stacked as `x`."""
    match layer:
        case nn.Conv2d():
            return [_convolution(name, layer, trials, x)]
        case nn.Linear():
            return [LinearRule(layer, name, trials)]
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return [_batch_norm(name, layer, trials, x)]
        case nn.LayerNorm():
            return _layer_norm(name, layer, trials, x)
        case nn.GroupNorm():
            return _group_norm(name, layer, trials, x)
    found = _weightless(layer)
    if found is not None:
        return [found]
    if getattr(layer, "inplace", False):
        raise CannotSweep(f"layer {name} changes its input in place")
    if any(True for _ in layer.parameters()):
        raise CannotSweep(f"layer {name} is a {type(layer).__name__}, for which it has no rule")
    return [Rule(layer)]


def _weightless(layer: nn.Module) -> Rule | None:
    match layer:
        case nn.ReLU():
            return activations.Gate(torch.relu)
        case nn.LeakyReLU() if layer.negative_slope > 0:
            slope = layer.negative_slope
            return activations.Gate(lambda x: F.leaky_relu(x, slope), slope)
        case nn.Hardtanh():  # ReLU6 is one
            return activations.Window(layer.min_val, layer.max_val)
        case nn.Sigmoid():
            return activations.Curve(torch.sigmoid, activations.sigmoid_slopes)
        case nn.Tanh():
            return activations.Curve(torch.tanh, activations.tanh_slopes)
        case nn.GELU() if layer.approximate == "none":
            return activations.Curve(F.gelu, activations.gelu_slopes)
        case nn.SiLU():
            return activations.Curve(F.silu, activations.silu_slopes)
        case nn.Softmax() if layer.dim is not None:
            return Shares(layer.dim)
        case nn.MaxPool2d():
            return rule.MaxPool(layer, _window(layer))
        case nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
            return rule.LinearMap(layer)
        case nn.Flatten() | nn.Unflatten():
            return rule.Reshape(layer)
        case nn.Identity() | nn.Dropout() | nn.Dropout2d():
            return rule.Reshape(lambda x: x)  # dropout is off in client mode
    return None


def _convolution(name: str, layer: nn.Conv2d, trials: int, x: Tensor) -> Rule:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise CannotSweep(f"layer {name} is a convolution padded with other than zeros")
    if layer.groups > 1:
        return GroupedConv(layer, name, trials)
    return convolution_rule(layer, name, trials, x.shape)


def _batch_norm(name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d, trials: int, x: Tensor) -> Rule:
    if layer.running_mean is None or layer.running_var is None or layer.training:
        raise CannotSweep(f"layer {name} normalizes by the batch's own statistics")
    spread = (layer.running_var + layer.eps).sqrt()
    return AffineRule(layer, name, trials, _by_channel(x), layer.running_mean, spread)


def _layer_norm(name: str, layer: nn.LayerNorm, trials: int, x: Tensor) -> list[Rule]:
    shape = tuple(layer.normalized_shape)
    standardized = Standardized(len(shape), layer.eps)
    return [standardized, AffineRule(layer, name, trials, shape, x.new_zeros(shape), x.new_ones(shape))]


def _group_norm(name: str, layer: nn.GroupNorm, trials: int, x: Tensor) -> list[Rule]:
    """Each group is one row to standardize; the weights are by channel."""
    whole, rows, zeros = x.shape, (x.shape[0], layer.num_groups, -1), x.new_zeros(layer.num_channels)
    apart, together = rule.Reshape(lambda x: x.reshape(rows)), rule.Reshape(lambda x: x.reshape(whole))
    scaled = AffineRule(layer, name, trials, _by_channel(x), zeros, zeros + 1)
    return [apart, Standardized(1, layer.eps), together, scaled]


def _by_channel(x: Tensor) -> tuple[int, ...]:
    """How a number of each channel broadcasts against one example."""
    return (x.shape[1], *(1,) * (x.dim() - 2))


def _window(layer: nn.MaxPool2d) -> tuple[Any, ...]:
    def pair(value: Any) -> list[int]:
        return list(value) if isinstance(value, tuple | list) else [value, value]

    return (*map(pair, (layer.kernel_size, layer.stride, layer.padding, layer.dilation)), layer.ceil_mode)


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
    if target is F.scaled_dot_product_attention:
        return Rule(without_fused_attention(function))
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
