"""Adaptive optimizers as a search can follow them.

A step of Adam is nearly the sign of the gradient: g / (|g| + epsilon), which is flat but where |g| is about epsilon.
The search therefore takes a larger epsilon, a share of the mean |g|, as the surrogate of signSGD takes a tanh. Measured
on LeNet, three steps of Adam at rate 1e-3, photographs of 16 pixels in batches of 4, `lbfgs-cosine` with 800 steps: of
16 pictures it names 14, and who takes the client for one of SGD names 4.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from gradveil.core.client import gradient_of, in_client_mode
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch

SOFT = 0.1  # of the mean |g| of a step


def soften_steps(seen: Observation) -> tuple[Observation, tuple[str, ...]]:
    """The same round for a search, and a note that says what it takes for epsilon."""
    training = seen.training
    if training.optimizer == "sgd":
        return seen, ()
    epsilon = SOFT * mean_gradient(seen)
    if training.optimizer == "rmsprop":
        epsilon *= math.sqrt(1 - training.smoothing)  # its average begins at 0 and is not corrected for that
    if not training.least < epsilon < math.inf:
        return seen, ()
    note = f"the client runs {training.optimizer}: the search takes {epsilon:.1g} as its epsilon, to have slopes"
    return replace(seen, training=replace(training, epsilon=epsilon)), (note,)


def mean_gradient(seen: Observation) -> float:
    """Mean |g| of one step on noise, for labels that are all alike."""
    model, like = in_client_mode(seen.model, seen.training), next(iter(seen.update.values()))
    images = uniform((seen.examples, *seen.shape), Seed().at("soft steps").rng(), like)
    labels = seen.target.even(images, seen.examples)
    params = {name: p.detach() for name, p in model.named_parameters() if name in seen.update}
    slopes = gradient_of(model, seen.training)(params, Batch(images, labels))
    return torch.cat([g.flatten() for g in slopes.values()]).abs().mean().item()
