"""Policies: their text, what they draw, what they do to pictures, and their place in a DataLoader."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.func import grad, vmap
from torch.utils.data import DataLoader, Dataset

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.data.photos import photos
from gradveil.transforms import LIBRARIES, Draw, Library, Policy, library_of
from gradveil.transforms.picture import from_picture, to_picture

HYBRID = "3-1-7+43-18-18"


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    return photos(size=32, limit=16).images


# text


@pytest.mark.parametrize("text", ["3", "3-1-7", HYBRID, "none", "none+3", "0-0-0-0-49", "21-19", "1+2+3+3"])
def test_the_text_comes_back(text: str) -> None:
    assert str(Policy.parse(text)) == text


def test_numbers_are_read_as_they_stand() -> None:
    assert Policy.parse(HYBRID).alternatives == ((3, 1, 7), (43, 18, 18))
    assert Policy.parse("none+03").alternatives == ((), (3,))
    assert Policy.parse("1-0", ("invert0", "rotate3")).library.entries[1].operation == "rotate"


NOT_POLICIES = {
    "3-99": "policy 3-99: 99 is not in the library ats-code, take 0 to 49",
    "": "policy '': expected numbers of the library such as 3-1-7",
    "3-1-7+": "policy '3-1-7+': expected numbers",
    "+3": "policy '+3': expected numbers",
    "3--1": "policy '3--1': expected numbers",
    "-1": "policy '-1': expected numbers",
    "3-1-": "policy '3-1-': expected numbers",
    "translateX9": "policy 'translateX9': expected numbers",
    "3 - 1": "policy '3 - 1': expected numbers",
    "None": "policy 'None': expected numbers",
    "\uff13": "expected numbers",
    "1-" * 5000 + "1": "expected numbers",
}


@pytest.mark.parametrize(("text", "message"), NOT_POLICIES.items(), ids=list(NOT_POLICIES.values()))
def test_a_bad_text_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Policy.parse(text)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_a_number_of_a_larger_library_is_named() -> None:
    with pytest.raises(ConfigError, match="policy 0-2: 2 is not in the library own, take 0 to 1"):
        Policy.parse("0-2", ("invert0", "rotate3"))
    with pytest.raises(ConfigError, match="no alternative"):
        Policy(LIBRARIES["ats-code"], ())


# draws


def test_draws_are_even_and_of_plus_and_minus_one() -> None:
    count = 30_000
    draw = Policy.parse("3-1-7+43+none").draw(count, Seed(0).rng())
    assert draw.choice.shape == (count,)
    assert draw.signs.shape == (count, 3)
    assert draw.signs.abs().eq(1).all()
    often = torch.stack([*(draw.choice == choice for choice in range(3)), *(draw.signs.T > 0)]).double().mean(1)
    expected = torch.tensor([1 / 3] * 3 + [1 / 2] * 3, dtype=torch.float64)
    assert (often - expected).abs().max() < 5 * 0.5 / count**0.5
    assert torch.cat([draw.choice[:, None].double(), draw.signs], 1).T.corrcoef().tril(-1).abs().max() < 0.03


def test_what_a_picture_draws_does_not_depend_on_how_many_follow() -> None:
    policy = Policy.parse(HYBRID)
    few, many = (policy.draw(count, Seed(3).rng()) for count in (5, 400))
    assert torch.equal(few.choice, many.choice[:5])
    assert torch.equal(few.signs, many.signs[:5])


def test_every_draw_that_can_be_told_apart_is_listed_once() -> None:
    assert Policy.parse(HYBRID).draws() == tuple(product((0, 1), product((1, -1), repeat=3)))
    assert Policy.parse("0-11-9").draws() == ((0, (1, 1, 1)),)  # nothing of it has a sign
    assert Policy.parse("39-3").draws() == ((0, (1, 1)), (0, (1, -1)))  # color by nothing
    assert Policy.parse("none").draws() == ((0, ()),)
    assert Policy.parse("none+28+39").draws() == ((0, ()),)  # all of them identities
    assert Policy.parse("24+42+0-43").draws() == ((0, (1,)), (0, (-1,)), (2, (1, 1)), (2, (1, -1)))


@pytest.mark.parametrize("text", [HYBRID, "0-11-9", "none", "39-3", "3+none"])
def test_the_number_of_draws_is_known_beforehand(text: str) -> None:
    policy = Policy.parse(text)
    assert policy.count_draws() == len(policy.draws())


def test_what_is_drawn_is_listed(pictures: Tensor) -> None:
    """A picture through a policy is the picture through one of its draws, and each of them comes up."""
    policy = Policy.parse("3-1+13")
    alone = pictures[:1]
    possible = [policy.apply_one(alone, choice, signs) for choice, signs in policy.draws()]
    found = Counter()
    for turn in range(80):
        got = policy(alone, Seed(turn).rng())
        found[next(place for place, one in enumerate(possible) if torch.equal(one, got))] += 1
    assert set(found) == set(range(6))
    assert found[4] + found[5] > found[0] + found[1]  # alternatives are drawn first, so these two have half of it


# what is done


def test_a_policy_is_pil_s_functions_from_left_to_right(pictures: Tensor) -> None:
    """Written out with PIL: shift by the nearest pixel, contrast, then the negative."""
    policy = Policy.parse("3-1-0")
    shift = 150 / 331 * 32
    for sign_x, sign_c in product((1, -1), repeat=2):
        for picture in pictures[:4]:
            pil = to_picture(picture)
            moved = pil.transform(
                (32, 32), Image.Transform.AFFINE, (1, 0, sign_x * shift, 0, 1, 0), fillcolor=(0, 0, 0)
            )
            expected = ImageOps.invert(ImageEnhance.Contrast(moved).enhance(1 + sign_c * 0.5 * 6 / 9))
            got = policy.apply_one(picture, 0, (sign_x, sign_c, 1))
            assert torch.equal(got, from_picture(expected))


def test_order_matters(pictures: Tensor) -> None:
    one, other = (Policy.parse(text).apply_one(pictures, 0, (1, 1)) for text in ("3-0", "0-3"))
    assert not torch.equal(one, other)


def test_each_picture_goes_its_own_way_whoever_else_is_there(pictures: Tensor) -> None:
    policy = Policy.parse("3-1-7+43-18-18+0-2+none")
    draw = policy.draw(len(pictures), Seed(0).rng())
    assert set(draw.choice.tolist()) == {0, 1, 2, 3}
    together = policy.apply(pictures, draw)
    for place, picture in enumerate(pictures):
        choice = int(draw.choice[place])
        slots = policy.alternatives[choice]
        signs = [int(sign) for sign in draw.signs[place, : len(slots)]]
        assert torch.equal(together[place], policy.apply_one(picture, choice, signs)), place
    order = torch.randperm(len(pictures))
    shuffled = policy.apply(pictures[order], Draw(draw.choice[order], draw.signs[order]))
    assert torch.equal(shuffled, together[order])


def test_the_identity_leaves_every_bit(pictures: Tensor) -> None:
    unrounded = torch.rand(3, 3, 7, 5, dtype=torch.float64)
    for text in ("none", "none+none"):
        assert torch.equal(Policy.parse(text)(unrounded, Seed(0).rng()), unrounded)
    for text in ("28", "39", "28-39"):
        assert torch.equal(Policy.parse(text)(pictures, Seed(0).rng()), pictures)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kind_and_shape_are_kept(dtype: torch.dtype) -> None:
    policy = Policy.parse(HYBRID)
    for shape in ((3, 9, 12), (2, 3, 9, 12), (1, 9, 12), (0, 3, 9, 12)):
        got = policy(torch.rand(shape, dtype=dtype), Seed(0).rng())
        assert (got.shape, got.dtype) == (shape, dtype)


def test_pictures_of_pil_bytes_and_floats_come_out_alike(pictures: Tensor) -> None:
    policy, picture = Policy.parse(HYBRID), pictures[2]
    floats, pil = policy(picture, Seed(5).rng()), policy(to_picture(picture), Seed(5).rng())
    levels = policy((picture * 255).round().to(torch.uint8), Seed(5).rng())
    assert isinstance(pil, Image.Image)
    assert pil.mode == "RGB"
    assert torch.equal(from_picture(pil), floats)
    assert levels.dtype == torch.uint8
    assert torch.equal(levels, (floats * 255).round().to(torch.uint8))
    gray = policy(to_picture(picture[:1]), Seed(5).rng())
    assert (gray.mode, gray.size) == ("L", (32, 32))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Image.new("RGBA", (4, 4)), "a picture of mode RGBA, convert it to RGB or L first"),
        (torch.rand(4, 4), "expected C x H x W or N x C x H x W, floats or bytes"),
        (torch.ones(3, 4, 4, dtype=torch.int64), "got (3, 4, 4) of torch.int64"),
    ],
)
def test_what_is_no_picture_is_refused(wrong: Tensor | Image.Image, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Policy.parse("3")(wrong)  # type: ignore[call-overload]


def test_gradients_pass(pictures: Tensor) -> None:
    policy = Policy.parse(HYBRID)
    images = pictures.clone().requires_grad_()
    policy(images, Seed(0).rng()).square().sum().backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()
    assert (images.grad.flatten(1).norm(dim=1) > 0).all()


@pytest.mark.parametrize("text", ["3-1-7", "2-10-14", "9-11-37", "8-0-27", "none"])
def test_one_draw_runs_under_any_leading_axes_and_vmap(text: str, pictures: Tensor) -> None:
    policy = Policy.parse(text)
    choice, signs = policy.draws()[-1]

    def through(images: Tensor) -> Tensor:
        return policy.apply_one(images, choice, signs)

    expected, nested = through(pictures), pictures.unflatten(0, (2, 4, 2))
    assert torch.equal(through(nested).flatten(0, 2), expected)
    assert torch.equal(vmap(vmap(through))(nested).flatten(0, 2), expected)
    slope = grad(lambda images: through(images).square().sum())
    assert torch.allclose(vmap(slope)(nested).flatten(0, 2), slope(pictures), atol=1e-6)


# the same policy


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("47-28-22", "0-9"),
        ("28-39", "none"),
        ("43-18-18", "24-18-18"),
        ("42+24", "24"),
        ("24+0+42", "0+24+24"),  # not even chances
        ("1+3+3+1", "1+3"),
        ("3-1", "3-1"),
        ("0-29", "0-0"),
    ],
)
def test_equal_policies_have_one_form(text: str, same: str) -> None:
    assert str(Policy.parse(text).canonical()) == same
    assert Policy.parse(text).canonical() == Policy.parse(same).canonical()
    assert len({Policy.parse(text).canonical(), Policy.parse(same).canonical()}) == 1


def test_there_are_that_many_different_policies() -> None:
    """27 functions that do something: 27 + 27^2 + 27^3 of the 127,550 texts of one to three numbers, and none."""
    library = LIBRARIES["ats-code"]
    pairs = {Policy(library, (slots,)).canonical() for n in (1, 2) for slots in product(range(50), repeat=n)}
    assert len(pairs) == 1 + 27 + 27**2


def test_the_form_does_the_same(pictures: Tensor) -> None:
    for text in ("47-28-22", "43-20-34", "41-45"):
        policy = Policy.parse(text)
        form = policy.canonical()
        once, again = (
            {one.apply_one(pictures, *draw).numpy().tobytes() for draw in one.draws()} for one in (policy, form)
        )
        assert once == again


def test_forms_of_different_libraries_differ() -> None:
    assert Policy.parse("43").canonical() != Policy.parse("43", "ats-paper").canonical()


# in a pipeline

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # of Python 3.12 on


@dataclass
class Photos(Dataset):
    """As a client would write it."""

    images: list[Image.Image]
    transform: Policy

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> Tensor:
        return from_picture(self.transform(self.images[place]))


def epoch(policy: Policy, pictures: Tensor, workers: int, seed: int) -> Tensor:
    dataset = Photos([to_picture(picture) for picture in pictures], policy)
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        dataset,
        batch_size=3,
        num_workers=workers,
        generator=generator,
        multiprocessing_context="fork" if workers else None,
    )
    return torch.cat(list(loader))


@forks
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_feeds_transformed_pictures(workers: int, pictures: Tensor) -> None:
    policy = Policy.parse(HYBRID)
    torch.manual_seed(0)
    first = epoch(policy, pictures[:6], workers, 1)
    torch.manual_seed(0)
    assert torch.equal(first, epoch(policy, pictures[:6], workers, 1))
    torch.manual_seed(1)
    assert not torch.equal(first, epoch(policy, pictures[:6], workers, 2))
    for picture, fed in zip(pictures, first, strict=False):
        possible = [policy.apply_one(picture, choice, signs) for choice, signs in policy.draws()]
        assert any(torch.equal(fed, one) for one in possible)


@forks
def test_workers_draw_each_their_own(pictures: Tensor) -> None:
    """The same picture twelve times, in two processes: copies of one stream would repeat each other's draws."""
    fed = epoch(Policy.parse("3-1-7+43-18-18"), pictures[:1].expand(12, -1, -1, -1), 2, 7).unflatten(0, (4, 3))
    assert not torch.equal(fed[0], fed[1])
    assert not torch.equal(fed[2], fed[3])


def test_a_policy_can_be_pickled_and_is_the_same(pictures: Tensor) -> None:
    policy = Policy.parse("1-0+2", ("invert0", "rotate3", "shearX4"))
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert hash(again) == hash(policy)
    assert torch.equal(again(pictures, Seed(0).rng()), policy(pictures, Seed(0).rng()))


def test_a_library_may_be_given_in_any_form() -> None:
    own = library_of(("invert0",))
    assert Policy.parse("0", own) == Policy.parse("0", own.spec) == Policy(own, ((0,),))
    assert isinstance(own, Library)
