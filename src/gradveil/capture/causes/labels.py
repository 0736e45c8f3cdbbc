"""Other labels than the data has: read off the last layer, whose inputs the pictures give.

The gradient of a last linear layer is the sum over the pictures of (probability - label) times the layer's input. With
inputs and probabilities known, the labels are the solution of linear equations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.client import in_client_mode, parameters_of
from gradveil.core.types import Batch

DO = "give the data with the labels that the client used: classes in the same order, counted from 0"


def change_labels(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    labels = story.batch.labels
    if labels.shape[1] < 2 or story.training.loss != "cross-entropy":
        return
    for shift, name in ((1, "one higher"), (-1, "one lower")):
        yield _attempt(story, labels.roll(shift, 1), f"its labels were {name} than in the data")
    yield _attempt(story, labels.flip(1), "its classes were in the opposite order")
    found = solve_labels(story, evidence)
    if found is not None and not torch.equal(found, labels):
        changed = int((found.argmax(1) != labels.argmax(1)).sum())
        name = f"its labels differ from the data's in {changed} of {len(labels)} pictures"
        yield replace(_attempt(story, found, name), freedom=changed)


def _attempt(story: Story, labels: Tensor, name: str) -> Attempt:
    return Attempt(name=name, story=replace(story, batch=Batch(story.batch.images, labels)), do=DO)


def solve_labels(story: Story, evidence: Evidence) -> Tensor | None:
    """One-hot; None where the model does not end in a linear layer, or the update is no sum of gradients."""
    name = last_linear(story.model)
    training = story.training
    if name is None or not training.is_linear or training.optimizer != "sgd":
        return None
    inputs, logits = _see(story, name)
    weight = f"{name}.weight"
    if inputs.dim() != 2 or weight not in evidence.update or logits.shape != story.batch.labels.shape:
        return None
    gradient = evidence.received(story.form)[weight].double() / (story.factor * training.rate * training.steps)
    sums = gradient.T * len(inputs)  # [input, class]: inputs^T (probability - label)
    if float(evidence.update[weight].abs().sum()) == 0:
        return None
    difference = torch.linalg.lstsq(inputs.double().T, sums).solution
    guess = logits.double().softmax(1) - difference
    return F.one_hot(guess.argmax(1), logits.shape[1]).to(story.batch.labels.dtype)


def last_linear(model: nn.Module) -> str | None:
    """The name of the layer that gives the logits, where that is a linear one."""
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    own = list(parameters_of(model))
    return linear[-1] if linear and own and own[-1].startswith(f"{linear[-1]}.") else None


def _see(story: Story, name: str) -> tuple[Tensor, Tensor]:
    client, seen = in_client_mode(story.model, story.training.as_attacked()), []
    hook = client.get_submodule(name).register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0]))
    try:
        with torch.no_grad():
            logits = client(story.fed.images)
    finally:
        hook.remove()
    return seen[-1], logits
