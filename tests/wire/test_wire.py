"""Updates as bytes: back to the bit, near the entropy, and nothing but a ConfigError for what is malformed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Update
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.prune import Prune
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.sign import Sign
from gradveil.defenses.stack import Stack
from gradveil.defenses.topk import TopK
from gradveil.defenses.uniform import Uniform
from gradveil.wire import decode, encode, encoded_size
from gradveil.wire.entropy import pack, unpack
from gradveil.wire.forms import FORMS
from gradveil.wire.message import MARK
from gradveil.wire.reader import Reader, varint, varints

RNG = torch.Generator().manual_seed(0)
UPDATE = {
    "conv.weight": torch.randn(40, 9, 5, 5, generator=RNG) ** 3,
    "conv.bias": 1e-6 * torch.randn(40, generator=RNG),
    "dead": torch.zeros(17),
    "one": torch.tensor(-2.5),
    "nothing": torch.zeros(0, 3),
}
DEFENSES = [
    Defense(),
    Gaussian(scale=0.1),
    Prune(ratio=0.5),
    TopK(),
    TopK(keep=0.001),
    Sign(),
    Sign(scaled=True),
    Uniform(bits=2),
    Uniform(),
    Uniform(bits=8),
    Uniform(bits=16),
    Uniform(kappa=0.3),
    Qsgd(),
    Qsgd(levels=1),
    Qsgd(norm="l2"),
    Qsgd(bucket=64),
    Stack((TopK(), Qsgd())),
    Stack((Qsgd(), TopK())),
]
each_defense = pytest.mark.parametrize("defense", DEFENSES, ids=repr)


def same_bits(one: Tensor, other: Tensor) -> bool:
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}[one.dtype]
    alike = (one.shape, one.dtype) == (other.shape, other.dtype)
    return alike and torch.equal(one.reshape(-1).view(whole), other.reshape(-1).view(whole))


def comes_back(update: Update, message: bytes) -> bool:
    again = decode(message)
    return list(again) == list(update) and all(same_bits(u, again[name]) for name, u in update.items())


@each_defense
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_defense_sends_comes_back_to_the_bit(defense: Defense, dtype: torch.dtype) -> None:
    sent = defense.update({name: u.to(dtype) for name, u in UPDATE.items()}, Seed(0).rng())
    message = encode(sent, bucket=getattr(defense, "bucket", 0))
    assert comes_back(sent, message)
    assert len(message) <= len(encode(sent, forms=["dense"]))


@each_defense
@pytest.mark.parametrize("form", FORMS)
def test_every_form_that_fits_gives_the_same_bits(defense: Defense, form: str) -> None:
    sent = defense.update(UPDATE, Seed(0).rng())
    for name, u in sent.items():
        if FORMS[form].write(u.numpy().reshape(-1), 0) is not None:
            assert comes_back({name: u}, encode({name: u}, forms=[form]))


def test_bits_that_a_float_hides() -> None:
    odd = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 3.4e38, -1e-45, 0.0])
    for form in ("dense", "sparse", "palette"):
        assert comes_back({"w": odd}, encode({"w": odd}, forms=[form]))
    assert comes_back({"w": odd}, encode({"w": odd}))
    assert FORMS["levels"].write(odd.numpy(), 0) is None


def test_names_shapes_and_views() -> None:
    update = {"größe/ä": torch.arange(6.0).view(2, 3).T, "": torch.ones(1, 1, 1, 1), "scalar": torch.tensor(1e-3)}
    assert comes_back(update, encode(update))
    assert decode(encode({})) == {}


# size


def entropy(symbols: Tensor) -> float:
    """Bytes, if every symbol is drawn for itself."""
    share = symbols.flatten().unique(return_counts=True)[1] / symbols.numel()
    return -(share * share.log2()).sum().item() * symbols.numel() / 8


@pytest.mark.parametrize(
    "defense", [Sign(), Uniform(bits=2), Uniform(), Uniform(bits=6), Qsgd(), Qsgd(levels=1), Qsgd(bits=5)], ids=repr
)
def test_quantized_numbers_take_a_few_per_cent_more_than_their_entropy(defense: Defense) -> None:
    sent = defense.update({"w": torch.randn(200, 200, generator=torch.Generator().manual_seed(1))}, Seed(0).rng())
    floor, size = entropy(sent["w"]), encoded_size(sent)
    assert floor <= size < 1.03 * floor + 150


@pytest.mark.parametrize("keep", [0.001, 0.05, 0.5])
def test_sparse_numbers_take_themselves_and_their_places(keep: float) -> None:
    sent = TopK(keep=keep).update(
        {"w": torch.randn(200, 200, generator=torch.Generator().manual_seed(1))}, Seed(0).rng()
    )
    kept = int((sent["w"] != 0).sum())
    floor, size = 4 * kept + entropy(sent["w"] != 0), encoded_size(sent)
    assert floor <= size < 1.03 * floor + 150


def test_sizes_by_hand() -> None:
    many = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    assert 40_000 < encoded_size({"w": many}) < 40_030
    assert encoded_size({"w": torch.zeros(10_000)}) < 40
    assert encoded_size({"w": many.sign()}) < 10_000 / 8 + 60


@pytest.mark.parametrize(
    ("alphabet", "count"), [(1, 5), (2, 0), (2, 1), (3, 10_000), (255, 5000), (1024, 300), (5000, 99)]
)
def test_symbols_come_back(alphabet: int, count: int) -> None:
    symbols = (np.random.default_rng(0).random(count) ** 4 * alphabet).astype(np.int64)
    reader = Reader(pack(symbols, alphabet))
    assert np.array_equal(unpack(reader, count, alphabet), symbols)
    reader.end()


def test_many_rare_symbols_among_one_that_is_common() -> None:
    symbols = np.concatenate([np.zeros(200_000, np.int64), np.arange(1000)])
    reader = Reader(pack(symbols, 1000))
    assert np.array_equal(unpack(reader, len(symbols), 1000), symbols)


def test_numbers_of_any_length_come_back() -> None:
    numbers = np.array([0, 1, 127, 128, 16_383, 16_384, 2**31, 2**40], np.uint64)
    assert varints(numbers) == b"".join(varint(int(n)) for n in numbers)
    assert np.array_equal(Reader(varints(numbers)).varints(len(numbers)), numbers)


# bytes from somebody else


def sealed(body: bytes) -> bytes:
    """With a checksum that holds, so that what is read is the body."""
    return body + zlib.crc32(body).to_bytes(4, "little")


def test_a_message_that_was_cut_or_changed_is_refused() -> None:
    message = encode(TopK().update(UPDATE, Seed(0).rng()))
    for cut in (0, 1, 3, 4, 8, len(message) // 2, len(message) - 1):
        with pytest.raises(ConfigError, match="encoded update: "):
            decode(message[:cut])
    for place in range(0, len(message), 37):
        changed = bytearray(message)
        changed[place] ^= 1
        with pytest.raises(ConfigError, match="encoded update: "):
            decode(bytes(changed))


@pytest.mark.parametrize("defense", [TopK(), Sign(), Qsgd(), Defense()], ids=repr)
def test_a_forged_message_is_refused_or_is_an_update(defense: Defense) -> None:
    """With its checksum mended. Whatever it says, it ends in one of two ways, and soon."""
    small = {name: u.flatten()[:300] for name, u in UPDATE.items()}
    body, rng = encode(defense.update(small, Seed(0).rng()))[:-4], np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        forged = bytearray(body)
        for place in rng.integers(len(MARK), len(body), rng.integers(1, 4)):
            forged[place] = rng.integers(256)
        if rng.random() < 0.3:
            forged = forged[: rng.integers(len(MARK), len(body))]
        try:
            assert isinstance(decode(sealed(bytes(forged)), most=100_000), dict)
        except ConfigError:
            refused += 1
    assert refused > 20


HEAD = MARK + b"\x01" + b"\x01w"  # one tensor by the name of w


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"GVU2\x00", "mark"),
        (MARK, "ends early"),
        (MARK + b"\xff" * 12, "too many digits"),
        (MARK + varint(10**9), "a number of tensors"),
        (MARK + b"\x01" + varint(10**6), "the length of a name"),
        (MARK + b"\x01\x02\xff\xfe\x00\x00\x00", "no text"),
        (HEAD + bytes([7, 1]), "kind 7"),
        (HEAD + bytes([0, 200]), "200 axes"),
        (HEAD + bytes([0, 1]) + varint(2**50) + b"\x00", "an axis"),
        (HEAD + bytes([0, 2]) + 2 * varint(2**20) + b"\x00", "the limit is"),
        (HEAD + bytes([0, 1, 5, 9]), "form 9"),
        (HEAD + bytes([0, 1, 5, 0]), "ends early"),
        (HEAD + bytes([0, 1, 5, 1, 6]), "a number of places"),
        (HEAD + bytes([0, 1, 5, 1, 1, 1, 9]) + bytes(4), "out of range"),
        (HEAD + bytes([0, 1, 5, 1, 2, 1, 3, 3]) + bytes(8), "do not add up"),
        (HEAD + bytes([0, 1, 5, 2, 0]), "empty"),
        (HEAD + bytes([0, 1, 5, 3, 0, 0]), "empty"),
        (HEAD + bytes([0, 1, 5, 3, 3]) + bytes(12) + bytes([0, 255, 255]), "out of range"),
        (HEAD + bytes([0, 1, 5, 3, 2]) + bytes(8) + bytes([1, 1, 1]), "add up"),
        (HEAD + bytes([0, 1, 0, 0]) + b"more", "too many"),
        (MARK + b"\x02" + 2 * (b"\x01w" + bytes([0, 1, 0, 0])), "twice"),
    ],
)
def test_a_message_that_makes_no_sense_says_why(body: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        decode(sealed(body))


def test_a_short_message_cannot_claim_much_memory() -> None:
    message = encode({"w": torch.zeros(100_000)})
    assert len(message) < 100
    assert decode(message)["w"].shape == (100_000,)
    with pytest.raises(ConfigError, match="more than 99999"):
        decode(message, most=99_999)
    both = encode({"v": torch.zeros(60_000), "w": torch.zeros(60_000)})
    with pytest.raises(ConfigError, match="more than 40000"):
        decode(both, most=100_000)


def test_what_cannot_be_written_says_so() -> None:
    with pytest.raises(ConfigError, match="float32 or float64"):
        encode({"w": torch.ones(3, dtype=torch.float16)})
    with pytest.raises(ConfigError, match="unknown name 'zip'"):
        encode({"w": torch.ones(3)}, forms=["zip"])
    with pytest.raises(ConfigError, match="allow dense"):
        encode({"w": torch.randn(5000)}, forms=["levels"])
