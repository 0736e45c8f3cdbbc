"""From a model to rules: walk its torch.fx graph, one rule per operation, or say why not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from gradveil.engine.sweep.find_rules import CannotSweep, function_rule, module_rules
from gradveil.engine.sweep.rule import LinearMap, Rule
from gradveil.engine.sweep.weighted_layers import ParameterRule


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


SPLIT = ("unbind", "chunk", "split", torch.unbind, torch.chunk, torch.split)


class _Builder:
    def __init__(self, graph: torch.fx.GraphModule, trials: int) -> None:
        self.graph, self.trials, self.count = graph, trials, 0
        self.modules = dict(graph.named_modules())
        self.used: set[str] = set()  # modules with weights that have been called, parameters that stand alone
        self.nodes: list[Node] = []
        self.values: dict[str, Any] = {}  # of the example, while building; then constants only
        self.tensors: set[str] = set()  # nodes that depend on the picture
        self.splits: dict[torch.fx.Node, torch.fx.Node] = {}  # what is cut into several values -> what it is cut from

    def build(self, example: Tensor, names: Collection[str]) -> Program:
        source = output = ""
        self.count = len(example)
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
            return self.add_attribute(node)
        if node.target is operator.getitem and node.all_input_nodes[0] in self.splits:
            return self.add_part(node, node.all_input_nodes[0])
        parents = [n for n in node.all_input_nodes if n.name in self.tensors]
        if node.target in SPLIT and len(parents) == 1:
            self.splits[node] = parents[0]
            return None
        if not parents or (node.op == "call_function" and node.target is getattr):
            return self.add_value(node)
        if node.op == "call_method" and node.target in ("size", "dim"):
            return self.add_value(node)
        inputs, found = tuple(p.name for p in parents), self.rules_of(node, parents)
        for place, rule in enumerate(found, start=1 - len(found)):
            name = node.name if place == 0 else f"{node.name}/{-place}"
            self.add_node(Node(name, inputs, rule))
            inputs = (name,)

    def add_part(self, node: torch.fx.Node, split: torch.fx.Node) -> None:
        """One of several values that an operation cuts its input into."""
        whole = self.splits[split]
        place: Any = node.args[1]
        function = self.function_of(split, [whole])
        self.add_node(Node(node.name, (whole.name,), LinearMap(lambda x: function(x)[place])))

    def add_node(self, node: Node) -> None:
        out, _ = node.rule.forward(*(self.values[n] for n in node.inputs))
        if not isinstance(out, Tensor):
            raise CannotSweep(f"{node.name} returns {type(out).__name__}, not a tensor")
        self.values[node.name] = out
        self.tensors.add(node.name)
        self.nodes.append(node)

    def add_attribute(self, node: torch.fx.Node) -> None:
        value: Any = self.graph
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, nn.Parameter):
            self.values[node.name] = value
            return
        if value.dim() < 2 or value.shape[0] != 1:  # with a first dimension of 1 it can be one copy for each picture
            raise CannotSweep(f"parameter {node.target} is used outside a layer")
        self.once(str(node.target), "parameter")
        self.add_node(Node(node.name, (), ParameterRule(value, str(node.target), self.trials, self.count)))

    def once(self, name: str, kind: str) -> None:
        if name in self.used:
            raise CannotSweep(f"{kind} {name} is used twice")
        self.used.add(name)

    def add_value(self, node: torch.fx.Node) -> None:
        call = self.call_of(node)
        self.values[node.name] = call(*_resolve(node.args, self.values), **_resolve(node.kwargs, self.values))

    def call_of(self, node: torch.fx.Node) -> Callable[..., Any]:
        if node.op == "call_module":
            return self.modules[str(node.target)]
        if node.op == "call_method":
            return lambda x, *args, **kwargs: getattr(x, str(node.target))(*args, **kwargs)
        return node.target  # type: ignore[return-value]

    def rules_of(self, node: torch.fx.Node, parents: list[torch.fx.Node]) -> list[Rule]:
        """What the operation does to the values that depend on the picture, one rule after the other."""
        if node.op == "call_module":
            name, layer = str(node.target), self.modules[str(node.target)]
            if any(True for _ in layer.parameters()):
                self.once(name, "layer")
            return module_rules(name, layer, self.trials, self.values[parents[0].name])
        function = self.function_of(node, parents)
        if rule := function_rule(node, [self.values[p.name] for p in parents], function):
            return [rule]
        if node.kwargs.get("inplace") or (node.op == "call_method" and str(node.target).endswith("_")):
            raise CannotSweep(f"{node.name} changes its input in place")
        return [Rule(function)]

    def function_of(self, node: torch.fx.Node, parents: list[torch.fx.Node]) -> Callable[..., Tensor]:
        """Its tensors are arguments, everything else is looked up when it runs."""
        call, names = self.call_of(node), [p.name for p in parents]

        def function(*tensors: Tensor) -> Tensor:
            env = self.values | dict(zip(names, tensors, strict=True))
            return call(*_resolve(node.args, env), **_resolve(node.kwargs, env))

        return function


def _resolve(arguments: Any, env: dict[str, Any]) -> Any:
    return torch.fx.map_arg(arguments, lambda n: env[n.name])
