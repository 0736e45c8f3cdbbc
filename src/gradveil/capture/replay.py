"""Do these pictures lead to this update? The client's round is run again, and if the answer is no, with one thing
changed at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from gradveil.audit.update_match import cosine, length
from gradveil.capture.causes import CAUSES
from gradveil.capture.causes.rounding import Undecided, find_undecided
from gradveil.capture.causes.story import Evidence, Story, relative_error, train_once
from gradveil.capture.decoys import draws_explain, explains_best
from gradveil.capture.format import Capture, Normalization
from gradveil.capture.mode import describe_mode
from gradveil.capture.orders import every_order_is_tried, list_orders
from gradveil.capture.preflight import pattern
from gradveil.capture.scenario import captured_scenario
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining, Replayed
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_received
from gradveil.core.types import Batch, Update
from gradveil.engine.estimate_training import estimate_training

TOLERANCE = 1e-3  # relative error: machines and frameworks round differently, pictures differ by far more
HALF = 1e-2  # of an update that was sent in 16 bits
LOST = 2**-22  # of the weights' length: what w_sent - w_after loses in float32


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How a client's round came out again."""

    status: Replayed
    error: float  # |update - replayed| / |update|
    cosine: float
    fits: str = ""  # what would explain the update, if something else does
    fit_error: float | None = None
    mode: str = ""  # what the client normalized by, where the statistics that it sent back tell
    pattern: str = ""  # what a defense leaves behind, where one seems to have been at work

    @property
    def summary(self) -> str:
        found = f"{self.status}, relative error {self.error:.2g}, cosine {self.cosine:.4f}"
        if self.fits:
            found += f"; it fits if {self.fits} (relative error {self.fit_error:.2g})"
        if self.mode:
            found += f"; normalized by {self.mode}"
        return f"{found}; a defense may have been at work: {self.pattern}" if self.pattern else found


def replay(
    capture: Capture, model: nn.Module, client: str, batch: Batch, defense: Defense | None = None,
    decoys: Batch | None = None, constants: Normalization | None = None,
) -> Replay:  # fmt: skip
    """Train on `batch` as the capture says and, if that does not lead there, with one thing changed at a time.

    `decoys` are other pictures, which must explain the update worse; `constants` are those that the data suggests.
    """
    found = _explain(capture, model, client, batch, defense, decoys, constants)
    return replace(found, mode=describe_mode(capture, client))


def _explain(
    capture: Capture, model: nn.Module, client: str, batch: Batch, defense: Defense | None,
    decoys: Batch | None, constants: Normalization | None,
) -> Replay:  # fmt: skip
    found = compare(capture, model, client, batch, defense, decoys)
    if found.status == "reproduced":
        return found
    nothing = ("", math.inf)
    name, best = min(explanations(capture, model, client, batch, constants), key=lambda pair: pair[1], default=nothing)
    if best <= tolerance(capture, client):
        return replace(found, status="not reproduced", fits=name, fit_error=best, pattern="")
    return found


def compare(
    capture: Capture, model: nn.Module, client: str, batch: Batch, defense: Defense | None = None,
    decoys: Batch | None = None,
) -> Replay:  # fmt: skip
    """Train on `batch` as the capture says, and nothing else."""
    update = {name: tensor.float() for name, tensor in capture.updates[client].items()}
    allowed, training = tolerance(capture, client), capture.training.for_examples(len(batch.images))
    unsure = {} if training.optimizer == "sgd" else find_undecided(model, batch, training)
    own = train_once(model, batch, training)
    error, angle = relative_error(update, own, unsure), cosine(own, update)
    if error <= allowed or _defense_explains(model, batch, training, defense, update, allowed):
        return Replay(status="reproduced", error=error, cosine=angle)
    if training.shuffles and (found := best_order(model, batch, training, update, unsure)) <= allowed:
        return Replay(status="reproduced", error=found, cosine=angle)
    left = pattern(update)
    # nobody changed it: then another picture of the same kind is the likelier reason
    drawn = training.draws and not every_order_is_tried(training, len(batch.images))
    changed = bool(left) or drawn or not (defense is None or defense.is_none)
    known = changed and decoys is not None and explains_best(model, training, update, batch, decoys)
    known = known and (bool(left) or not training.draws or draws_explain(model, batch, training, update))
    return Replay(status="alike" if known else "not reproduced", error=error, cosine=angle, pattern=left)


