"""A model that is a chain: convolutions and linear layers, one after the other, with activations that can be undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from gradveil.core.errors import NotApplicableError
from gradveil.engine.sweep.find_rules import CannotSweep
from gradveil.engine.sweep.fx_program import graph_of

MOST = 8192  # numbers that go into a layer: the equations of a channel are a matrix with as many columns as it has
Undo = Callable[[Tensor], tuple[Tensor, Tensor]]  # what went in, and the slope there, of what came out


def undo_sigmoid(out: Tensor) -> tuple[Tensor, Tensor]:
    out = out.clamp(1e-12, 1 - 1e-12)
    return out.logit(), out * (1 - out)


def undo_tanh(out: Tensor) -> tuple[Tensor, Tensor]:
    out = out.clamp(-1 + 1e-12, 1 - 1e-12)
    return out.atanh(), 1 - out.square()


def undo_leaky(slope: float) -> Undo:
    def undo(out: Tensor) -> tuple[Tensor, Tensor]:
        slopes = torch.where(out > 0, torch.ones_like(out), torch.full_like(out, slope))
        return out / slopes, slopes

    return undo


def undo_of(layer: Any) -> Undo | None:
    """By the module or the function of an activation."""
    if isinstance(layer, nn.Sigmoid) or layer in (torch.sigmoid, F.sigmoid, "sigmoid"):
        return undo_sigmoid
    if isinstance(layer, nn.Tanh) or layer in (torch.tanh, F.tanh, "tanh"):
        return undo_tanh
    if isinstance(layer, nn.LeakyReLU) and layer.negative_slope > 0:
        return undo_leaky(layer.negative_slope)
    return None


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution or a linear layer in float64, its input and output, [channel, height, width], what follows it."""

    name: str
    module: nn.Conv2d | nn.Linear
    shape: torch.Size
    made: torch.Size  # what comes out
    undo: Undo | None = None

    @property
    def is_linear(self) -> bool:
        return isinstance(self.module, nn.Linear)

    @property
    def weight(self) -> Tensor:
        return self.module.weight.detach().double()

    @property
    def geometry(self) -> dict[str, Any]:
        assert isinstance(self.module, nn.Conv2d)
        return {key: getattr(self.module, key) for key in ("stride", "padding", "dilation")}

    def undo_activation(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """From what came out of the activation behind this layer to what went in, and the activation's slope there."""
        return (out, torch.ones_like(out)) if self.undo is None else self.undo(out)

    def pull(self, slope: Tensor) -> Tensor:
        """The loss's slope by what went in."""
        if self.is_linear:
            return slope.flatten() @ self.weight
        return self.backward(slope)

    def constant(self) -> Tensor | float:
        bias = self.module.bias
        return 0.0 if bias is None else bias.detach().double().view(-1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """What comes out, less the bias: the equations of the layer itself."""
        return F.conv2d(x, self.weight, **self.geometry)

    def backward(self, made: Tensor) -> Tensor:
        """The transpose of `forward`."""
        return conv2d_input((1, *self.shape), self.weight, made.unsqueeze(0), **self.geometry)[0]

    def row_sizes(self) -> Tensor:
        """Sums of squares of the rows of the matrix of `forward`, of the shape of what comes out."""
        return F.conv2d(self.weight.new_ones(self.shape), self.weight.square(), **self.geometry)

    def gradient_matrix(self, slope: Tensor) -> Tensor:
        """One channel's numbers to its weights' gradient, the same for every channel: [weight, number]"""
        count = self.shape[1:].numel()
        unit = torch.eye(count, dtype=slope.dtype, device=slope.device).view(count, 1, *self.shape[1:])
        windows = F.unfold(unit, self.module.kernel_size, **self.geometry)  # type: ignore[union-attr, arg-type]
        return (slope.flatten(1) @ windows.mT).flatten(1).T.contiguous()


@dataclass(frozen=True, eq=False)
class Chain:
    """From the front to the head."""

    layers: tuple[Layer, ...]

    @property
    def names(self) -> list[str]:
        return [f"{layer.name}.weight" for layer in self.layers] + [f"{self.layers[-1].name}.bias"]


def chain_of(model: nn.Module, shape: tuple[int, int, int], attack: str) -> Chain:
    """Why a model is none is said in the words of `attack`."""
    try:
        graph = graph_of(model)
    except CannotSweep as why:
        raise NotApplicableError(f"{attack} cannot follow the model: {why}, choose another attack", key=attack) from why
    modules, layers = dict(graph.named_modules()), []
    shapes = shapes_of(model, shape)
    for node in graph.graph.nodes:
        layer = modules[str(node.target)] if node.op == "call_module" else node.target
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layers.append(Layer(str(node.target), layer, *shapes[str(node.target)]))
        elif layers and node.op != "output":
            if len(node.users) != 1 or len(node.all_input_nodes) != 1:
                raise NotApplicableError(f"{attack} needs a chain, and {node.name} is a branch", key=attack)
            if undo := undo_of(layer):
                layers[-1] = replace(layers[-1], undo=undo)
            elif not keeps_numbers(layer):
                raise NotApplicableError(f"{attack} cannot undo {node.name}, choose another attack", key=attack)
    check_layers(layers, attack)
    return Chain(tuple(layers))


def keeps_numbers(layer: Any) -> bool:
    if isinstance(layer, nn.Flatten | nn.Identity | nn.Dropout | nn.Dropout2d):
        return True
    return layer in (torch.flatten, "flatten", "view", "reshape", torch.reshape, "size", getattr, F.dropout)


def shapes_of(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, tuple[torch.Size, torch.Size]]:
    """What goes into each convolution and linear layer and comes out, without the axis of the pictures."""
    shapes: dict[str, tuple[torch.Size, torch.Size]] = {}

    def record(name: str) -> Callable[..., None]:
        return lambda _layer, inputs, out: shapes.update({name: (inputs[0].shape[1:], out.shape[1:])})

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(record(name)) for name, layer in layers]
    with torch.no_grad():
        model(next(model.parameters()).new_full((1, *shape), 0.5))
    for hook in hooks:
        hook.remove()
    return shapes


def check_layers(layers: list[Layer], attack: str) -> None:
    """A head to begin at, activations between the layers, and enough equations for each."""
    if not layers or not layers[-1].is_linear or layers[-1].module.bias is None or layers[-1].undo is not None:
        raise NotApplicableError(f"{attack} begins at a last linear layer with a bias, here is none", key=attack)
    for layer in layers:
        if layer.is_linear:
            continue
        module, unknown = layer.module, layer.shape.numel()
        assert isinstance(module, nn.Conv2d)
        if module.groups > 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise NotApplicableError(f"{attack} needs plain convolutions, {layer.name} is none", key=attack)
        equations = layer.made.numel() + module.weight.numel()
        if equations < unknown or unknown > MOST:
            raise NotApplicableError(
                f"{attack}: {unknown} numbers go into {layer.name}, there are {equations} equations for them and it "
                f"solves for at most {MOST}, choose another attack",
                key=attack,
            )
