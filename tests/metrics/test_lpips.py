"""LPIPS against the shared reference, and its refusals."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradveil.errors import ConfigError
from gradveil.metrics import METRICS
from gradveil.metrics.lpips import CHANNELS, CONVOLUTIONS

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def reference():
    if not (SHARED / "lpips_alex.npz").exists():
        pytest.skip("shared/data is not here")
    spec = importlib.util.spec_from_file_location("shared_loader", SHARED / "loader.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.lpips_alex


def made_up(folder: Path) -> Path:
    """Random weights of the right names and sizes."""
    rng = np.random.default_rng(0)
    arrays, before = {}, 3
    for layer, (index, _, _) in enumerate(CONVOLUTIONS):
        kernel = (11, 5, 3, 3, 3)[layer]
        arrays[f"features.{index}.weight"] = rng.normal(size=(CHANNELS[layer], before, kernel, kernel)) * 0.05
        arrays[f"features.{index}.bias"] = rng.normal(size=CHANNELS[layer])
        arrays[f"lin{layer}"] = rng.random(CHANNELS[layer])
        before = CHANNELS[layer]
    np.savez(folder / "weights.npz", **arrays)
    return folder / "weights.npz"


@pytest.mark.parametrize("side", [32, 64])
def test_equals_the_reference(reference, side):
    rng = torch.Generator().manual_seed(0)
    truth = torch.rand(2, 3, 3, side, side, generator=rng)
    got = (truth + 0.2 * torch.randn(truth.shape, generator=rng)).clamp(0, 1)
    scores = METRICS["lpips"](weights=SHARED / "lpips_alex.npz", resize=None).score(got, truth)
    torch.testing.assert_close(scores.flatten(), reference(got.flatten(0, 1), truth.flatten(0, 1)), atol=1e-6, rtol=0)


def test_gray_is_repeated_and_small_pictures_are_enlarged(reference):
    truth, got = torch.rand(2, 2, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    scores = METRICS["lpips"](weights=SHARED / "lpips_alex.npz", resize=64).score(got, truth)
    large = [F.interpolate(x.expand(-1, 3, -1, -1), (64, 64), mode="bilinear") for x in (got, truth)]
    torch.testing.assert_close(scores, reference(*large), atol=1e-6, rtol=0)


def test_identical_is_zero_and_not_a_number_stays_so(tmp_path):
    score = METRICS["lpips"](weights=made_up(tmp_path)).score
    truth = torch.rand(3, 3, 32, 32)
    got = truth.clone()
    got[1, 0, 16, 16] = torch.nan
    got[2] = 1 - got[2]
    scores = score(got, truth)
    assert scores[0] == 0
    assert scores[1].isnan()
    assert scores[2] > 0


def test_pictures_too_small_for_the_network_say_what_to_set(tmp_path):
    weights = made_up(tmp_path)
    as_they_are = METRICS["lpips"](weights=weights, resize=None)
    as_they_are.score(torch.rand(1, 3, 31, 31), torch.rand(1, 3, 31, 31))
    with pytest.raises(ConfigError, match="resize = 64"):
        as_they_are.score(torch.rand(1, 3, 30, 30), torch.rand(1, 3, 30, 30))
    METRICS["lpips"](weights=weights).score(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8))  # enlarged


def test_bad_weight_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.npz"):
        METRICS["lpips"](weights=tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", lin0=np.zeros(64))
    with pytest.raises(ConfigError, match=r"features\.0\.weight"):
        METRICS["lpips"](weights=tmp_path / "other.npz")
    np.savez(tmp_path / "pickled.npz", lin0=np.array([{}], dtype=object))
    with pytest.raises(ConfigError, match=r"pickled\.npz"):
        METRICS["lpips"](weights=tmp_path / "pickled.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(ConfigError, match=r"text\.npz"):
        METRICS["lpips"](weights=tmp_path / "text.npz")