def tolerance(capture: Capture, client: str) -> float:
    """What rounding alone may cost."""
    update = capture.updates[client]
    half = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in update.values())
    half = half or capture.training.update_precision != "float32"
    sent = [capture.weights[name] for name in update]
    lost = LOST * float(length(sent) / length(list(update.values())).clamp_min(1e-300))
    return max(HALF if half else TOLERANCE, lost)


def best_order(
    model: nn.Module, batch: Batch, training: LocalTraining, update: Update, unsure: Undecided | None = None
) -> float:
    """The least relative error over all orders of the pictures, where those are few enough to try."""
    if replace(training, order="known").draws:
        return math.inf  # masks and crops are not known either
    known = replace(training, order="known")
    each = (Batch(batch.images[rows], batch.labels[rows]) for rows in list_orders(training, len(batch.images)))
    return min((relative_error(update, train_once(model, one, known), unsure) for one in each), default=math.inf)


def _defense_explains(
    model: nn.Module, batch: Batch, training: LocalTraining, defense: Defense | None, update: Update, allowed: float
) -> bool:
    """Whether the defense that was told leads there: one that draws at random never does."""
    if defense is None or defense.is_none:
        return False
    return relative_error(update, train_once(model, batch, training, defense)) <= allowed


def explanations(
    capture: Capture, model: nn.Module, client: str, batch: Batch, constants: Normalization | None = None
) -> Iterator[tuple[str, float]]:
    """One thing changed at a time, as far as that is quick, and the relative error that is left."""
    training = capture.training.for_examples(len(batch.images))
    story = Story(model=model, batch=batch, training=training)
    evidence = evidence_of(capture, model, client, batch, constants)
    for cause in CAUSES.values():
        for attempt in cause.attempts(story, evidence) if cause.quick else ():
            if attempt.quick:
                yield attempt.name, evidence.error(attempt.story)


def evidence_of(
    capture: Capture, model: nn.Module, client: str, batch: Batch, constants: Normalization | None = None
) -> Evidence:
    """What came from the client."""
    return Evidence(
        update={name: tensor.float() for name, tensor in capture.updates[client].items()},
        weights=capture.weights,
        tolerance=tolerance(capture, client),
        constants=constants,
        undecided=cache(lambda: find_undecided(model, batch, capture.training)),
    )


def search(capture: Capture, model: nn.Module, client: str, images: Tensor, labels: Tensor) -> int:
    """Of many pictures the one whose update points most like the client's."""
    update = {name: tensor.float() for name, tensor in capture.updates[client].items()}
    training = capture.training.as_attacked()
    played = in_client_mode(model, training)
    params, angles = parameters_of(played), []
    for row in range(len(images)):
        one = Batch(images[row : row + 1], labels[row : row + 1])
        angles.append(cosine(local_update(played, params, one, training, Defense(), Seed().rng()), update))
    return max(range(len(angles)), key=angles.__getitem__)


def describe_training(capture: Capture, model: nn.Module, compute: Compute = Compute()) -> str:
    """In words. Clients with the fewest pictures tell most; a defense misleads it."""
    least = min(count or 1 for count in capture.examples.values())
    clients = [client for client, count in capture.examples.items() if (count or 1) == least]
    are_known = all(client in capture.labels for client in clients)
    count = least * capture.aggregate
    scenario = captured_scenario(capture, model, clients, name="estimate", examples=count, knows_labels=are_known)
    seen, _ = observe_received(scenario, Defense())
    unknown = replace(seen.training, steps=1, rate=1.0)
    _, (note,) = estimate_training(replace(seen, training=unknown, training_known=False), compute)
    training = capture.training.for_examples(least)
    return f"{note}; the capture says tau = {training.steps}, rate = {training.rate:.2g}"
