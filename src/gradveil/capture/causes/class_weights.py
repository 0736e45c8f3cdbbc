"""A loss that weighs its classes: how much of each class's gradient is in the update, by least squares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story, flatten
from gradveil.core.types import Batch

MOST, FAR = 10, 0.02  # classes in the batch; how different weights have to be


def weigh_classes(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    """Of a batch whose pictures do not meet in batch normalization, and of one step."""
    labels, training = story.batch.labels, story.training
    if labels.dim() > 2 or training.loss != "cross-entropy":
        return
    hard = bool((labels.max(1).values == 1).all())
    present = sorted(set(labels.argmax(1).tolist()))
    alone = training.batchnorm == "eval" and training.is_linear and training.steps == 1
    if not (hard and alone and 1 < len(present) <= MOST) or training.class_weights:
        return
    rows = {one: labels.argmax(1) == one for one in present}
    each = [replace(story, batch=Batch(story.batch.images[r], labels[r])) for r in rows.values()]
    columns = torch.stack(
        [int(r.sum()) * flatten(evidence.play(s)) for r, s in zip(rows.values(), each, strict=True)], 1
    )
    target = flatten(evidence.received(story.form)).unsqueeze(1)
    shares = torch.linalg.lstsq(columns.T @ columns, columns.T @ target).solution.flatten()
    if float(shares.min()) <= 0 or float(shares.max() / shares.min()) < 1 + FAR:
        return
    weights = [1.0] * labels.shape[1]
    for one, share in zip(present, (shares / shares.mean()).tolist(), strict=True):
        weights[one] = float(f"{share:.4g}")
    shown = ", ".join(f"{weight:g}" for weight in weights)
    changed = replace(story, training=replace(training, class_weights=tuple(weights)))
    do = f"save the capture with training.class_weights = [{shown}], or with those of the client's loss"
    name = f"its loss weighed the classes: {shown} (fitted)"
    yield Attempt(name=name, story=changed, do=do, freedom=len(present))
