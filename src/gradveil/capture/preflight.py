"""Is this what it says it is? Looked at before an attack spends a minute on it, without knowing the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.audit.update_match import cosine, length
from gradveil.capture.format import Capture, Normalization
from gradveil.capture.layout import nearest, short
from gradveil.capture.mode import count_steps, list_moved
from gradveil.capture.names import rename_for, without_prefixes
from gradveil.core.client import BATCH_NORMS, parameters_of
from gradveil.core.errors import ConfigError, unknown
from gradveil.defenses import DEFENSES, find_defense
from gradveil.models import MODELS, load_model
from gradveil.models.normalize import NormalizesInput
from gradveil.models.start import weights_from
from gradveil.models.user import is_user_model

LIKE_WEIGHTS = 0.9  # cosine; an update hardly points where the weights point
AS_LONG = (0.5, 2.0)
ZERO_SUM = 1e-3


def check_capture(capture: Capture, model: nn.Module, where: str | Path = "capture") -> list[str]:
    """What is surely wrong raises; what is only strange is problem."""
    _check_aggregate(capture, where)
    for client, update in capture.updates.items():
        here = f"{where}: updates/{client}"
        if float(length(list(update.values()))) == 0:
            raise ConfigError(f"{here}: is zero everywhere, leave this client out")
        _check_weights(update, capture.weights, here)
        _check_sign(capture, model, client, here)
        _check_statistics(capture, client, f"{where}: training.batchnorm")
    return list(_strange(capture, model))


def _check_aggregate(capture: Capture, where: str | Path) -> None:
    """What is the same for all is no client's own."""
    first, *others = capture.updates.items()
    for client, update in others:
        if all(torch.equal(update[name], tensor) for name, tensor in first[1].items()):
            problem = f"is the update of {first[0]} too: what the server sees is their sum, not each client's"
            raise ConfigError(f"{where}: updates/{client}: {problem}, save it once with aggregate = number of clients")


def _check_weights(update: Mapping[str, Tensor], weights: Mapping[str, Tensor], here: str) -> None:
    sent = {name: weights[name] for name in update}
    ratio = float(length(list(update.values())) / length(list(sent.values())).clamp_min(1e-300))
    angle = cosine(update, sent)
    if abs(angle) > LIKE_WEIGHTS and AS_LONG[0] < ratio < AS_LONG[1]:
        problem = f"looks like weights, not like an update (cosine {angle:.3f} with the weights sent)"
        raise ConfigError(f"{here}: {problem}, save w_sent - w_after")


def _check_sign(capture: Capture, model: nn.Module, client: str, here: str) -> None:
    """Cross-entropy pulls the last bias towards the labels alone, and a gradient is negative there and nowhere else."""
    bias = last_bias(model)
    count, classes = capture.examples[client] * capture.aggregate, capture.classes
    tells = capture.training.loss == "cross-entropy" and capture.training.optimizer == "sgd"
    if bias is None or not tells or not 0 < 2 * count < classes:
        return
    values = capture.updates[client][bias].double()
    balanced = float(values.sum().abs()) < ZERO_SUM * float(values.abs().sum())
    if balanced and int((values > 0).sum()) <= count and int((values < 0).sum()) >= classes - count:
        problem = f"its sign is flipped: {bias} grows for the labels, as w_after - w_sent would"
        raise ConfigError(f"{here}/{bias}: {problem}, save w_sent - w_after")


def last_bias(model: nn.Module) -> str | None:
    """Of the layer that gives the logits, where that is a linear one."""
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer.bias is not None]
    parameters = list(parameters_of(model))
    name = f"{linear[-1]}.bias" if linear else ""
    return name if name in parameters[-2:] else None


def _check_statistics(capture: Capture, client: str, here: str) -> None:
    """Running statistics that moved were taken in training mode."""
    if capture.training.batchnorm == "batch-shared":
        return
    if moved := list_moved(capture.weights, capture.statistics.get(client, {})):
        problem = f"is {capture.training.batchnorm}, but {client} sent other statistics of {moved[0]} than it got"
        raise ConfigError(f"{here}: {problem}, say batch-shared")


def _strange_statistics(capture: Capture) -> Iterator[str]:
    """What the running statistics say that came back, where the capture says otherwise."""
    training = capture.training
    if declared := capture.declared.get("batchnorm"):
        yield f"batchnorm was declared {declared}, and running statistics came back changed: it is {training.batchnorm}"
    for client, back in capture.statistics.items():
        moved, steps = list_moved(capture.weights, back), count_steps(capture.weights, back)
        if not moved and training.batchnorm == "batch-shared":
            yield f"batchnorm is batch-shared, but {client} sent running statistics as it got them: it seems to be eval"
        said = training.for_examples(capture.examples[client] or 1).steps
        if moved and steps is not None and capture.examples[client] and steps != said:
            yield f"{client} counted {steps} forward passes in training mode, the capture says {said} steps"


