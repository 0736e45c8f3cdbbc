"""From a model to rules: walk its torch.fx graph, one rule per operation, or say why not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks.inversion.sweep import rule as rules
from gradveil.attacks.inversion.sweep.convolution import convolution_rule
from gradveil.attacks.inversion.sweep.layers import LinearRule
from gradveil.attacks.inversion.sweep.normalization import AffineRule
from gradveil.attacks.inversion.sweep.rule import Rule


class CannotSweep(Exception):
    """Why this model needs another back end."""


@dataclass(frozen=True)
class Node:
    """One operation on values that depend on the picture; `inputs` are names of earlier nodes."""

    name: str
    inputs: tuple[str, ...]
    rule: Rule


@dataclass(frozen=True)
class Program:
    nodes: tuple[Node, ...]
    input: str
    output: str


def graph_of(model: nn.Module) -> torch.fx.GraphModule:
    """The operations of a model in client mode."""
    try:
        return torch.fx.symbolic_trace(model)
    except Exception as error:  # fx raises whatever the model's Python raises
        raise CannotSweep(f"torch.fx cannot trace it ({type(error).__name__}: {str(error)[:120]})") from error


def program_of(graph: torch.fx.GraphModule, trials: int, example: Tensor, names: Collection[str]) -> Program:
    """A rule for every operation, for pictures stacked as in `example`; `names` are the parameters that are sent."""
    return _Builder(graph, trials).build(example, names)


class _Builder:
    def __init__(self, graph: torch.fx.GraphModule, trials: int) -> None:
        self.graph, self.trials = graph, trials
        self.modules = dict(graph.named_modules())
        self.used: set[str] = set()  # modules with weights that have been called
        self.nodes: list[Node] = []
        self.values: dict[str, Any] = {}  # of the example, while building; then constants only
        self.tensors: set[str] = set()  # nodes that depend on the picture

    def build(self, example: Tensor, names: Collection[str]) -> Program:
        source = output = ""
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                if source:
                    raise CannotSweep("it takes more than one input")
                source = node.name
                self.values[source] = example
                self.tensors.add(source)
            elif node.op == "output":
                if not isinstance(node.args[0], torch.fx.Node):
                    raise CannotSweep("it returns more than one tensor")
                output = node.args[0].name
            else:
                self.add(node)
        self.check_parameters(names)
        for name in self.tensors:  # what is left are constants: sizes, buffers
            del self.values[name]
        return Program(tuple(self.nodes), source, output)

    def check_parameters(self, names: Collection[str]) -> None:
        known = {n for node in self.nodes for n in getattr(node.rule, "names", [])}
        missing = [n for n in names if n not in known]
        if missing:
            raise CannotSweep(f"parameter {missing[0]} is not in a layer that it knows")

    def add(self, node: torch.fx.Node) -> None:
        if node.op == "get_attr":
            return self.add_constant(node)
        parents = [n for n in node.all_input_nodes if n.name in self.tensors]
        if not parents or (node.op == "call_function" and node.target is getattr):
            return self.add_value(node)
        if node.op == "call_method" and node.target in ("size", "dim"):
            return self.add_value(node)
        for part in self.rules_of(node, parents):
            out, _ = part.rule.forward(*(self.values[n] for n in part.inputs))
            if not isinstance(out, Tensor):
                raise CannotSweep(f"{node.name} returns {type(out).__name__}, not a tensor")
            self.values[part.name] = out
            self.tensors.add(part.name)
            self.nodes.append(part)

    def add_constant(self, node: torch.fx.Node) -> None:
        value: Any = self.graph
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, nn.Parameter):
            raise CannotSweep(f"parameter {node.target} is used outside a layer")
        self.values[node.name] = value

    def add_value(self, node: torch.fx.Node) -> None:
        call = self.call_of(node)
        self.values[node.name] = call(*_resolved(node.args, self.values), **_resolved(node.kwargs, self.values))

    def call_of(self, node: torch.fx.Node) -> Callable[..., Any]:
        if node.op == "call_module":
            return self.modules[str(node.target)]
        if node.op == "call_method":
            return lambda x, *args, **kwargs: getattr(x, str(node.target))(*args, **kwargs)
        return node.target  # type: ignore[return-value]

    def rules_of(self, node: torch.fx.Node, parents: list[torch.fx.Node]) -> list[Node]:
        inputs = tuple(p.name for p in parents)
        if node.op == "call_module":
            return self.module_rules(node, inputs)
        same_shape = len(inputs) == 2 and self.values[inputs[0]].shape == self.values[inputs[1]].shape
        if node.target in (operator.add, torch.add, operator.iadd) and same_shape and not node.kwargs:
            return [Node(node.name, inputs, rules.Add())]
        if node.target in (F.relu, torch.relu, "relu"):
            return [Node(node.name, inputs, rules.Gate(torch.relu))]
        if node.kwargs.get("inplace") or (node.op == "call_method" and str(node.target).endswith("_")):
            raise CannotSweep(f"{node.name} changes its input in place")
        return [Node(node.name, inputs, self.generic(node, parents))]

    def generic(self, node: torch.fx.Node, parents: list[torch.fx.Node]) -> Rule:
        """Any other function: its tensors are arguments, everything else is looked up when it runs."""
        call, names = self.call_of(node), [p.name for p in parents]

        def function(*tensors: Tensor) -> Tensor:
            env = self.values | dict(zip(names, tensors, strict=True))
            return call(*_resolved(node.args, env), **_resolved(node.kwargs, env))

        reshapes = ("view", "reshape", "flatten", torch.flatten, torch.reshape)
        if node.target in reshapes and len(names) == 1:
            return rules.Reshape(function)
        return Rule(function)

    def module_rules(self, node: torch.fx.Node, inputs: tuple[str, ...]) -> list[Node]:
        name = str(node.target)
        layer = self.modules[name]
        if any(True for _ in layer.parameters()):
            if name in self.used:
                raise CannotSweep(f"layer {name} is used twice")
            self.used.add(name)
        return [Node(node.name, inputs, self.layer_rule(name, layer, self.values[inputs[0]]))]

    def layer_rule(self, name: str, layer: nn.Module, x: Tensor) -> Rule:
        match layer:
            case nn.Conv2d():
                return self.convolution(name, layer, x)
            case nn.Linear():
                return LinearRule(layer, name, self.trials)
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                return self.batch_norm(name, layer)
            case nn.ReLU():
                return rules.Gate(torch.relu)
            case nn.LeakyReLU() if layer.negative_slope > 0:
                slope = layer.negative_slope
                return rules.Gate(lambda x: F.leaky_relu(x, slope), slope)
            case nn.Sigmoid():
                return rules.Curve(torch.sigmoid, rules.sigmoid_slopes)
            case nn.Tanh():
                return rules.Curve(torch.tanh, rules.tanh_slopes)
            case nn.MaxPool2d():
                return self.max_pool(layer)
            case nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
                return rules.LinearMap(layer)
            case nn.Flatten():
                return rules.Reshape(layer)
            case nn.Identity() | nn.Dropout() | nn.Dropout2d():
                return rules.Reshape(lambda x: x)  # dropout is off in client mode
        if getattr(layer, "inplace", False):
            raise CannotSweep(f"layer {name} changes its input in place")
        if any(True for _ in layer.parameters()):
            raise CannotSweep(f"layer {name} is a {type(layer).__name__}, for which it has no rule")
        return Rule(layer)

    def convolution(self, name: str, layer: nn.Conv2d, x: Tensor) -> Rule:
        if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise CannotSweep(f"layer {name} is a convolution with groups, or padded with other than zeros")
        return convolution_rule(layer, name, self.trials, x.shape)

    def batch_norm(self, name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> Rule:
        if layer.running_mean is None or layer.running_var is None or layer.training:
            raise CannotSweep(f"layer {name} normalizes by the batch's own statistics")
        shape = (layer.num_features, 1, 1) if isinstance(layer, nn.BatchNorm2d) else (layer.num_features,)
        spread = (layer.running_var + layer.eps).sqrt()
        return AffineRule(layer, name, self.trials, shape, layer.running_mean, spread)

    def max_pool(self, layer: nn.MaxPool2d) -> Rule:
        def pair(value: Any) -> list[int]:
            return list(value) if isinstance(value, tuple | list) else [value, value]

        window = (
            pair(layer.kernel_size),
            pair(layer.stride),
            pair(layer.padding),
            pair(layer.dilation),
            layer.ceil_mode,
        )
        return rules.MaxPool(layer, window)


def _resolved(arguments: Any, env: dict[str, Any]) -> Any:
    return torch.fx.map_arg(arguments, lambda n: env[n.name])
