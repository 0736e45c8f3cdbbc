"""LPIPS of both networks against independent computations, and its refusals."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.metrics import METRICS
from gradveil.metrics.backbones import ALEXNET, VGG16, Backbone
from gradveil.metrics.lpips import perceptual_distance

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


def numbers(backbone: Backbone) -> dict[str, np.ndarray]:
    """Random weights of the right names and sizes."""
    rng = np.random.default_rng(0)
    made = {}
    for name, shape in backbone.shapes().items():
        scale = np.float32(1 / np.sqrt(np.prod(shape[1:])) if "weight" in name else 0.1)
        drawn = scale * rng.standard_normal(shape, np.float32)
        made[name] = abs(drawn) if name.startswith("lin") else drawn
    return made


def made_up(folder: Path) -> Path:
    np.savez(folder / "weights.npz", **numbers(ALEXNET))
    return folder / "weights.npz"


@pytest.mark.parametrize("side", [32, 64])
def test_equals_the_reference(reference, side):
    rng = torch.Generator().manual_seed(0)
    truth = torch.rand(2, 3, 3, side, side, generator=rng)
    got = (truth + 0.2 * torch.randn(truth.shape, generator=rng)).clamp(0, 1)
    scores = METRICS["lpips"](weights=SHARED / "lpips_alex.npz", resize=None).score(got, truth)
    torch.testing.assert_close(scores.flatten(), reference(got.flatten(0, 1), truth.flatten(0, 1)), atol=1e-6, rtol=0)


def test_the_shared_weights_are_the_published_ones_and_others_are_not(reference, tmp_path):
    published = METRICS["lpips"](weights=SHARED / "lpips_alex.npz").source
    assert published is not None
    assert published.known
    other = METRICS["lpips"](weights=made_up(tmp_path)).source
    assert other is not None
    assert not other.known


def test_the_kind_of_file_is_no_matter(tmp_path):
    arrays = numbers(ALEXNET)
    save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "weights.safetensors")
    one, other = METRICS["lpips"](weights=made_up(tmp_path)), METRICS["lpips"](weights=tmp_path / "weights.safetensors")
    assert one.source == other.source
    got, truth = torch.rand(2, 1, 3, 32, 32)
    assert one.score(got, truth).item() == other.score(got, truth).item()


VGG_LAYERS = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512)


def vgg_taps(images: torch.Tensor, weights: dict[str, np.ndarray]) -> list[np.ndarray]:
    """VGG16 written from its table of widths, the last layer before each pooling kept: relu1_2 to relu5_3."""
    names = iter(sorted({int(name.split(".")[1]) for name in weights if name.startswith("features")}))
    x, before, taps = images.double(), 3, []
    for width in (*VGG_LAYERS, "M"):
        if width == "M":
            taps.append(x.numpy())
            x = nn.MaxPool2d(2, ceil_mode=True)(x)  # the last is nobody's
            continue
        assert isinstance(width, int)
        layer, index = nn.Conv2d(before, width, 3, padding=1).double(), next(names)
        layer.weight.data = torch.from_numpy(weights[f"features.{index}.weight"]).double()
        layer.bias.data = torch.from_numpy(weights[f"features.{index}.bias"]).double()
        x, before = torch.relu(layer(x)).detach(), width
    return taps


def test_vgg_equals_an_independent_computation():
    weights = numbers(VGG16)
    got, truth = torch.rand(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    shift, scale = (torch.tensor(v).view(1, 3, 1, 1) for v in ((-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)))
    taps = [vgg_taps((2 * x - 1 - shift) / scale, weights) for x in (got, truth)]
    expected = np.zeros(2)
    for layer, (a, b) in enumerate(zip(*taps, strict=True)):
        a, b = (x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-10) for x in (a, b))
        expected += np.tensordot((a - b) ** 2, weights[f"lin{layer}"].astype(float), (1, 0)).mean((1, 2))
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    scores = perceptual_distance(got, truth, tensors, None, VGG16)
    np.testing.assert_allclose(scores.numpy(), expected, atol=1e-5)


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


def test_bad_weight_files_are_named_and_say_where_to_get_others(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.npz.*docs/metrics\.md"):
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
    (tmp_path / "cut.safetensors").write_bytes(b"\0" * 12)
    with pytest.raises(ConfigError, match=r"cut\.safetensors"):
        METRICS["lpips-vgg"](weights_vgg=tmp_path / "cut.safetensors")
    with pytest.raises(ConfigError, match=r"features\.0\.weight.*VGG16"):
        METRICS["lpips-vgg"](weights_vgg=tmp_path / "other.npz")
