"""The papers' models: parameter counts, seeds, shapes, and what the engine needs of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from gradveil.errors import ConfigError
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize

COUNTS = [  # name, classes, channels, learned numbers, tensors
    ("lenet", 100, 3, 85_036, 8),
    ("convnet8", 10, 1, 48_490, 34),
    ("convnet32", 100, 3, 837_412, 34),
    ("convnet64", 100, 3, 3_112_420, 34),
    ("resnet20-4", 100, 3, 4_350_884, 65),
    ("mlp", 10, 3, 3072 * 256 + 256 + 256 * 128 + 128 + 1290, 6),
]
SMALL = ["lenet", "convnet8", "mlp"]


@pytest.mark.parametrize(("name", "classes", "channels", "count", "tensors"), COUNTS)
def test_learned_parameters(name: str, classes: int, channels: int, count: int, tensors: int) -> None:
    constants = {"mean": [0.5] * channels, "std": [0.2] * channels}
    model = MODELS[name](classes=classes, shape=(channels, 32, 32), **constants)
    parameters = list(model.parameters())
    assert sum(p.numel() for p in parameters) == count
    assert len(parameters) == tensors


def test_lenet_flattens_to_768_and_draws_from_half_to_half() -> None:
    model = MODELS["lenet"](classes=10)
    assert model.get_submodule("fc").in_features == 768
    everything = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert everything.abs().max() <= 0.5
    assert abs(float(everything.std()) - 12**-0.5) < 0.01  # of a uniform distribution one wide


def test_convnet64_flattens_to_36_widths() -> None:
    assert MODELS["convnet64"](classes=10).get_submodule("fc").in_features == 36 * 64


@pytest.mark.parametrize("name", MODELS)
def test_seed_alone_decides_the_weights(name: str) -> None:
    torch.manual_seed(1)
    first = MODELS[name](classes=3, seed=5).state_dict()
    torch.manual_seed(2)
    again = MODELS[name](classes=3, seed=5, mean=[0.1] * 3, std=[0.2] * 3).state_dict()
    other = MODELS[name](classes=3, seed=6).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


@pytest.mark.parametrize("name", MODELS)
def test_callers_generator_is_untouched(name: str) -> None:
    before = torch.get_rng_state()
    MODELS[name](classes=3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", MODELS)
def test_fx_traces_the_same_function(name: str) -> None:
    model = MODELS[name](classes=3, shape=(1, 16, 16), mean=[0.4], std=[0.3]).eval()
    images = torch.rand(2, 1, 16, 16)
    assert torch.equal(torch.fx.symbolic_trace(model)(images), model(images))


@pytest.mark.parametrize("name", MODELS)
def test_normalization_is_the_first_layer_or_absent(name: str) -> None:
    plain = MODELS[name](classes=3).eval()
    normal = MODELS[name](classes=3, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4]).eval()
    assert isinstance(next(normal.children()), Normalize)
    assert not any(isinstance(layer, Normalize) for layer in plain.modules())
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    torch.testing.assert_close(normal(images), plain((images - mean) / std))


@pytest.mark.parametrize("name", MODELS)
def test_no_activation_works_in_place(name: str) -> None:
    assert not any(getattr(layer, "inplace", False) for layer in MODELS[name](classes=3).modules())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 33, 47), (3, 9, 9)])
def test_other_sizes(name: str, shape: tuple[int, int, int]) -> None:
    model = MODELS[name](classes=7, shape=shape).eval()
    assert model(torch.rand(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", SMALL)
def test_gradients_under_vmap_equal_one_at_a_time(name: str) -> None:
    model = MODELS[name](classes=3, shape=(1, 16, 16)).double().eval()
    params = {key: p.detach() for key, p in model.named_parameters()}
    images = torch.rand(3, 1, 1, 16, 16, dtype=torch.float64)

    def loss(params: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        return functional_call(model, params, (images,)).square().sum()

    together = vmap(grad(loss), in_dims=(None, 0))(params, images)
    for key, alone in grad(loss)(params, images[1]).items():
        torch.testing.assert_close(together[key][1], alone)


def test_resnet_adds_its_shortcut() -> None:
    """With the residual branch silenced, a block without change of size is a ReLU."""
    block = MODELS["resnet20-4"](classes=3).eval().get_submodule("layer1.1")
    nn.init.zeros_(block.get_parameter("norm2.weight"))
    features = torch.randn(1, 64, 4, 4)
    assert torch.equal(block(features), features.relu())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("convnet8", {"shape": (3, 8, 32)}, "convnet8: pictures of 8x32 pixels are too small, it needs 9x9"),
        ("lenet", {"shape": (3, 3, 3)}, "lenet: pictures of 3x3"),
        ("resnet20-4", {"shape": (3, 2, 2)}, "resnet20-4: pictures of 2x2"),
        ("mlp", {"shape": (3, 0, 5)}, "mlp: pictures of 0x5"),
        ("mlp", {"shape": (0, 5, 5)}, "0 channels"),
        ("lenet", {"classes": 0}, "0 classes"),
        ("lenet", {"mean": [0.5] * 3}, "give both or neither"),
        ("lenet", {"mean": [0.5], "std": [0.5]}, "one per channel"),
        ("lenet", {"mean": [0.5] * 3, "std": [0.5, 0.0, 0.5]}, "above 0"),
    ],
)
def test_what_cannot_be_built(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MODELS[name](**{"classes": 3, **options})


def test_every_model_has_a_summary_of_its_own() -> None:
    summaries = [factory.__doc__ or "" for factory in MODELS.values()]
    assert all(0 < len(text.splitlines()[0]) <= 120 for text in summaries)
    assert len(set(summaries)) == len(MODELS)
