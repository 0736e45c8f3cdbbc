"""No attack may bring a network along that was trained on the pictures it is to find."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from gradveil.attacks import ATTACKS
from gradveil.audit import audit
from gradveil.audit import validate as precheck
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.generators.autoencoder import Autoencoder
from gradveil.generators.enhancer import UNet
from gradveil.generators.provenance import check_not_trained_on, picture_hashes, record_of, thumbnails, trained_on
from gradveil.generators.stored import store_network

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import toys

PUBLIC = torch.rand(12, 3, 8, 8, generator=Seed(5).rng())
FRESH = torch.rand(6, 3, 8, 8, generator=Seed(6).rng())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.safetensors"
    save_file(record_of(PUBLIC), path)
    return path


def test_a_hash_is_sha256_of_the_bytes() -> None:
    picture = torch.arange(12, dtype=torch.uint8).view(1, 3, 2, 2)
    wanted = hashlib.sha256(bytes(range(12))).digest()
    assert bytes(picture_hashes(picture)[0].tolist()) == wanted
    assert torch.equal(picture_hashes(picture / 255), picture_hashes(picture))


def test_fresh_pictures_pass(file: Path) -> None:
    check_not_trained_on(file, FRESH)
    check_not_trained_on(file, FRESH.unflatten(0, (3, 2)))


@pytest.mark.parametrize(
    "changed",
    [
        lambda x: x,
        lambda x: x.flip(-1),
        lambda x: (x * 255).round() / 255,
        lambda x: F.interpolate(x, scale_factor=4.0, mode="nearest"),
        lambda x: (x + 0.004).clamp(0, 1).flip(-1),
        lambda x: x.double(),
    ],
)
def test_a_picture_that_was_trained_on_is_found(file: Path, changed) -> None:
    attacked = torch.cat([FRESH, PUBLIC[[3, 7]]])
    with pytest.raises(ConfigError, match=r"network\.safetensors: was trained on 2 of the 8 pictures"):
        check_not_trained_on(file, changed(attacked))


def test_hashes_alone_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "gan.safetensors"
    save_file({"trained_on": picture_hashes(PUBLIC)}, path)
    with pytest.raises(ConfigError, match="1 of the 1"):
        check_not_trained_on(path, PUBLIC[:1].flip(-1))
    check_not_trained_on(path, FRESH)


def test_a_network_from_elsewhere_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.zeros(1)}, path)
    assert trained_on(path) is None
    check_not_trained_on(path, PUBLIC)


def test_a_record_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    save_file({"trained_on": torch.zeros(4, 31, dtype=torch.uint8)}, path)
    with pytest.raises(ConfigError, match=r"trained_on: has the shape \(4, 31\)"):
        check_not_trained_on(path, PUBLIC)
    with pytest.raises(ConfigError, match="no such file"):
        check_not_trained_on(tmp_path / "missing.safetensors", PUBLIC)


def test_photographs_are_found_at_another_size_and_never_mistaken(shared_data: Path, tmp_path: Path) -> None:
    from gradveil import data

    large, small = (
        data.load("imagenet", root=shared_data / "imagenette224_60.zip", size=size).images for size in (128, 32)
    )
    path = tmp_path / "network.safetensors"
    save_file(record_of(large[:30]), path)
    with pytest.raises(ConfigError, match="trained on 30 of the 30"):
        check_not_trained_on(path, small[:30])
    check_not_trained_on(path, small[30:])


def test_gray_and_color_have_thumbnails_alike() -> None:
    gray = torch.rand(2, 1, 32, 32)
    assert torch.equal(thumbnails(gray), thumbnails(gray.expand(-1, 3, -1, -1)))


@dataclass(frozen=True, kw_only=True)
class Armed(toys.Noise):
    """Noise with a network in its luggage."""

    file: str

    def networks(self) -> tuple[str, ...]:
        return (self.file,)


def armed_audit(seen: Tensor, folder: Path) -> tuple[audit.Audit, Armed]:
    save_file(record_of(seen), folder / "network.safetensors")
    attack = Armed(file=str(folder / "network.safetensors"))
    return toys.audit({"armed": attack}, clients=2), attack


def test_an_audit_refuses_what_was_trained_on_its_victims(tmp_path: Path) -> None:
    victims = toys.scenario(2).private.images.flatten(0, 1)
    planned, attack = armed_audit(torch.cat([FRESH, victims[1:].flip(-1)]), tmp_path)
    with pytest.raises(ConfigError, match=r"network\.safetensors: was trained on 1 of the 2 pictures"):
        audit.run_audit(planned, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not attack.seen


def test_an_audit_runs_with_a_network_of_other_pictures_and_shows_it_no_truth(tmp_path: Path) -> None:
    planned, attack = armed_audit(FRESH, tmp_path)
    audit.run_audit(planned, tmp_path / "run")
    truth = planned.scenario.private.images
    assert attack.seen
    for seen in attack.seen:
        held = [x for x in vars(seen).values() if isinstance(x, Tensor)]
        assert not any(x.shape == truth.shape and torch.equal(x, truth) for x in held)


def test_a_run_does_not_go_on_with_another_network(tmp_path: Path) -> None:
    planned, attack = armed_audit(FRESH, tmp_path)
    audit.run_audit(planned, tmp_path / "run")
    audit.run_audit(planned, tmp_path / "run")
    save_file(record_of(FRESH[:3]), attack.file)
    with pytest.raises(ConfigError, match="model_sha256 is not the same"):
        audit.run_audit(planned, tmp_path / "run")


@pytest.mark.parametrize("seen_by", ["autoencoder", "enhancer"])
def test_both_networks_of_rog_are_held_against_the_victims(seen_by: str, tmp_path: Path) -> None:
    victims = toys.scenario(2).private.images.flatten(0, 1)
    built = {
        "autoencoder": (Autoencoder, {"latent": 32, "size": 8, "channels": 3, "width": 8}),
        "enhancer": (UNet, {"channels": 3, "width": 4}),
    }
    for kind, (build, architecture) in built.items():
        seen = record_of(victims if kind == seen_by else FRESH)
        store_network(tmp_path / f"{kind}.safetensors", kind, build(**architecture), architecture, {}, seen)
    files = {"weights": str(tmp_path / "autoencoder.safetensors"), "enhancer": str(tmp_path / "enhancer.safetensors")}
    attack = ATTACKS["rog"](space="autoencoder", finish="enhance", steps=1, **files)
    assert set(attack.networks()) == set(files.values())
    with pytest.raises(ConfigError, match=rf"{seen_by}\.safetensors: was trained on 2 of the 2 pictures"):
        precheck.check(toys.audit({"rog": attack}, clients=2), Compute())
