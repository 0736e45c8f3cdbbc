"""ProGAN: its layer layout, its invariances, and the faces of the published weights where they are at hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.generators.generator import load_generator
from gradveil.generators.progan import ProGan, pixel_norm, widths_of
from gradveil.generators.stored import store_network
from gradveil.models.start import weights_from

SMALL = {"latent": 12, "width": 8, "blocks": 3, "full": 2}


def small() -> ProGan:
    with weights_from(0):
        model = ProGan(**SMALL)
    model.paint.bias.data.fill_(0.5)
    return model.eval().requires_grad_(False)


def test_the_layers_of_the_published_generator() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(x.shape) for name, x in ProGan().state_dict().items()}
    assert shapes["blocks.0.conv0.weight"] == (512, 512, 4, 4)
    assert shapes["blocks.4.conv0.weight"] == (256, 512, 3, 3)
    assert shapes["blocks.5.conv1.weight"] == (128, 128, 3, 3)
    assert shapes["paint.weight"] == (3, 128, 1, 1)
    assert len(shapes) == 2 * (2 * 6 + 1)
    assert widths_of(512, 6, 4) == (512, 512, 512, 512, 256, 128)


def test_pixels_have_unit_mean_square_whatever_comes_in() -> None:
    x = 7 * torch.randn(2, 16, 3, 3) + 1
    assert torch.allclose(pixel_norm(x).square().mean(1), torch.ones(2, 3, 3), atol=1e-5)


def test_the_length_of_a_latent_does_not_matter() -> None:
    model, z = small().double(), torch.randn(3, 12).double()
    assert torch.allclose(model(z), model(5 * z), atol=1e-7)
    assert model(z).shape == (3, *model.size) == (3, 3, 16, 16)
    assert 0 <= model(z).min() <= model(z).max() <= 1


def reference(state: dict[str, Tensor], z: Tensor) -> Tensor:
    """As the published graph has it: pixels last, space filled by copies, no module of ours."""
    x = z / ((z**2).mean(1, keepdim=True) + 1e-8).sqrt()
    x = F.pad(x[:, :, None, None], (3, 3, 3, 3))
    for block in range(3):
        if block:
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        for conv in range(2):
            padding = 0 if block == conv == 0 else 1
            weight, bias = (state[f"blocks.{block}.conv{conv}.{part}"] for part in ("weight", "bias"))
            x = F.conv2d(x, weight, bias, padding=padding)
            x = torch.maximum(0.2 * x, x)
            x = x / (x.square().mean(1, keepdim=True) + 1e-8).sqrt()
    return (F.conv2d(x, state["paint.weight"], state["paint.bias"])).clamp(0, 1)


def test_it_draws_what_the_graph_draws() -> None:
    model, z = small().double(), torch.randn(2, 12).double()
    assert torch.allclose(model(z), reference(model.state_dict(), z), atol=1e-12)


def test_a_stored_one_draws_the_same(tmp_path: Path) -> None:
    model, z = small(), torch.randn(2, 12)
    store_network(tmp_path / "g.safetensors", "progan", model, SMALL, {"source": "nowhere"}, {})
    again = load_generator(tmp_path / "g.safetensors")
    assert torch.equal(again(z), model(z))
    assert (again.latent, again.size) == ((12,), (3, 16, 16))


def test_half_precision_is_read_as_single(tmp_path: Path) -> None:
    model, z = small(), torch.randn(2, 12)
    store_network(tmp_path / "g.safetensors", "progan", small().half(), SMALL, {"source": "nowhere"}, {})
    again = load_generator(tmp_path / "g.safetensors")
    assert again(z).dtype == torch.float32
    assert torch.equal(again(z), model.half().float()(z))
    assert not torch.equal(again(z), small()(z))


def test_other_precisions_are_refused(tmp_path: Path) -> None:
    broken = small()
    broken.paint.bias = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64), requires_grad=False)
    store_network(tmp_path / "g.safetensors", "progan", broken, SMALL, {"source": "nowhere"}, {})
    with pytest.raises(ConfigError, match="another type"):
        load_generator(tmp_path / "g.safetensors")


def converter() -> Any:
    path = Path(__file__).resolve().parents[2] / "papers/rog/progan_convert.py"
    spec = importlib.util.spec_from_file_location("progan_convert", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_converter_reads_arrays_across_shards(tmp_path: Path) -> None:
    """Two arrays in three shards, cut where no number ends."""
    first, second = np.arange(6, dtype="<f4").reshape(2, 3), np.array([7, -8], dtype="<i4")
    content = first.tobytes() + second.tobytes()
    for name, part in (("a.bin", content[:5]), ("b.bin", content[5:25]), ("c.bin", content[25:])):
        (tmp_path / name).write_bytes(part)
    weights = [
        {"name": "first", "shape": [2, 3], "dtype": "float32"},
        {"name": "second", "shape": [2], "dtype": "int32"},
    ]
    manifest = [{"paths": ["a.bin", "b.bin", "c.bin"], "weights": weights}]
    (tmp_path / "model.json").write_text(json.dumps({"weightsManifest": manifest}))
    arrays = converter().read(tmp_path)
    assert np.array_equal(arrays["first"], first)
    assert np.array_equal(arrays["second"], second)


def test_the_converter_keeps_the_whole_range() -> None:
    """A picture that is p in the graph, before it is cut off, is (p + 0.5) / 2 here."""
    module = converter()
    rng = np.random.default_rng(0)
    arrays = {}
    for place in range(2 * module.BLOCKS + 1):
        kernel = (3, 3, 4, 4) if place < 2 * module.BLOCKS else (1, 1, 4, 3)
        number = f"_{place}" if place else ""
        arrays[f"module_apply_default/Conv2D{number}/merged_input"] = rng.normal(size=kernel).astype("<f4")
    for block in range(module.BLOCKS):
        for conv in range(2):
            arrays[f"module/g_model/res_{block}/conv{conv}/bias"] = rng.normal(size=4).astype("<f4")
    arrays["module_apply_default/add_26"] = np.array([0.6, 0.4, 0.5], "<f4")
    state = module.renamed(arrays)
    assert state["blocks.2.conv1.weight"].shape == (4, 4, 3, 3)
    kernel = torch.from_numpy(arrays["module_apply_default/Conv2D_12/merged_input"])[0, 0]
    x = torch.randn(5, 4)
    published = x @ kernel + torch.tensor([0.6, 0.4, 0.5])
    ours = x @ state["paint.weight"][:, :, 0, 0].T + state["paint.bias"]
    assert torch.allclose(ours, (published + 0.5) / 2, atol=1e-6)


def test_another_graph_is_refused() -> None:
    module = converter()
    epsilons = {f"module_apply_default/add_{k}/y": np.float32(1e-8) for k in range(1, 4 * module.BLOCKS + 2, 2)}
    module.check({"LeakyRelu/alpha": np.float32(0.2), **epsilons})
    with pytest.raises(SystemExit, match="another graph"):
        module.check({"LeakyRelu/alpha": np.float32(0.1), **epsilons})
