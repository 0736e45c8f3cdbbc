"""Attention, LSTMs and the hard sigmoid by their formulas, in the place of kernels without a second derivative.

Which kernel runs is a switch of the whole process, and chunks of trials may run in threads: the first forward pass that
needs a formula turns its kernels off, and the last one turns on again what was on before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Switch = tuple[Callable[[], bool], Callable[[bool], Any]]


class Kernels:
    """Kernels that stay off from the first `turn_off` to the last `turn_back`."""

    def __init__(self, name: str, switches: Sequence[Switch]) -> None:
        self.name, self.switches = name, switches
        self.lock, self.users = Lock(), 0
        self.before: tuple[bool, ...] = ()

    def __reduce__(self) -> str:
        return self.name  # there is one for each process, also for copies of models that hook it

    def turn_off(self, *_: Any) -> None:
        with self.lock:
            if self.users == 0:
                self.before = tuple(is_on() for is_on, _turn in self.switches)
                for _is_on, turn in self.switches:
                    turn(False)
            self.users += 1

    def turn_back(self, *_: Any) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                for (_is_on, turn), was_on in zip(self.switches, self.before, strict=True):
                    turn(was_on)

    @contextmanager
    def off(self) -> Iterator[None]:
        self.turn_off()
        try:
            yield
        finally:
            self.turn_back()

    def hook(self, model: nn.Module) -> None:
        """Off whenever this model runs, and back after an error too."""
        model.register_forward_pre_hook(self.turn_off, prepend=True)
        model.register_forward_hook(self.turn_back, always_call=True)


ATTENTION = Kernels(
    "ATTENTION",
    (
        (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
        (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
        (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
        (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    ),
)
ONEDNN = Kernels("ONEDNN", ((lambda: torch._C._get_mkldnn_enabled(), lambda on: torch._C._set_mkldnn_enabled(on)),))


def without_fused_attention(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function, by the formula."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        with ATTENTION.off():
            return function(*args, **kwargs)

    return call


class Hardsigmoid(nn.Module):
    """torch's, of pieces that can be differentiated twice."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x + 3) / 6


def use_formulas(model: nn.Module) -> None:
    """Whatever this model runs from now on, it runs by formulas."""
    ATTENTION.hook(model)
    if any(isinstance(layer, nn.LSTM) for layer in model.modules()):  # for others it would change the last bits
        ONEDNN.hook(model)
    for layer in list(model.modules()):
        for name, part in layer.named_children():
            if isinstance(part, nn.Hardsigmoid):
                setattr(layer, name, Hardsigmoid())
