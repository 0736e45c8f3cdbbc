"""Labels read off the gradient of the last linear layer.

One picture: iDLG (Zhao et al., 2020, arXiv:2001.02610): under cross-entropy the logits' gradient is p - y, so only the
label's entry is negative. Batches have four rules: the counts that explain the gradient best given what the model says
of each class (`label_counts`), in the spirit of LLG (Wainakh et al., PoPETs 2022, arXiv:2105.09369); the signs alone;
the lowest rows of the weight's gradient (Yin et al., CVPR 2021); and the likeliest counts by numbers whose meaning is
learned on batches of practice (`label_posterior`), which falls back to "every class alike". All of them are tried on
batches of practice made of public pictures, or of blots of color where there are none, and each client gets the rule
that did best on batches like its own (`label_rules`). Without a bias its gradient is that of the weight along the
direction in which public features are nearest to 1. Where the client's rate is unknown, or the gradient is longer or
shorter than it can be (somebody scaled it), its direction alone is read.

Share of a batch's labels that are right, order aside: every class alike / as before these rules, without public
pictures / now without / now with 256. CIFAR-10's test pictures drawn at random, 300 batches each (as before: 100; with
five local steps: 60), standard error at most 0.016. A trained network has 91.7 % of these pictures right.

    batch                       resnet20 untrained            resnet20 trained
    2                           0.21 / 1.00 / 1.00 / 1.00     0.18 / 0.66 / 0.66 / 0.71
    8                           0.57 / 1.00 / 1.00 / 1.00     0.56 / 0.46 / 0.63 / 0.65
    32                          0.79 / 1.00 / 1.00 / 1.00     0.79 / 0.59 / 0.79 / 0.80
    8, five steps of rate 0.01  0.55 / 1.00 / 1.00 / 1.00     0.55 / 0.49 / 0.65 / 0.69
    8, five steps of rate 0.1   0.55 / 0.95 / 0.80 / 0.94     0.56 / 0.26 / 0.58 / 0.59

What is learned for one step misleads after five large ones of an untrained network: there the old rule was better. A
model that is sure of its answer leaves no trace of the label. Labels come in rising order, since the order within a
batch leaves none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.client import in_client_mode
from gradveil.core.errors import NotApplicableError
from gradveil.core.local_optimizer import impulses
from gradveil.core.local_training import LocalTraining
from gradveil.core.observation import Observation
from gradveil.core.own_loss import OwnLoss
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Labels
from gradveil.engine.label_counts import Pushes, by_signs
from gradveil.engine.label_practice import BELIEF, Gradients, Pictures, move_to_classes
from gradveil.engine.label_rules import Practice, count_labels

OVERALL = 2.0  # pictures' worth of trust in the mean over all classes, against those of one class
RIDGE = 0.1  # against fitting the features of so few pictures exactly
BLOTS, MADE = 64, 256
InferLabels = Callable[[Observation], Labels | None]


def given_or_idlg(seen: Observation) -> Labels:
    """The labels if the threat model grants them, else those inferred from the update."""
    return seen.labels if seen.labels is not None else infer_labels(seen)


def infer_labels(seen: Observation) -> Labels:
    """The labels as far as the last linear layer tells them."""
    require_labels(seen)
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
    require_labels(seen)
    if seen.training.loss == "binary-cross-entropy":
        raise NotApplicableError(
            "GradInversion's rule reads one label per picture, and these have several, "
            "grant them to the attacker with `labels = known`",
            key="labels",
        )
    if not seen.training.is_linear:
        raise NotApplicableError(
            f"GradInversion's rule reads the size of gradients, and the client runs {seen.training.optimizer}, "
            "grant them to the attacker with `labels = known`",
            key="labels",
        )
    lowest = _head(seen, "weight").amin(-1).argsort(-1)
    places = torch.arange(seen.examples, device=lowest.device) % seen.classes
    return F.one_hot(lowest[:, places].sort(-1).values, seen.classes).to(next(iter(seen.update.values())))


def without_rules(seen: Observation) -> str:
    """Why no rule reads the targets off a gradient: they know the slopes of two losses, and labels of pictures."""
    if isinstance(seen.training.loss, OwnLoss):
        return f"rules know the slopes of cross-entropy, and the client's loss is its own ({seen.training.loss})"
    if seen.target.has_classes:
        return ""
    return f"rules read labels of pictures, and here the target is {'a mask' if seen.target.is_dense else 'numbers'}"


def require_labels(seen: Observation) -> None:
    """NotApplicableError where no rule reads the targets off a gradient."""
    if why := without_rules(seen):
        raise NotApplicableError(
            f"{why}, grant them to the attacker with `labels = known` or search them with dlg-joint", key="labels"
        )


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
    along = _instead_of_bias(seen)
    return _head(seen, "bias") if along is None else _head(seen, "weight") @ along


def _instead_of_bias(seen: Observation) -> Tensor | None:
    """Along which features the weight's gradient is read where the head has no bias, [feature]."""
    if f"{last_linear(seen.model, seen.classes)}.bias" in seen.update:
        return None
    if seen.public is None:
        return torch.ones_like(_head(seen, "weight")[0, 0])
    return _nearest_to_one(_answers(seen, seen.public.images)[1])