def _strange(capture: Capture, model: nn.Module) -> Iterator[str]:
    training = capture.training
    layers = any(isinstance(layer, BATCH_NORMS) for layer in model.modules())
    if training.batchnorm != "eval" and not layers:
        yield f"batchnorm is {training.batchnorm}, but the model has no batch normalization: it changes nothing"
    yield from _strange_statistics(capture)
    if capture.normalization is None and not isinstance(model, NormalizesInput):
        missed = "if the client normalizes its pictures, the attacks look for normalized ones"
        yield f"normalization is null: {missed}; `normalize` takes its constants"
    if training.steps == 1 and training.rate != 1.0 and training.is_plain_step and not training.epochs:
        yield f"one step at rate {training.rate:g}: right for w_sent - w_after; if it is the gradient, say rate 1"
    if capture.defense not in ("", "none"):
        yield f"the client says that it ran {capture.defense}, which nobody can check"
    for client, update in capture.updates.items():
        if found := pattern(update):
            yield f"{client}: {found}"


def pattern(update: Mapping[str, Tensor]) -> str:
    """What a defense leaves behind that can be seen without knowing the pictures."""
    values = torch.cat([tensor.flatten() for tensor in update.values()]).double()
    zeros = zeros_among_living(update)
    sizes = [tensor.abs()[tensor != 0].unique() for tensor in update.values()]
    if all(len(size) <= 1 for size in sizes) and values.numel() > len(update):
        return "every number of a layer has one size: only signs were sent (sign)"
    if zeros > 0.5:
        return f"{zeros:.0%} of its numbers are zero, beside numbers that are not: it was thinned out (prune, topk)"
    return ""


def zeros_among_living(update: Mapping[str, Tensor]) -> float:
    """The share of zeros, without whole rows and columns of them: a silent neuron or a black pixel leaves these."""
    zeros = total = 0
    for tensor in (tensor for tensor in update.values() if tensor.dim() > 1):
        alive = tensor.flatten(2).abs().sum(2) if tensor.dim() > 2 else tensor
        rows, columns = ((alive != 0).any(dim) for dim in (1, 0))
        inside = tensor[rows][:, columns]
        zeros, total = zeros + int((inside == 0).sum()), total + inside.numel()
    return zeros / max(total, 1)


def model_of(capture: Capture, spec: str = "", where: str | Path = "capture") -> nn.Module:
    """`spec` is what the user names; a capture itself can name a model of the catalogue and nothing else."""
    if not spec and capture.model not in MODELS:
        if not capture.model:
            raise ConfigError(
                f"{where}: model: the capture does not name one, set `model` to a name or to file.py:factory"
            )
        raise unknown("model", capture.model[:100], MODELS, f"{where}: model")
    model = as_sent(
        bare_model(spec or capture.model, capture, capture.normalization), without_prefixes(capture.weights)
    )
    capture, _ = rename_for(capture, model)
    _check_names(model.state_dict(), capture.weights, where)
    _check_parameters(model, capture, where)
    model.load_state_dict(dict(capture.weights), strict=True)
    return model.eval()


def as_sent(model: nn.Module, sent: Mapping[str, Tensor]) -> nn.Module:
    """As a defense changed it, where the weights show that one did, whatever the capture says."""
    found = find_defense({name: tuple(tensor.shape) for name, tensor in sent.items()})
    return model if found is None else DEFENSES[found.name](**found.options).model(model)


def bare_model(spec: str, capture: Capture, normalization: Normalization | None) -> nn.Module:
    """Of the right size and with these constants; its weights mean nothing yet."""
    if is_user_model(spec):
        model = load_model(spec, classes=capture.classes, shape=capture.shape)
        with torch.no_grad(), weights_from(0):
            model.eval()(torch.zeros(1, *capture.shape))  # lazy layers get their shapes
        return model
    if spec not in MODELS:
        raise unknown("model", spec, MODELS)
    constants: dict[str, Any] = {} if normalization is None else dict(zip(("mean", "std"), normalization, strict=True))
    return MODELS[spec](classes=capture.classes, shape=capture.shape, seed=0, **constants)


def _check_names(own: Mapping[str, Tensor], sent: Mapping[str, Tensor], where: str | Path) -> None:
    for name, tensor in sent.items():
        if name not in own:
            if name.startswith("normalize."):
                problem = "the weights hold constants and the capture says null, add them"
                raise ConfigError(f"{where}: normalization: {problem}")
            raise ConfigError(
                f"{where}: weights/{name}: the model has no such layer, {nearest(name, own_shape(tensor), own)}"
            )
        if tensor.shape != own[name].shape:
            problem = f"{short(tensor.shape)}, the model has {short(own[name].shape)}"
            raise ConfigError(f"{where}: weights/{name}: has the shape {problem}, give the model it was made with")
    for name, tensor in own.items():
        if name not in sent:
            if name.startswith("normalize."):
                raise ConfigError(f"{where}: normalization: the weights hold no such constants, set it to null")
            problem = nearest(name, own_shape(tensor), {n: t for n, t in sent.items() if n not in own})
            raise ConfigError(f"{where}: weights/{name}: is missing, {problem}")


def own_shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _check_parameters(model: nn.Module, capture: Capture, where: str | Path) -> None:
    """An update speaks of every parameter that is trained, and of no buffer."""
    client, update = next(iter(capture.updates.items()))
    trained = parameters_of(model)
    if missing := [name for name in trained if name not in update]:
        raise ConfigError(f"{where}: updates/{client}/{missing[0]}: is missing, save every trained parameter")
    if strange := [name for name in update if name not in trained]:
        problem = "is a buffer and no trained parameter, put it under statistics/"
        raise ConfigError(f"{where}: updates/{client}/{strange[0]}: {problem}")
