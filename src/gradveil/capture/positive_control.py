"""Built-in pictures in the place of those that nobody has: whether the attacks work on this model at all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from gradveil.audit.plan import diagnostic
from gradveil.capture.format import Capture
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.data.photos import photos

CLIENTS = 4


def positive_control(capture: Capture, model: nn.Module) -> Scenario | None:
    """Undefended clients with one photograph each, played on the model as sent; None if photographs do not fit it."""
    channels, height, width = capture.shape
    if channels not in (1, 3):
        return None
    images = photos(count=CLIENTS, size=max(height, width)).images[:, :, :height, :width]
    images = images.mean(1, keepdim=True) if channels == 1 else images
    labels = F.one_hot(torch.arange(CLIENTS) % capture.classes, capture.classes).float()
    played = Scenario(
        name="photos",
        model=model,
        private=Batch(images[:, None], labels[:, None]),
        names=tuple(f"photo-{number}" for number in range(CLIENTS)),
        training=capture.training,
        trained=capture.round > 0,
    )
    return diagnostic(played, early=False)