def _head(seen: Observation, part: str) -> Tensor:
    """The last layer's update as one gradient of the size of a single step's, without weight decay."""
    name = f"{last_linear(seen.model, seen.classes)}.{part}"
    if name not in seen.update:
        raise NotApplicableError(
            f"the update does not hold {name!r} to read them from, grant them to the attacker with `labels = known`",
            key="labels",
        )
    if not seen.training.is_linear:
        return seen.update[name].nan_to_num(0, 0, 0)  # its signs are a gradient's, its sizes are not
    decayed = seen.training.weight_decay * seen.model.get_parameter(name).detach()
    return (seen.update[name] / gain(seen.training) - decayed).nan_to_num(0, 0, 0)


def gain(training: LocalTraining) -> float:
    """How much of a constant gradient a round's update would be.

    >>> gain(LocalTraining(steps=3, rate=0.5)), gain(LocalTraining(steps=2, momentum=0.5))
    (1.5, 2.5)
    """
    return sum(impulses(training))


def _counts(seen: Observation, pull: Tensor) -> Tensor:
    """How many examples of each class, [client, class]."""
    if (
        seen.examples == 1
        or not seen.training.is_linear
        or f"{last_linear(seen.model, seen.classes)}.weight" not in seen.update
    ):
        return by_signs(pull, seen.examples)
    received = Gradients(_head(seen, "weight").double(), pull.double())
    along = _instead_of_bias(seen)
    has_length = seen.training_known and (along is None or seen.public is not None)
    pushes = [Pushes(each) for each in _expected_pushes(seen)] if has_length else []
    known = Practice.draw(_known_pictures(seen), seen.examples, along, Seed().at("labels").rng())
    return count_labels(received, seen.examples, known, pushes).to(pull)


def _known_pictures(seen: Observation) -> list[Pictures]:
    """What enters the last layer and what is answered, of public pictures or of blots: see `label_practice`."""
    layer = seen.model.get_submodule(last_linear(seen.model, seen.classes))
    assert isinstance(layer, nn.Linear)
    if seen.public is not None:
        answers, features = _answers(seen, seen.public.images)
        return [Pictures(features.double(), answers.double(), seen.public.labels[: len(answers)].argmax(-1))]
    rng = Seed().at("labels", "made").rng()
    answers, features = (x.double() for x in _answers(seen, _blots(seen, MADE)))
    weight = layer.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()
    unknown = Pictures(
        features, answers, torch.randint(seen.classes, (len(answers),), generator=rng).to(answers.device)
    )
    moved, labels = move_to_classes(features, weight, bias, rng)
    return [unknown, Pictures(moved, (moved @ weight.T + bias).softmax(-1), labels, BELIEF)]


def _blots(seen: Observation, count: int) -> Tensor:
    like = next(iter(seen.update.values()))
    small = uniform((count, seen.shape[0], 4, 4), Seed().at("blots").rng(), like)
    return F.interpolate(small, seen.shape[1:], mode="bilinear")


def _expected_pushes(seen: Observation) -> Iterator[Tensor]:
    """What one example of each class is thought to do to the logits, [class, class]: one guess after the other."""
    like = next(iter(seen.update.values()))
    one_hot = torch.eye(seen.classes, dtype=torch.float64, device=like.device)
    if seen.public is not None:
        answers = _answers(seen, seen.public.images)[0].double()
        labels = seen.public.labels[: len(answers)].to(answers)
        yield (labels.T @ answers + OVERALL * answers.mean(0)) / (labels.sum(0).unsqueeze(-1) + OVERALL) - one_hot
        return
    gray = like.new_full((seen.examples, *seen.shape), 0.5)
    for pictures in (_blots(seen, BLOTS), gray):
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
