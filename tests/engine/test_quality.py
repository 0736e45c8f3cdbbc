"""In float32 trajectories part, so what must be equal is how good the pictures are."""

from __future__ import annotations

import pytest
from torch import Tensor

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

VICTIMS, STEPS, TV = 64, 1000, 1e-1  # at 1e-2 and below the attack does not beat a blank guess in so few steps
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
    """About eight minutes on one core, most of it the loop's."""
    attack = invertgrad(steps=STEPS, tv=TV)
    seen, truth = observe(photographs(), Defense(), attack, Seed(0))
    pictures, quality = truth.private.images, {}
    for backend in ("loop", "vmap", "sweep"):
        got = attack.reconstruct(seen, Seed(0), Compute(backend=backend))
        q = quality[backend] = peak_signal_to_noise(got.images, pictures).flatten()
        print(f"{backend}: mean {q.mean():.3f} dB, {q.min():.2f} to {q.max():.2f}")
    apart = {backend: paired(quality[backend], quality["loop"]) for backend in ("vmap", "sweep")}
    for backend, (mean, half) in apart.items():
        print(f"{backend} - loop: {mean:+.4f} +- {half:.4f} dB")
    blank = peak_signal_to_noise(pictures.mean((-2, -1), keepdim=True).expand_as(pictures), pictures)
    assert all(q.mean() > blank.mean() for q in quality.values())  # or there would be nothing to compare
    for mean, half in apart.values():
        assert half < 0.5  # or the interval would say nothing
        assert abs(mean) <= half
