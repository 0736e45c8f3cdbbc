"""Labels read off the gradient of the last linear layer.

One picture: iDLG (Zhao et al., 2020, arXiv:2001.02610): under cross-entropy the logits' gradient is p - y, so only the
label's entry is negative. Batches: the counts that explain the gradient best given what the model says of public
pictures of each class, in the spirit of LLG (Wainakh et al., PoPETs 2022, arXiv:2105.09369); without public pictures,
given what it says of gray, of blots of color, or nothing at all, whichever explains it best. An entry of -x proves
x * batch examples of its class. Without a bias its gradient is that of the weight along the direction in which public
features are nearest to 1. Where neither is there, where the client's rate is unknown, or where the fit explains less
than four fifths of the gradient (somebody scaled it), the signs decide alone, as in LLG without public data.

Share of batches whose labels are all right, order aside: by signs alone / without / with 256 public pictures. Ten
classes of CIFAR-100, 100 batches each, half of them of three classes; single pictures are always right.

    batch   lenet untrained      mlp untrained        convnet8, 37 % right   convnet8, 56 % right
    2       0.68 / 0.99 / 0.99   1.00 / 1.00 / 1.00   1.00 / 1.00 / 1.00     0.96 / 0.96 / 0.96
    8       0.02 / 0.88 / 0.80   1.00 / 1.00 / 1.00   0.17 / 0.17 / 0.81     0.21 / 0.17 / 0.26
    32      0.00 / 0.18 / 0.38   0.50 / 1.00 / 1.00   0.00 / 0.00 / 0.09     0.00 / 0.00 / 0.01

Of the last row's labels 0.75 to 0.87 / 0.82 to 1.00 / 0.88 to 1.00 are right all the same. A model that is sure of its
answer leaves no trace of the label. They come in rising order, since the order within a batch leaves none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.client import in_client_mode
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Labels
from gradveil.engine.label_counts import EXPLAINED, Pushes, by_signs

OVERALL = 2.0  # pictures' worth of trust in the mean over all classes, against those of one class
RIDGE = 0.1  # against fitting the features of so few pictures exactly
BLOTS = 64
InferLabels = Callable[[Observation], Labels | None]


def given_or_idlg(seen: Observation) -> Labels:
    """The labels if the threat model grants them, else those inferred from the update."""
    return seen.labels if seen.labels is not None else infer_labels(seen)


def infer_labels(seen: Observation) -> Labels:
    """The labels as far as the last linear layer tells them."""
    pull = _pull(seen)
    if seen.training.loss == "binary-cross-entropy":
        # classes are independent: exact for one picture, and for a batch the majority's answer for every picture
        return (pull < 0).to(pull).unsqueeze(1).repeat(1, seen.examples, 1)
    return _repeat(_counts(seen, pull), seen.examples)


def given_or_lowest(seen: Observation) -> Labels:
    """The labels if they are granted, else those whose row of the last weight's gradient has the lowest entries.

    GradInversion's rule (Yin et al., 2021, eq. 5), for batches without repeated labels and positive features.
    """
    if seen.labels is not None:
        return seen.labels
    if seen.training.loss == "binary-cross-entropy":
        raise NotApplicableError(
            "GradInversion's rule reads one label per picture, and these have several, "
            "grant them to the attacker with `labels = known`",
            key="labels",
        )
    lowest = _head(seen, "weight").amin(-1).argsort(-1)
    places = torch.arange(seen.examples, device=lowest.device) % seen.classes
    return F.one_hot(lowest[:, places].sort(-1).values, seen.classes).to(next(iter(seen.update.values())))


def last_linear(model: nn.Module, classes: int) -> str:
    """The name of the last linear layer with one output per class."""
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    if not names:
        raise NotApplicableError(
            f"the model has no linear layer with {classes} outputs to read them from, "
            "grant them to the attacker with `labels = known`",
            key="labels",
        )
    return names[-1]


def _pull(seen: Observation) -> Tensor:
    """The logits' gradient, [client, class]; up to a positive factor if there is neither a bias nor a public picture.

    The row sums of the weight's gradient have the same sign where the features are positive (after ReLU or sigmoid).
    """
    if f"{last_linear(seen.model, seen.classes)}.bias" in seen.update:
        return _head(seen, "bias")
    rows = _head(seen, "weight")
    return rows.sum(-1) if seen.public is None else rows @ _nearest_to_one(_answers(seen, seen.public.images)[1])


def _head(seen: Observation, part: str) -> Tensor:
    """The last layer's update as one gradient of the size of a single step's, without weight decay."""
    name = f"{last_linear(seen.model, seen.classes)}.{part}"
    if name not in seen.update:
        raise NotApplicableError(
            f"the update does not hold {name!r} to read them from, grant them to the attacker with `labels = known`",
            key="labels",
        )
    decayed = seen.training.weight_decay * seen.model.get_parameter(name).detach()
    return (seen.update[name] / gain(seen.training) - decayed).nan_to_num(0, 0, 0)


def gain(training: LocalTraining) -> float:
    """How much of a constant gradient a round's update would be.

    >>> gain(LocalTraining(steps=3, rate=0.5)), gain(LocalTraining(steps=2, momentum=0.5))
    (1.5, 2.5)
    """
    velocity = total = 0.0
    for _ in range(training.steps):
        velocity = training.momentum * velocity + 1
        total += velocity
    return training.rate * total


def _counts(seen: Observation, pull: Tensor) -> Tensor:
    """How many examples of each class, [client, class]."""
    counts = by_signs(pull, seen.examples)
    of_bias = f"{last_linear(seen.model, seen.classes)}.bias" in seen.update
    if seen.examples == 1 or not seen.training_known or not (of_bias or seen.public):
        return counts
    expected = [Pushes(each) for each in _expected_pushes(seen)]
    push = seen.examples * pull.double()
    least = (push.neg() - 1e-3).ceil().clamp_min(0) if of_bias else (push < 0).to(push)
    for client, one in enumerate(push):
        fits = [pushes.fit(one, least[client], seen.examples) for pushes in expected]
        best, left = min(fits, key=lambda fit: float(fit[1]))
        if left < EXPLAINED:
            counts[client] = best.to(counts)
    return counts


def _expected_pushes(seen: Observation) -> Iterator[Tensor]:
    """What one example of each class is thought to do to the logits, [class, class]: one guess after the other."""
    like = next(iter(seen.update.values()))
    one_hot = torch.eye(seen.classes, dtype=torch.float64, device=like.device)
    if seen.public is not None:
        answers = _answers(seen, seen.public.images)[0].double()
        labels = seen.public.labels[: len(answers)].to(answers)
        yield (labels.T @ answers + OVERALL * answers.mean(0)) / (labels.sum(0).unsqueeze(-1) + OVERALL) - one_hot
        return
    small = uniform((BLOTS, seen.shape[0], 4, 4), Seed().at("blots").rng(), like)
    gray = like.new_full((seen.examples, *seen.shape), 0.5)
    for pictures in (F.interpolate(small, seen.shape[1:], mode="bilinear"), gray):
        yield _answers(seen, pictures)[0].double().mean(0) - one_hot
    yield 1 / seen.classes - one_hot


@torch.no_grad()
def _answers(seen: Observation, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """The model's answers [picture, class] and what enters its last layer, in batches of the client's size."""
    model, features = in_client_mode(seen.model, seen.training), []
    layer = model.get_submodule(last_linear(model, seen.classes))
    layer.register_forward_pre_hook(lambda _layer, inputs: features.append(inputs[0].flatten(0, -2)))
    batches = pictures.split(seen.examples if seen.training.batchnorm != "eval" else len(pictures))
    whole = [batch for batch in batches if len(batch) == len(batches[0])]  # a rest may be too few to normalize
    return torch.cat([model(batch).softmax(-1) for batch in whole]), torch.cat(features)


def _nearest_to_one(features: Tensor) -> Tensor:
    """The direction v with features @ v nearest to 1: the weight's gradient along it is nearly the bias's."""
    inputs = features.double()
    inner = inputs @ inputs.T
    ridge = RIDGE * inner.diagonal().mean() * torch.eye(len(inputs), dtype=inputs.dtype, device=inputs.device)
    return (inputs.T @ torch.linalg.solve(inner + ridge, inputs.new_ones(len(inputs)))).to(features)


def _repeat(counts: Tensor, examples: int) -> Labels:
    """One-hot labels in rising order, each as often as it was counted."""
    last = counts.cumsum(-1).unsqueeze(1)  # [client, 1, class]: the place after each class's last example
    place = torch.arange(examples, device=counts.device).view(1, -1, 1)
    return F.one_hot((last <= place).sum(-1), counts.shape[-1]).to(counts)
