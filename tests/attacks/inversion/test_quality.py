"""In float32 trajectories part, so what must be equal is how good the pictures are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradveil.attacks.invertgrad import invertgrad
from gradveil.compute import Compute
from gradveil.data.photos import photos
from gradveil.defenses.base import Defense
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.scenario import Scenario
from gradveil.seeds import Seed
from gradveil.server import observe
from gradveil.types import Batch

VICTIMS, STEPS, TV = 64, 1000, 1e-2
STUDENT = 1.998  # 97.5 % of Student's t with 63 degrees of freedom


def photographs() -> Scenario:
    data = photos(limit=VICTIMS)
    model = MODELS["lenet"](classes=data.targets.shape[1], shape=data.shape, mean=data.mean, std=data.std)
    names = tuple(f"photo-{i}" for i in range(VICTIMS))
    return Scenario(name="photos", model=model, private=Batch(data.images[:, None], data.targets[:, None]), names=names)


def paired(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Mean difference and half of its 95 % interval."""
    apart = a - b
    return apart.mean().item(), (STUDENT * apart.std() / len(apart) ** 0.5).item()


@pytest.mark.slow
def test_every_back_end_reaches_the_same_quality() -> None:
    """About five minutes on one core, nearly all of it the loop's."""
    attack = invertgrad(steps=STEPS, tv=TV)
    seen, truth = observe(photographs(), Defense(), attack, Seed(0))
    quality: dict[str, Tensor] = {}
    for backend in ("loop", "vmap", "sweep"):
        got = attack.reconstruct(seen, Seed(0), Compute(backend=backend))
        quality[backend] = peak_signal_to_noise(got.images, truth.private.images).flatten()
        print(
            f"{backend}: {quality[backend].mean():.3f} dB, {quality[backend].min():.2f} to {quality[backend].max():.2f}"
        )
    assert torch.stack(list(quality.values())).mean() > 18  # they do reconstruct
    for backend in ("vmap", "sweep"):
        mean, half = paired(quality[backend], quality["loop"])
        print(f"{backend} - loop: {mean:+.4f} +- {half:.4f} dB")
        assert half < 0.5  # or the interval would say nothing
        assert abs(mean) <= half
