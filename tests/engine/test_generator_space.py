"""The space of what a generator can draw."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scenes import CLASSES, scene, seen_in, smooth
from torch import Tensor, nn

from gradveil.attacks.rog import rog
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch
from gradveil.engine.spaces.generator import Decoded
from gradveil.generators.conditional import Conditional
from gradveil.models.start import weights_from

DOUBLE = Compute(precision="float64")


class Drawer(nn.Module):
    """Six numbers to a picture, and back."""

    latent: tuple[int, ...] = (6,)
    size: tuple[int, int, int] = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        with weights_from(5):
            self.out, self.back = nn.Linear(6, 192), nn.Linear(192, 6)

    def forward(self, z: Tensor) -> Tensor:
        return (2 * self.out(z)).sigmoid().unflatten(-1, self.size)

    def encode(self, images: Tensor) -> Tensor:
        return self.back(images.flatten(1))


class Told(Drawer):
    """The same, whose last two numbers are the embedding of a class."""

    noise, classes = 4, CLASSES

    def __init__(self) -> None:
        super().__init__()
        with weights_from(6):
            self.table = nn.Linear(CLASSES, 2, bias=False)

    def embed(self, labels: Tensor) -> Tensor:
        return self.table(labels)


class Larger(Drawer):
    size: tuple[int, int, int] = (3, 16, 12)

    def forward(self, z: Tensor) -> Tensor:
        return F.interpolate((2 * self.out(z)).sigmoid().unflatten(-1, (3, 8, 8)), size=(16, 12))


def seen_of(clients: int = 2, examples: int = 2) -> Observation:
    return seen_in(scene(smooth(), clients, examples))


def latents(space: Decoded, seen: Observation) -> dict[str, Tensor]:
    bound = space.bind(seen)
    starts = [bound.init(Seed(0), name, 0) for name in seen.names]
    return {"latent": torch.stack([start["latent"] for start in starts])}


def test_pictures_are_those_of_the_generator() -> None:
    seen, generator = seen_of(), Drawer()
    space = Decoded(generator=generator)
    z = latents(space, seen)
    got = space.bind(seen).decode(z)
    expected = generator.double()(z["latent"].flatten(0, 1)).view(2, 2, 3, 8, 8)
    assert z["latent"].shape == (2, 2, 6)
    assert torch.equal(got, expected.detach())


def test_the_generator_itself_is_left_where_and_as_it_was() -> None:
    generator = Drawer()
    Decoded(generator=generator).bind(seen_of())
    assert {p.dtype for p in generator.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in generator.parameters())


def test_an_encoded_start_is_the_code_of_noise() -> None:
    seen, generator = seen_of(), Drawer()
    z = latents(Decoded(generator=generator, start="encoded"), seen)
    noise = uniform((2, 3, 8, 8), Seed(0).at("start", seen.names[1], 0).rng(), z["latent"])
    assert torch.equal(z["latent"][1], generator.double().encode(noise))


def test_pictures_of_another_size_are_resized() -> None:
    seen = seen_of()
    space = Decoded(generator=Larger())
    z = latents(space, seen)
    full = Larger().double()(z["latent"].flatten(0, 1))
    expected = F.interpolate(full, size=(8, 8), mode="bicubic").view(2, 2, 3, 8, 8)
    assert (space.bind(seen).decode(z) - expected).abs().max() < 1e-6


def test_a_generator_that_is_told_the_class_is_searched_by_its_noise_alone() -> None:
    seen, generator = seen_of(), Told()
    assert isinstance(generator, Conditional)
    space = Decoded(generator=generator)
    z = latents(space, seen)
    assert z["latent"].shape == (2, 2, 4)
    assert seen.labels is not None
    codes = torch.cat([z["latent"], generator.double().embed(seen.labels)], -1).flatten(0, 1)
    assert torch.allclose(space.bind(seen).decode(z), generator(codes).view(2, 2, 3, 8, 8))
    assert latents(space, replace(seen, labels=None))["latent"].shape == (2, 2, 6)


def test_what_cannot_work_is_said() -> None:
    seen = seen_of()
    with pytest.raises(NotApplicableError, match="3 channels and these have 1"):
        Decoded(generator=Drawer()).bind(replace(seen, shape=(1, 8, 8)))
    other = Told()
    other.classes = 7
    with pytest.raises(NotApplicableError, match="knows 7 classes and the model 5"):
        Decoded(generator=other).bind(seen)
    with pytest.raises(ConfigError, match="cannot encode"):
        Decoded(generator=nn.Identity(), start="encoded")  # type: ignore[arg-type]


def test_a_picture_that_the_generator_can_draw_is_found_through_local_steps() -> None:
    generator = Drawer()
    with weights_from(9), torch.no_grad():
        private = generator(torch.randn(1, 6)).double()[None]
    scenario = scene(smooth(), 1, training=LocalTraining(steps=2, rate=0.05))
    scenario = replace(scenario, private=Batch(private, scenario.private.labels))
    attack = replace(rog(steps=60, tv=0.0, rate=0.2), space=Decoded(generator=generator))
    got = attack.reconstruct(seen_in(scenario), Seed(0), DOUBLE)
    assert got.backend == "vmap"
    assert (got.images - private).square().mean() < 1e-3  # 30 dB
