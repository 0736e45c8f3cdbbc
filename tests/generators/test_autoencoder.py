"""The autoencoder: three sizes of code, nothing drawn, and a file that is read back as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gradveil.core.errors import ConfigError
from gradveil.generators.autoencoder import KIND, Autoencoder, load_autoencoder
from gradveil.generators.learn_autoencoder import measure_codes
from gradveil.generators.stored import metadata_of, store_network

ARCHITECTURE = {"latent": 32, "size": 8, "channels": 3, "width": 8}


@pytest.fixture
def network() -> Autoencoder:
    return Autoencoder(**ARCHITECTURE)


@pytest.fixture
def file(network: Autoencoder, tmp_path: Path) -> Path:
    return store_network(tmp_path / "a.safetensors", KIND, network, ARCHITECTURE, {"data": "toy"}, {})


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("latent", [512, 2048, 8192])
def test_codes_have_as_many_numbers_as_asked_for(latent: int, size: int) -> None:
    with torch.device("meta"):
        network = Autoencoder(latent=latent, size=size)
        z = network.encode(torch.rand(2, 3, size, size))
        assert z.shape == (2, *network.latent)
        assert z[0].numel() == latent
        assert network(z).shape == (2, *network.size) == (2, 3, size, size)


@pytest.mark.parametrize(("latent", "size"), [(500, 128), (512, 100), (0, 32), (2048, 8), (512, 24)])
def test_codes_that_do_not_fit_are_refused(latent: int, size: int) -> None:
    with pytest.raises(ConfigError, match=f"latent of {latent} does not fit pictures of {size}"):
        Autoencoder(latent=latent, size=size)


def test_what_is_read_back_is_frozen_and_the_same(file: Path, network: Autoencoder) -> None:
    loaded, z = load_autoencoder(file), torch.randn(3, 8, 2, 2)
    assert torch.equal(loaded(z), network(z))
    assert not any(p.requires_grad for p in loaded.parameters())
    assert (loaded.latent, loaded.size, loaded.file) == ((8, 2, 2), (3, 8, 8), str(file))
    assert metadata_of(file)["data"] == "toy"


def test_it_decodes_into_the_box_and_draws_nothing(network: Autoencoder) -> None:
    z = 100 * torch.randn(4, *network.latent)
    state = torch.random.get_rng_state()
    first, again = network(z), network(z)
    assert torch.equal(first, again)
    assert torch.equal(state, torch.random.get_rng_state())
    assert 0 <= first.min() < first.max() <= 1


def test_a_picture_does_not_depend_on_its_neighbors(network: Autoencoder) -> None:
    z = torch.randn(5, *network.latent)
    alone = torch.cat([network(one[None]) for one in z])
    assert torch.allclose(network(z), alone, atol=1e-6)


def test_torch_func_goes_through(network: Autoencoder) -> None:
    network.requires_grad_(False)
    z = torch.randn(2, 3, *network.latent)
    slopes = torch.func.vmap(torch.func.grad(lambda each: network(each).square().sum()))(z)
    free = z.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(network(free.flatten(0, 1)).square().sum(), free)
    assert torch.allclose(slopes, wanted, atol=1e-5)


def test_scaled_codes_decode_to_the_same_pictures(network: Autoencoder) -> None:
    pictures = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
    images = pictures / 255
    before = network(network.encode(images))
    measure_codes(network, pictures)
    codes = network.encode(images)
    assert torch.allclose(network(codes), before, atol=1e-5)
    assert torch.allclose(codes.mean((0, 2, 3)), torch.zeros(8), atol=1e-4)
    assert torch.allclose(codes.std((0, 2, 3), correction=0), torch.ones(8), atol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ('{"latent": 32, "size": 8, "channels": 3, "width": 16}', "tensors do not fit"),
        ('{"latent": 32, "size": 8, "channels": 3, "width": 99999999}', "no table of whole numbers"),
        ('{"latent": 32, "sizes": 8}', "has other keys"),
        ("[]", "no table of whole numbers"),
        ("{", "is not JSON"),
    ],
)
def test_an_architecture_that_lies_is_refused(file: Path, architecture: str, message: str) -> None:
    save_file(load_file(file), file, metadata={"gradveil.kind": KIND, "gradveil.architecture": architecture})
    with pytest.raises(ConfigError, match=message):
        load_autoencoder(file)


def test_weights_that_are_no_numbers_or_of_another_kind_are_refused(file: Path, network: Autoencoder) -> None:
    torch.nn.init.constant_(network.encoder[1].bias, torch.nan)
    store_network(file, KIND, network, ARCHITECTURE, {}, {})
    with pytest.raises(ConfigError, match="not finite"):
        load_autoencoder(file)
    store_network(file, "enhancer", network, ARCHITECTURE, {}, {})
    with pytest.raises(ConfigError, match="holds enhancer, not autoencoder"):
        load_autoencoder(file)
    with pytest.raises(ConfigError, match=r"no such \.safetensors file"):
        load_autoencoder(file.with_name("other.safetensors"))
