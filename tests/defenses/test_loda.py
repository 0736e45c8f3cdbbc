"""LODA as a defense: one encoding for one picture, kept on disk, and what it cannot work with said in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from scenes import four_pictures, seen_in
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.loda.starts import fit_to, hash_of, public_pool, start_of
from gradveil.models import MODELS

SHAPE = (3, 8, 8)
TINY = Loda(extractor="lenet:untrained", layers="all", c=1.0, steps=12, cache=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/gradveil/encoded"


def pictures(count: int = 6, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def weights(path: Path, channels: int = 3, name: str = "lenet") -> Path:
    state = MODELS[name](classes=4, shape=(channels, 8, 8), mean=(0.5,) * channels, std=(0.2,) * channels).state_dict()
    save_file(state, path)
    return path


# one picture, one encoding


def test_an_encoding_is_a_picture_and_another_one() -> None:
    private = pictures()
    encodings = TINY.encode(private)
    assert encodings.shape == private.shape
    assert encodings.min() >= 0
    assert encodings.max() <= 1
    assert ((encodings - private).square().mean((1, 2, 3)) > 0.01).all()


def test_alone_in_a_batch_in_any_order_and_twice_it_is_the_same_to_the_last_bit() -> None:
    private = pictures(7)
    encodings = TINY.encode(private)
    assert torch.equal(torch.cat([TINY.encode(one[None]) for one in private]), encodings)
    order = [3, 0, 6, 0, 5]
    assert torch.equal(TINY.encode(private[order]), encodings[order])
    assert torch.equal(TINY.encode(private), encodings)


def test_in_bfloat16_as_well() -> None:
    private, half = pictures(7), replace(TINY, bf16=True)
    encodings = half.encode(private)
    assert encodings.dtype == torch.float32
    assert torch.equal(torch.cat([half.encode(one[None]) for one in private]), encodings)


def test_any_number_of_threads_gives_the_same_to_the_last_bit() -> None:
    private = pictures(10)
    alone = TINY.encode(private)
    torch.set_num_threads(2)
    assert torch.equal(TINY.encode(private), alone)


def test_the_stream_of_the_client_is_not_touched_and_labels_are_kept() -> None:
    data, rng = Batch(pictures(2), torch.eye(2)), Seed(0).rng()
    before = rng.get_state()
    fed = TINY.data(data, rng)
    assert torch.equal(rng.get_state(), before)
    assert torch.equal(fed.labels, data.labels)
    assert torch.equal(TINY.data(data, Seed(9).rng()).images, fed.images)


def test_float64_pictures_get_the_encodings_of_float32_ones() -> None:
    private = pictures(2)
    double = TINY.encode(private.double())
    assert double.dtype == torch.float64
    assert torch.equal(double.float(), TINY.encode(private))


def test_another_option_is_another_encoding() -> None:
    private = pictures(1)
    plain = TINY.encode(private)
    changes = ({"c": 50.0}, {"steps": 13}, {"layers": "first1"}, {"seed": 1}, {"starts": "drawn"}, {"public": "digits"},
               {"reduce": "mean"}, {"units": "unit"}, {"bf16": True}, {"extractor": "convnet8:untrained"})  # fmt: skip
    sized = torch.nn.functional.interpolate(private, (9, 9))  # the least that a convnet takes
    for change in changes:
        other = replace(TINY, **change)
        if "extractor" in change:
            assert not torch.equal(other.encode(sized), TINY.encode(sized))
        else:
            assert not torch.equal(other.encode(private), plain), change
        assert other.key((3, 9, 9)) != TINY.key((3, 9, 9)), change


# starts


def test_no_two_pictures_share_a_start_unless_asked() -> None:
    pool = public_pool("photos", SHAPE)[:2]
    hashes = [hash_of(one) for one in pictures(40)]
    own = {hash_of(start_of(pool, hashed, "own", 0)) for hashed in hashes}
    drawn = {hash_of(start_of(pool, hashed, "drawn", 0)) for hashed in hashes}
    assert len(own) == 40
    assert drawn == {hash_of(one) for one in pool}


def test_a_start_is_a_public_picture_that_is_moved_a_little() -> None:
    pool = public_pool("photos", (3, 32, 32))[:1]
    start = start_of(pool, "any", "own", 0)
    assert start.min() >= 0
    assert start.max() <= 1
    assert (start.mean((1, 2)) - pool[0].mean((1, 2))).abs().max() < 0.1


def test_public_pictures_take_the_shape_of_the_private_ones() -> None:
    color = pictures(2)
    gray = fit_to(color, (1, 5, 7))
    assert gray.shape == (2, 1, 5, 7)
    assert torch.allclose(
        fit_to(color, (1, 8, 8))[:, 0], (color * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    )
    assert torch.equal(fit_to(gray, (3, 5, 7))[:, 0], gray[:, 0])
    assert public_pool("digits", (3, 8, 8)).shape[1:] == (3, 8, 8)


# the cache


def test_what_is_read_is_what_was_made(cache: Path) -> None:
    private, kept = pictures(3), replace(TINY, cache=True)
    fresh = kept.encode(private)
    files = [path for path in cache.rglob("*") if path.is_file() and "made" not in path.parts]
    assert len(files) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert torch.equal(fresh, TINY.encode(private))
    assert torch.equal(kept.encode(private), fresh)


def test_what_is_in_the_cache_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    private, kept = pictures(3), replace(TINY, cache=True)
    fresh = kept.encode(private)
    monkeypatch.setattr("gradveil.defenses.loda.loda.obscure", lambda *_: pytest.fail("encoded again"))
    assert torch.equal(kept.encode(private), fresh)


@pytest.mark.parametrize("damage", ["torn", "changed", "empty"])
def test_a_damaged_file_counts_as_not_there(cache: Path, damage: str) -> None:
    private, kept = pictures(1), replace(TINY, cache=True)
    fresh = kept.encode(private)
    (path,) = (path for path in cache.rglob("*") if path.is_file() and "made" not in path.parts)
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes({"torn": bytes(content[:-7]), "changed": bytes(content), "empty": b""}[damage])
    assert torch.equal(kept.encode(private), fresh)


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert torch.equal(replace(TINY, cache=True).encode(pictures(1)), TINY.encode(pictures(1)))


# refusals


def test_encodings_are_not_encoded_again() -> None:
    kept, scenario = replace(TINY, cache=True), four_pictures(2)
    seen_in(scenario, kept)
    again = kept.encode(scenario.private.images.flatten(0, 1)).view_as(scenario.private.images)
    with pytest.raises(ConfigError, match="picture 0 is an encoding already"):
        kept.bind(replace(scenario, private=Batch(again, scenario.private.labels)))


@pytest.mark.parametrize("name", ["loda", "loda-1", "loda-2", "loda-3"])
def test_without_an_extractor_the_command_that_makes_one_is_named(name: str) -> None:
    defense = DEFENSES[name]()
    with pytest.raises(ConfigError, match="gradveil train-extractor"):
        defense.check(torch.nn.Identity())
    with pytest.raises(ConfigError, match="gradveil train-extractor"):
        seen_in(four_pictures(1), defense)


@pytest.mark.parametrize(
    ("extractor", "expected"),
    [
        ("resnet18", "is no extractor, write MODEL:FILE"),
        ("resnet81:untrained", "did you mean 'resnet18'"),
        ("resnet18:nowhere.safetensors", "no such file"),
    ],
)
def test_an_extractor_that_is_none_is_told(extractor: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Loda(extractor=extractor)


def test_an_extractor_for_other_channels_is_told(tmp_path: Path) -> None:
    gray = replace(TINY, extractor=f"lenet:{weights(tmp_path / 'gray.safetensors', channels=1)}")
    with pytest.raises(ConfigError, match="takes pictures of 1 channels, these have 3"):
        gray.bind(four_pictures(1))


def test_weights_of_another_model_are_told(tmp_path: Path) -> None:
    other = replace(TINY, extractor=f"convnet8:{weights(tmp_path / 'w.safetensors')}")
    with pytest.raises(ConfigError, match="not the weights of this model"):
        other.check_pictures(torch.zeros(1, 3, 9, 9))


def test_a_file_is_held_by_its_hash(tmp_path: Path) -> None:
    path = weights(tmp_path / "w.safetensors")
    held = replace(TINY, extractor=f"lenet:{path}")
    assert held.extractor.startswith(f"lenet:{path}#")
    assert replace(held) == held
    elsewhere = path.rename(tmp_path / "moved.safetensors")
    assert replace(TINY, extractor=f"lenet:{elsewhere}").key(SHAPE) == held.key(SHAPE)
    save_file({"fc.weight": torch.zeros(1, 1)}, path)
    with pytest.raises(ConfigError, match="restore the file"):
        replace(held)


def test_a_public_set_that_is_empty_or_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for spec in (str(tmp_path / "empty"), "fotos"):
        with pytest.raises(ConfigError, match=r"empty|photos"):
            replace(TINY, public=spec).bind(four_pictures(1))


def test_the_presets_are_those_of_the_paper() -> None:
    built = [DEFENSES[name]() for name in ("loda-1", "loda-2", "loda-3")]
    assert [(one.layers, one.c) for one in built] == [("first5", 20.0), ("all", 30.0), ("last5+linear", 1.0)]
    assert {(one.steps, one.rate) for one in built} == {(500, 0.1)}
