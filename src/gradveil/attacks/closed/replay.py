"""A closed form is believed if its pictures, put through the attacker's own client, give the update that came.

How much of each tensor of the update they leave unexplained is measured by angle, and the median tensor counts: a
defense that spoils one layer or clips the whole hides nothing from it, a wrong picture fails in most of them. It must
also explain ten times more than a blank picture does, since some updates hardly depend on their pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.attack import Reconstruction
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.types import Images, Labels, PerClient, Update
from gradveil.engine.labels import gain, given_or_idlg
from gradveil.engine.matcher import OneTrial

BLANK = 0.5  # mid-gray, where nothing was read
UNEXPLAINED = 1e-3  # of the median tensor's squared length, at most
OF_BLANK = 0.1  # of what a blank picture leaves
LABELS = 10  # that are tried for a picture, where none is given


@dataclass(frozen=True)
class Unexplained:
    """1 - cosine^2 of the median tensor; tensors of one number or of zeros have no angle."""

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        pairs = [(dummy[n].flatten().double(), seen[n].flatten().double()) for n in seen if seen[n].numel() > 1]
        left = [one_minus_cosine_squared(d, s) for d, s in pairs if s.any()]
        return torch.stack(left).quantile(0.5) if left else next(iter(seen.values())).new_ones(()).double()


def one_minus_cosine_squared(dummy: Tensor, seen: Tensor) -> Tensor:
    """By the part of `seen` that is at right angles to the dummy: 1 - cosine^2 would end at rounding."""
    tiny = torch.finfo(dummy.dtype).tiny
    rest = seen - (dummy @ seen) / (dummy @ dummy).clamp_min(tiny) * dummy
    return (rest @ rest) / (seen @ seen).clamp_min(tiny)


@torch.no_grad()
def replay(seen: Observation, images: Images, labels: Labels) -> PerClient:
    """What these pictures leave unexplained of each client's update."""
    one, left = OneTrial.of(seen, Unexplained()), []
    for client in range(len(images)):
        update = {name: u[client] for name, u in seen.update.items()}
        left.append(one(images[client], labels[client], update))
    return torch.stack(left)


def without_decay(seen: Observation, name: str) -> Tensor:
    """An update less the pull of weight decay, as far as the weights stayed where they were."""
    decayed = seen.training.weight_decay * gain(seen.training)
    update = seen.update[name].nan_to_num(0, 0, 0)
    return update - decayed * seen.model.get_parameter(name).detach() if decayed else update


def is_alone(seen: Observation) -> bool:
    """Whether each update is of one picture."""
    return seen.as_fed().examples == 1


def find_nothing(seen: Observation, note: str) -> Reconstruction:
    """Blank pictures, where the method has nothing to say of this update."""
    like = next(iter(seen.update.values()))
    blank = like.new_full((len(seen.names), seen.examples, *seen.shape), BLANK)
    return verify(seen, blank, labels_or_even(seen), (note,))


def labels_or_even(seen: Observation) -> Labels:
    """Given or inferred; where there is nothing to infer them from, every class alike."""
    try:
        return given_or_idlg(seen)
    except NotApplicableError:
        like = next(iter(seen.update.values()))
        return seen.target.even(like, len(seen.names), seen.examples)


def verify_labels(seen: Observation, images: Images, most: float = UNEXPLAINED) -> Reconstruction:
    """One picture each: where the label that was inferred does not fit the picture, the next ones are tried."""
    best = verify(seen, images, labels_or_even(seen), most=most)
    if seen.labels is not None or not seen.target.has_classes:
        return best
    for label in range(min(seen.classes, LABELS)):
        if best.found.all():
            break
        labels = F.one_hot(torch.full((len(images), 1), label, device=images.device), seen.classes).to(best.labels)
        got = verify(seen, images, labels, most=most)
        better = ~best.found.all(1) & got.found.all(1)
        best = choose_clients(better, got, best)
    return best


def choose_clients(better: Tensor, got: Reconstruction, best: Reconstruction) -> Reconstruction:
    """Of each client the one or the other."""

    def pick(name: str) -> Tensor:
        new, old = getattr(got, name), getattr(best, name)
        return torch.where(better.view(-1, *(1,) * (new.dim() - 1)), new, old)

    return replace(best, **{name: pick(name) for name in ("images", "labels", "found", "loss")})


def verify(
    seen: Observation,
    images: Images,
    labels: Labels,
    notes: tuple[str, ...] = (),
    most: float = UNEXPLAINED,
    of_blank: float = OF_BLANK,
) -> Reconstruction:
    """What the replay confirms is found, and the rest is blank; `loss` is the share that the pictures leave."""
    like = next(iter(seen.update.values()))
    images = images.to(like).nan_to_num(BLANK, BLANK, BLANK).clamp(0, 1)
    blank = torch.full_like(images, BLANK)
    left, left_by_blank = replay(seen, images, labels), replay(seen, blank, labels)
    right = (left <= most) & (left < of_blank * left_by_blank)
    return Reconstruction(
        images=torch.where(right.view(-1, 1, 1, 1, 1), images, blank),
        labels=labels,
        found=right.unsqueeze(1).expand(images.shape[:2]),
        loss=left.to(like),
        notes=notes,
    )
