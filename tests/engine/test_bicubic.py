"""Small pictures, enlarged: as torch enlarges them, of any size, from either start."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scenes import MEAN, drawn, scene, seen_in, smooth

from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.spaces.bicubic import Bicubic, resizing
from gradveil.engine.spaces.space import APART


def seen_of(height: int = 8, width: int = 8, examples: int = 2) -> Observation:
    return replace(seen_in(scene(smooth(), 1, examples)), shape=(3, height, width))


@pytest.mark.parametrize(("height", "width", "factor"), [(8, 8, 4), (8, 12, 2), (9, 14, 4), (7, 5, 3), (3, 3, 4)])
def test_enlarging_is_that_of_torch(height: int, width: int, factor: int) -> None:
    space = Bicubic(factor=factor).bind(seen_of(height, width))
    z = {name: x.unsqueeze(0) for name, x in space.init(Seed(0), "c", 0).items()}
    assert z["pixels"].shape == (1, 2, 3, -(-height // factor), -(-width // factor))
    expected = F.interpolate(z["pixels"][0], size=(height, width), mode="bicubic", align_corners=False)
    assert (space.decode(z)[0] - expected).abs().max() < 1e-12


def test_where_the_factor_divides_it_is_a_scale_factor() -> None:
    """As the authors enlarge."""
    small = drawn(1, 3, 4, 4)
    rows = resizing(4, 16)
    expected = F.interpolate(small, scale_factor=4, mode="bicubic")
    assert (rows @ small @ rows.mT - expected).abs().max() < 1e-12


def test_factor_one_is_the_pixels() -> None:
    space = Bicubic(factor=1).bind(seen_of())
    z = space.init(Seed(0), "c", 0)
    assert torch.equal(space.decode(z), z["pixels"])


def test_every_line_of_a_resizing_sums_to_one_so_that_units_do_not_matter() -> None:
    assert (resizing(8, 32).sum(1) - 1).abs().max() < 1e-12
    plain, units = Bicubic().bind(seen_of()), Bicubic(normalized=True).bind(seen_of())
    a, b = plain.init(Seed(0), "c", 0), units.init(Seed(0), "c", 0)
    assert not torch.allclose(a["pixels"], b["pixels"])
    assert (plain.decode(a) - units.decode(b)).abs().max() < 1e-12
    shifted = units.decode({"pixels": torch.zeros_like(b["pixels"])})
    assert (shifted - torch.tensor(MEAN).view(-1, 1, 1)).abs().max() < 1e-7


def test_a_start_that_is_encoded_is_a_picture_made_small() -> None:
    seen = seen_of(16, 16)
    start = Bicubic(encoded=True).bind(seen).init(Seed(0), "c", 0)["pixels"]
    full = Bicubic(factor=1).bind(seen).init(Seed(0), "c", 0)["pixels"]
    expected = F.interpolate(full, size=(4, 4), mode="bicubic", align_corners=False)
    assert (start - expected).abs().max() < 1e-12


def test_starts_are_in_the_box_of_pictures_and_only_the_first_is_gray() -> None:
    space = Bicubic(start="gray").bind(seen_of())
    first, second, third = (space.init(Seed(0), "c", restart)["pixels"] for restart in range(3))
    assert (first - 0.5).abs().max() <= APART
    assert first[0].ne(first[1]).any()  # pictures of one label have to part
    assert second.std() > 0.2
    assert not torch.equal(second, third)
    assert 0 <= second.min() < second.max() <= 1


def test_the_box_is_that_of_the_small_picture() -> None:
    wild = {"pixels": drawn(1, 2, 3, 2, 2) * 4 - 2}
    assert torch.equal(Bicubic().bind(seen_of()).constrain(wild)["pixels"], wild["pixels"])
    boxed = Bicubic(boxed=True).bind(seen_of()).constrain(wild)["pixels"]
    assert torch.equal(boxed, wild["pixels"].clamp(0, 1))


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="factor = 0 is out of range"):
        Bicubic(factor=0)
