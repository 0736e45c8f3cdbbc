"""Labels read off the gradient of the last linear layer.

One picture: iDLG (Zhao et al., 2020, arXiv:2001.02610): under cross-entropy the logits' gradient is p - y, so only the
label's entry is negative. Batches: LLG (Wainakh et al., PoPETs 2022, arXiv:2105.09369): a negative entry means a label
that is present; the average push of one example, subtracted once for every label found, tells which ones repeat.
Differs: the average push is the sum of the negative entries over the share of absent classes (an unsure model gives
each present label back its part), of which LLG's factor 1 + 1/classes is the case of a single label; LLG's offset for
what the model says on blank input is left out. The labels come in rising order, since the order within a batch leaves
no trace. Only signs and ratios are used, so a FedAvg update serves as well as a gradient. Batches larger than the
number of classes are read worse: a label at its expected share leaves no negative entry.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.errors import NotApplicableError
from gradveil.server import Observation
from gradveil.types import Labels


def given_or_idlg(seen: Observation) -> Labels:
    """The labels if the threat model grants them, else those inferred from the update."""
    return seen.labels if seen.labels is not None else inferred(seen)


def inferred(seen: Observation) -> Labels:
    """The labels as far as the last linear layer tells them."""
    pull = _pull(seen)
    if seen.training.loss == "binary-cross-entropy":
        # classes are independent: exact for one picture, and for a batch the majority's answer for every picture
        return (pull < 0).to(pull).unsqueeze(1).repeat(1, seen.examples, 1)
    return _repeated(_counts(pull, seen.examples), seen.examples)


def last_linear(model: nn.Module, classes: int) -> str:
    """The name of the last linear layer with one output per class."""
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    if not names:
        raise NotApplicableError(
            f"labels: the model has no linear layer with {classes} outputs to read them from, "
            "grant them to the attacker with --labels known"
        )
    return names[-1]


def _pull(seen: Observation) -> Tensor:
    """The logits' gradient up to a positive factor, [client, class].

    Without a bias it is the row sums of the weight's gradient, which have the same sign where the features are
    positive (after ReLU or sigmoid).
    """
    name = last_linear(seen.model, seen.classes)
    if f"{name}.bias" in seen.update:
        return seen.update[f"{name}.bias"]
    if f"{name}.weight" in seen.update:
        return seen.update[f"{name}.weight"].sum(-1)
    raise NotApplicableError(
        f"labels: the update does not hold the layer {name!r} to read them from, "
        "grant them to the attacker with --labels known"
    )


def _counts(pull: Tensor, examples: int) -> Tensor:
    """How many examples of each class, [client, class]: every negative entry once, then the lowest that remains."""
    classes = pull.shape[-1]
    absent = (pull >= 0).sum(-1, keepdim=True).clamp_min(1) / classes
    one = pull.clamp_max(0).sum(-1, keepdim=True) / absent / examples
    counts = torch.zeros_like(pull)
    for _ in range(examples):
        new = (pull < 0) & (counts == 0)
        remaining = pull - counts * one
        fresh_first = torch.where(new.any(-1, keepdim=True), remaining.masked_fill(~new, torch.inf), remaining)
        counts = counts + F.one_hot(fresh_first.argmin(-1), classes)
    return counts


def _repeated(counts: Tensor, examples: int) -> Labels:
    """One-hot labels in rising order, each as often as it was counted."""
    last = counts.cumsum(-1).unsqueeze(1)  # [client, 1, class]: the place after each class's last example
    place = torch.arange(examples, device=counts.device).view(1, -1, 1)
    return F.one_hot((last <= place).sum(-1), counts.shape[-1]).to(counts)
