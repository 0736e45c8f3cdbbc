"""One gradient of a loss of the user's own: what cannot work is said before a run, in one line."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import gradient_of, in_client_mode, parameters_of
from gradveil.core.errors import ConfigError
from gradveil.core.own_loss import OwnLoss
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch

PICTURES = 2


def try_loss(model: nn.Module, training: LocalTraining, batch: Batch) -> None:
    """ConfigError if the loss is the client's own and gives no gradient for the first of these pictures."""
    if not isinstance(training.loss, OwnLoss):
        return
    few = Batch(batch.images[:PICTURES].float(), batch.labels[:PICTURES].float())
    played = in_client_mode(model.float(), training)
    check_value(training.loss, _value(played, training.loss, few))
    check_gradient(played, training, few)


def _value(model: nn.Module, loss: OwnLoss, batch: Batch) -> Any:
    """Whatever the function returns, for outputs that it may differentiate."""
    params = {name: p.requires_grad_() for name, p in parameters_of(model).items()}
    outputs = functional_call(model, params, (batch.images,))
    try:
        return loss(outputs, batch.labels)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        got = f"outputs {_shape(outputs)} and targets {_shape(batch.labels)}"
        raise _fault(loss, f"for {got} it raised {_describe(error)}, correct it") from error


def check_value(loss: OwnLoss, value: Any) -> None:
    if not isinstance(value, Tensor) or value.shape != ():
        raise _fault(loss, f"it returned {_shape(value)}, it must return one number, the mean over the pictures")
    if not bool(value.isfinite()):
        raise _fault(loss, f"it returned {value.item()}, check its logarithms and divisions")
    if not value.requires_grad:
        raise _fault(loss, "it has no slope by the outputs, leave out detach(), item(), argmax and rounding")


def check_gradient(model: nn.Module, training: LocalTraining, batch: Batch) -> None:
    assert isinstance(training.loss, OwnLoss)
    try:
        gradient = gradient_of(model, training)(parameters_of(model), batch)
    except (Exception, SystemExit) as error:  # whatever the user's code raises under torch.func
        raise _fault(training.loss, f"torch.func cannot differentiate it: {_describe(error)}") from error
    flat = torch.cat([one.flatten() for one in gradient.values()])
    if not bool(flat.isfinite().all()):
        raise _fault(training.loss, "its gradient is not finite, check its logarithms, roots and divisions")
    if not bool(flat.any()):
        raise _fault(training.loss, "its gradient is 0 in every weight, leave out detach(), argmax and rounding")


def _fault(loss: OwnLoss, what: str) -> ConfigError:
    return ConfigError(f"{loss}: {what}", key="loss")


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _shape(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
