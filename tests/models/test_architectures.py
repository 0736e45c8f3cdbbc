"""The papers' models: parameter counts, seeds, shapes, and what the engine needs of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from gradveil.core.errors import ConfigError
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize
from gradveil.models.vit import Attention, vit

COUNTS = [  # name, classes, channels, learned numbers, tensors
    ("lenet", 100, 3, 85_036, 8),
    ("convnet8", 10, 1, 48_490, 34),
    ("convnet32", 100, 3, 837_412, 34),
    ("convnet64", 100, 3, 3_112_420, 34),
    ("resnet20-4", 100, 3, 4_350_884, 65),
    ("mlp", 10, 3, 3072 * 256 + 256 + 256 * 128 + 128 + 1290, 6),
    ("lenet5", 10, 3, 32 * 76 + 64 * 801 + 512 * (64 * 8 * 8) + 5120, 6),
    ("resnet18-plain", 10, 3, 11_164_362, 22),
]
PUBLISHED = [  # name, classes, pixels, learned numbers: as the papers' authors or torchvision and DeiT count them
    ("resnet18", 10, 32, 11_173_962),
    ("resnet18", 1000, 224, 11_689_512),
    ("resnet34", 10, 32, 21_282_122),
    ("resnet34", 1000, 224, 21_797_672),
    ("mobilenet-v2", 1000, 224, 3_504_872),
    ("vit-tiny", 1000, 224, 5_717_416),
    ("vit-small", 1000, 224, 22_050_664),
    ("vgg16", 10, 32, 14_728_266),
    ("densenet121", 1000, 224, 7_978_856),
    ("vgg7", 1000, 128, 4_576_384 + 1024 * (512 * 16 * 16 + 1) + 1_025_000),
]
SMALL = ["lenet", "convnet8", "mlp"]
SMALLEST = {"vgg16": 32}  # pixels; 9 are enough for the others


def fitting(name: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape, or the smallest larger one that the model takes."""
    channels, height, width = shape
    least = SMALLEST.get(name, 9)
    return channels, max(height, least), max(width, least)


@pytest.mark.parametrize(("name", "classes", "pixels", "count"), PUBLISHED)
def test_learned_parameters_are_as_published(name: str, classes: int, pixels: int, count: int) -> None:
    with torch.device("meta"):
        model = MODELS[name](classes=classes, shape=(3, pixels, pixels))
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("name", "pixels", "positions"),
    [("resnet18", 32, 4), ("resnet18", 64, 2), ("resnet18", 112, 4), ("resnet18", 224, 7),
     ("mobilenet-v2", 32, 4), ("mobilenet-v2", 112, 4), ("mobilenet-v2", 224, 7), ("densenet121", 32, 4),
     ("densenet121", 64, 2), ("resnet34", 32, 4), ("vgg16", 32, 1)],
)  # fmt: skip
def test_what_is_left_of_a_picture_before_the_last_pool(name: str, pixels: int, positions: int) -> None:
    """Large pictures are shrunk as on ImageNet, small ones as on CIFAR."""
    model, seen = MODELS[name](classes=2, shape=(3, pixels, pixels)).eval(), []
    model.get_submodule("pool").register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].shape[2:]))
    with torch.no_grad():
        model(torch.rand(1, 3, pixels, pixels))
    assert seen == [(positions, positions)]


@pytest.mark.parametrize(("pixels", "patch", "tokens"), [(32, 4, 64), (64, 8, 64), (112, 16, 49), (224, 16, 196)])
def test_patches_grow_with_the_picture(pixels: int, patch: int, tokens: int) -> None:
    embed = vit(width=4, heads=1, depth=1, classes=2, shape=(3, pixels, pixels)).get_submodule("embed")
    assert embed.get_submodule("patches").kernel_size == (patch, patch)
    assert embed.get_parameter("places").shape[1] == 1 + tokens


@pytest.mark.parametrize("shape", [(1, 9, 9), (1, 10, 11), (1, 16, 13)])
def test_a_transformer_sees_every_pixel(shape: tuple[int, int, int]) -> None:
    """Where patches do not divide a picture, they reach beyond it instead of leaving a border out."""
    model = vit(width=8, heads=2, depth=1, classes=2, shape=shape).eval()
    images = torch.rand(1, *shape, requires_grad=True)
    (slope,) = torch.autograd.grad(model(images).square().sum(), images)
    assert (slope != 0).all()


def test_attention_is_that_of_torch() -> None:
    """Against torch's own, with its weights."""
    ours, theirs = Attention(12, 3).double(), nn.MultiheadAttention(12, 3, batch_first=True).double()
    parts = [ours.query, ours.key, ours.value]
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = torch.rand(2, 5, 12, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0])


def test_an_untrained_network_carries_a_signal_in_eval_mode() -> None:
    """Otherwise its updates would be rounding errors, and every attack on them would fail for that reason alone."""
    images = torch.rand(4, 3, 32, 32)
    for name in ("resnet18", "mobilenet-v2", "vit-tiny", "vgg16", "densenet121", "lenet5", "vgg7", "resnet18-plain"):
        with torch.no_grad():
            spread = float(MODELS[name](classes=10, mean=[0.5] * 3, std=[0.25] * 3).eval()(images).std())
        assert 0.02 < spread < 20, name


@pytest.mark.parametrize("name", ["lenet5", "vgg7", "resnet18-plain"])
def test_the_networks_of_rogs_round_normalize_nothing(name: str) -> None:
    """Section 4.2 of its paper leaves batch normalization out, whose statistics would tell of the batch."""
    layers = {type(layer).__name__ for layer in MODELS[name](classes=5, shape=(3, 32, 32)).modules()}
    assert not [layer for layer in layers if "Norm" in layer]


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
    shape = fitting(name, (1, 16, 16))
    model = MODELS[name](classes=3, shape=shape, mean=[0.4], std=[0.3]).eval()
    images = torch.rand(2, *shape)
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
    shape = fitting(name, shape)
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
        ("resnet18", {"shape": (3, 7, 7)}, "resnet18: pictures of 7x7 pixels are too small, it needs 8x8"),
        ("mobilenet-v2", {"shape": (3, 32, 7)}, "mobilenet-v2: pictures of 32x7"),
        ("vgg16", {"shape": (3, 31, 31)}, "vgg16: pictures of 31x31 pixels are too small, it needs 32x32"),
        ("densenet121", {"shape": (3, 4, 4)}, "densenet121: pictures of 4x4"),
        ("vit-tiny", {"shape": (3, 3, 3)}, "vit-tiny: pictures of 3x3"),
        ("vit-small", {"patch": 33}, "vit-small: patches of 33 pixels do not fit 32x32"),
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
