"""The pictures behind a single-layer model (logistic regression), as attacked in OASIS (Jeter et al., 2024, sec. IV-D).

The gradient of class c's row is dW_c = sum_k d_kc x_k' with d = p - y, and db_c the sum of the same d. Where no other
picture has label c, x_k ~ dW_c / db_c; the others still enter with their p. Differs: d is solved for. Given d, the
pictures X are the least-squares fit of dW = d' X, and their logits X W' + b give d again; that takes only dW W', so the
search is as small as d itself. For labels that do not repeat it ends at the pictures exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.attacks.closed.gradient_only import require_gradients
from gradveil.attacks.imprint.readout import labels_of
from gradveil.attacks.linear import first_linear
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.client import loss_of
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.models.normalize import constants_of

PAPER = Paper(
    "OASIS: Offsetting Active Reconstruction Attacks in Federated Learning", "Jeter et al.", 2024, "arXiv:2311.13739"
)
BLANK = 0.5
DAMPING = 0.5  # without it some batches of 64 go round in circles
SOLVED = 8  # units in the last place


def linear_model(*, refine: int = 200) -> LinearModel:
    """Reads the pictures of a single-layer model off its gradient, one per label, exactly.

    `refine`: steps of the search, at most; 0 is the paper's attack, row of the weight gradient over bias gradient.
    """
    return LinearModel(refine=refine)


@dataclass(frozen=True, kw_only=True)
class LinearModel(Attack):
    """Reads each picture off the row of its label."""

    refine: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.refine <= 10_000:
            raise ConfigError(f"refine = {self.refine} is out of range, take 0 to 10,000", key="linear-model")

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        _only_layer(seen)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is the share of dW that the pictures found do not explain."""
        seen = seen.average_rounds()
        name = _only_layer(seen)
        labels = labels_of(seen)
        weight, bias = seen.update[f"{name}.weight"], seen.update[f"{name}.bias"]
        clients = [self._client(seen, name, *one) for one in zip(weight, bias, labels, strict=True)]
        inputs, found, loss = (torch.stack(each) for each in zip(*clients, strict=True))
        mean, std = (c.to(inputs).view(-1, 1, 1) for c in constants_of(seen.model, seen.shape[0]))
        pictures = (inputs.unflatten(-1, seen.shape) * std + mean).clamp(0, 1)
        return Reconstruction(
            images=torch.where(found[..., None, None, None], pictures, BLANK),
            labels=labels,
            found=found,
            loss=loss,
            notes=_notes(seen, found),
        )

    def _client(
        self, seen: Observation, name: str, weight: Tensor, bias: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's inputs, which of them are read, and what they leave unexplained."""
        of = labels.argmax(-1)
        inputs = (weight[of] / bias[of, None]).nan_to_num(0.0, 0.0, 0.0)
        layer = seen.model.get_submodule(name)
        sound = bool(weight.isfinite().all() & bias.isfinite().all())
        if self.refine and sound:
            push = self._solve(seen, layer, weight.double(), bias.double(), labels.double())
            inputs = (torch.linalg.pinv(push.T) @ weight.double()).to(weight)
        push = _push(functional_call(layer, {}, (inputs,)).detach(), labels, seen)
        unexplained = (weight - push.T @ inputs).norm() / weight.norm()
        return inputs, _first_of_each(of), unexplained if sound else torch.full_like(unexplained, torch.nan)

    def _solve(self, seen: Observation, layer: nn.Module, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
        """The pushes at which the pictures that they imply push just so, [example, class]."""
        rows, offset = (p.detach().double() for p in layer.parameters())  # searching in float32 would lose digits
        across = weight @ rows.T
        push = _summing_to(bias, _push(offset.expand_as(labels), labels, seen))
        best, least = push, torch.inf
        for _ in range(self.refine):
            logits = torch.linalg.pinv(push.T) @ across + offset
            off = _summing_to(bias, _push(logits, labels, seen)) - push
            change = float(off.norm() / push.norm())
            if change < least:
                best, least = push, change
            if not change > SOLVED * torch.finfo(push.dtype).eps:
                break
            push = push + DAMPING * off
        return best


def _push(logits: Tensor, labels: Tensor, seen: Observation) -> Tensor:
    """The gradient of the loss by the logits, as the update weighs it, [example, class]."""
    with torch.enable_grad():
        logits = logits.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss_of(logits, labels, seen.training.loss), logits)
    return gradient * seen.training.rate * seen.training.steps


def _summing_to(bias: Tensor, push: Tensor) -> Tensor:
    """The nearest pushes whose sum over the examples is the bias gradient, as the true ones' is."""
    return push + (bias - push.sum(0)) / len(push)


def _only_layer(seen: Observation) -> str:
    """The name of the model's one linear layer, which sees the pictures and gives the logits."""
    require_gradients(seen, "linear-model", exact=True)
    if not seen.target.has_classes:
        raise NotApplicableError("reads the row of a picture's class, and these have none", key="linear-model")
    name = first_linear(seen, Seed())
    trained = {key.rpartition(".")[0] for key, p in seen.model.named_parameters() if p.requires_grad}
    if trained != {name} or f"{name}.bias" not in seen.update:
        raise NotApplicableError(
            "the model is more than one linear layer with a bias, choose linear or another attack", key="linear-model"
        )
    return name


def _first_of_each(labels: Tensor) -> Tensor:
    """Two pictures of one label share a row: one of them at most can be read."""
    earlier = (labels[:, None] == labels[None]).tril(-1)
    return ~earlier.any(-1)


def _notes(seen: Observation, found: Tensor) -> tuple[str, ...]:
    notes = []
    if not found.all():
        notes.append("linear-model: labels repeat, and pictures of one label cannot be told apart")
    if seen.training.steps > 1:
        notes.append("linear-model: several local steps, so the rows are mixtures over them")
    return tuple(notes)
