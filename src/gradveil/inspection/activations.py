"""What a client's own pictures do in a model: which neurons each of them reaches, and how strongly.

Every picture's answer is pulled back along the same random direction of the logits instead of its loss: a confident
model has next to no loss, and that would say nothing about the neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gradveil.core.client import in_client_mode
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, normal

FEWEST, MOST, AT_ONCE = 8, 64, 16  # pictures needed, looked at, and in memory


@dataclass(frozen=True, kw_only=True)
class Reach:
    """One layer's neurons over the pictures; all tensors [picture, neuron], float64."""

    name: str  # of the weight
    module: nn.Module
    places: int  # where a neuron is computed: 1 in a linear layer, more in a convolution or over tokens
    signal: Tensor  # before the activation, mean over the places
    pull: Tensor  # gradient by that, summed over the places
    strength: Tensor  # its absolute value, summed


@dataclass
class _Recorder:
    module: nn.Module
    places: int = 0
    signal: list[Tensor] = field(default_factory=list)
    pull: list[Tensor] = field(default_factory=list)
    strength: list[Tensor] = field(default_factory=list)

    def forward(self, output: object, pictures: int) -> None:
        if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != pictures or not output.requires_grad:
            return
        by_neuron = self._by_neuron(output.detach())
        self.places = by_neuron.shape[2]
        self.signal.append(by_neuron.mean(2))
        output.register_hook(self._backward)

    def _backward(self, gradient: Tensor) -> None:
        by_neuron = self._by_neuron(gradient.detach())
        self.pull.append(by_neuron.sum(2))
        self.strength.append(by_neuron.abs().sum(2))

    def _by_neuron(self, values: Tensor) -> Tensor:
        """[picture, neuron, place], for convolutions and for linear layers over tokens."""
        first = values.movedim(-1, 1) if isinstance(self.module, nn.Linear) else values
        return first.flatten(2).double() if first.ndim > 2 else first.unsqueeze(2).double()


def reaches(model: nn.Module, images: Tensor) -> list[Reach]:
    """Every layer that was used once per pass, in the order in which the pictures come through."""
    model = in_client_mode(model, LocalTraining()).requires_grad_()
    like = next(iter(model.parameters()), torch.zeros(()))
    images = images[:MOST].to(like)
    recorders: dict[str, _Recorder] = {}
    chunks = images.split(AT_ONCE)
    for chunk in chunks:
        with torch.enable_grad(), _recording(model, recorders, len(chunk)):
            logits = model(chunk)
            direction = normal(logits.shape[1:], Seed(0).at("inspection", "direction").rng(), logits)
            (logits * direction).sum().backward()
    return [_reach(name, r) for name, r in recorders.items() if len(r.pull) == len(r.signal) == len(chunks)]


def _reach(name: str, recorder: _Recorder) -> Reach:
    signal, pull, strength = (torch.cat(x).cpu() for x in (recorder.signal, recorder.pull, recorder.strength))
    return Reach(
        name=f"{name}.weight",
        module=recorder.module,
        places=recorder.places,
        signal=signal,
        pull=pull,
        strength=strength,
    )


@contextmanager
def _recording(model: nn.Module, recorders: dict[str, _Recorder], pictures: int) -> Iterator[None]:
    """Recorders are entered when a layer is first used, so that their order is the model's own."""

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, _: object, output: object) -> None:
            recorders.setdefault(name, _Recorder(module)).forward(output, pictures)

        return record

    with ExitStack() as stack:
        for name, module in model.named_modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim >= 2:
                stack.callback(module.register_forward_hook(hook(name)).remove)
        yield
