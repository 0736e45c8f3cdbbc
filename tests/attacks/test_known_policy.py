"""Attackers who learn the transformation along with the picture: the spaces, against torch; the attacks, on shifts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from scenes import MEAN, STD, drawn, four_pictures, scene, seen_in, smooth
from torch import Generator, Tensor

from gradveil.attacks import ATTACKS
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.known_policy import PACE, shifted, shifted_re_ats
from gradveil.config import from_tables
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.data.photos import photos
from gradveil.engine.descent import Objective
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Adam, Sgd, Steps
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.learned_translation import Affine, Gain, Padding, Part, Shifted, Transformed, starts
from gradveil.engine.spaces.space import Pixels
from gradveil.metrics.psnr import peak_signal_to_noise

SEEN = seen_in(four_pictures(2))
GRAY = torch.tensor(MEAN).double().view(3, 1, 1)
PICTURES = drawn(2, 4, 3, 8, 10)  # not square, so that rows and columns cannot be mixed up
EVERY = Transformed(parts=(Shifted(), Affine(scale=1.5), Gain()))


def numbers(part: Part, *shape: int, seed: int = 1) -> Tensor:
    """Anywhere within the limits."""
    return (2 * drawn(*shape, len(part.reach), seed=seed) - 1) * torch.tensor(part.reach, dtype=torch.float64)


def sampled(pictures: Tensor, theta: Tensor, fill: Tensor) -> Tensor:
    """torch's own sampler, a picture at a time, with the outside filled in by a mask."""
    out = torch.empty_like(pictures)
    for place in torch.cartesian_prod(*map(torch.arange, pictures.shape[:-3])).view(-1, pictures.dim() - 3).tolist():
        picture, at = pictures[tuple(place)][None], theta[tuple(place)][None]
        grid = F.affine_grid(at, list(picture.shape), align_corners=False)
        inside = F.grid_sample(torch.ones_like(picture), grid, align_corners=False)
        out[tuple(place)] = (F.grid_sample(picture, grid, align_corners=False) + (1 - inside) * fill)[0]
    return out


# spaces


@pytest.mark.parametrize("padding", ["black", "gray"])
def test_a_shift_is_torchs_sampler_with_the_outside_filled_in(padding: Padding) -> None:
    part = Shifted(limit=(1.1, 0.4), padding=padding)
    shift = numbers(part, 2, 4)
    theta = torch.cat([torch.eye(2).double().expand(2, 4, 2, 2), shift.unsqueeze(-1)], -1)
    expected = sampled(PICTURES, theta, GRAY if padding == "gray" else 0 * GRAY)
    assert (part(PICTURES, shift, GRAY) - expected).abs().max() < 1e-12


def test_the_slope_of_a_shift_is_torchs() -> None:
    shift = numbers(Shifted(), 2, 4).requires_grad_()
    theta = torch.cat([torch.eye(2).double().expand(2, 4, 2, 2), shift.unsqueeze(-1)], -1)
    weights = drawn(*PICTURES.shape, seed=3)
    (expected,) = torch.autograd.grad((sampled(PICTURES, theta, 0 * GRAY) * weights).sum(), shift)
    (got,) = torch.autograd.grad((Shifted()(PICTURES, shift, GRAY) * weights).sum(), shift)
    assert (got - expected).abs().max() < 1e-9 * expected.abs().max()


@pytest.mark.parametrize("start", [0.0, 0.2])  # of 10 columns: a whole pixel
def test_a_shift_by_whole_pixels_has_a_slope(start: float) -> None:
    shift = torch.full((2, 4, 2), start, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((Shifted()(PICTURES, shift, GRAY) * drawn(*PICTURES.shape, seed=3)).sum(), shift)
    assert (slope.abs() > 1e-3).all()


@pytest.mark.parametrize(("columns", "rows"), [(3, 0), (-3, 0), (0, 2), (-1, -2)])
def test_a_shift_by_whole_pixels_moves_them_exactly(columns: int, rows: int) -> None:
    shift = torch.tensor([-2 * columns / 10, -2 * rows / 8], dtype=torch.float64).expand(2, 4, 2)
    assert (Shifted()(PICTURES, shift, GRAY) - moved(PICTURES, columns, rows)).abs().max() < 1e-12


def test_turning_and_moving_are_torchs_sampler() -> None:
    angle, tx = math.radians(20), 0.3
    turned = torch.tensor([angle, 0, 0, math.log(1.2), tx, 0], dtype=torch.float64)
    cos, sin = 1.2 * math.cos(angle), 1.2 * math.sin(angle)
    theta = torch.tensor(
        [[cos, -sin * 8 / 10, tx], [sin * 10 / 8, cos, 0]], dtype=torch.float64
    )  # square pixels, not a square frame
    expected = sampled(PICTURES, theta.expand(2, 4, 2, 3), 0 * GRAY)
    assert (Affine(scale=1.5)(PICTURES, turned.expand(2, 4, 6), GRAY) - expected).abs().max() < 1e-12


def test_a_quarter_turn_is_rot90() -> None:
    square = drawn(1, 2, 3, 8, 8)
    quarter = torch.tensor([math.pi / 2, 0, 0, 0, 0, 0], dtype=torch.float64).expand(1, 2, 6)
    assert (Affine(rotation=90.0)(square, quarter, GRAY) - square.rot90(1, (-2, -1))).abs().max() < 1e-12


def test_an_affine_that_only_moves_is_the_shift() -> None:
    shift = numbers(Shifted(), 2, 4)
    still = torch.cat([torch.zeros(2, 4, 4).double(), shift], -1)
    assert (Affine()(PICTURES, still, GRAY) - Shifted()(PICTURES, shift, GRAY)).abs().max() < 1e-12


@pytest.mark.parametrize(("contrast", "brightness"), [(0.4, 0.0), (-0.4, 0.0), (0.0, 0.3), (0.0, -0.3)])
def test_gain_is_pils_on_gray_pictures(contrast: float, brightness: float) -> None:
    levels = (255 * drawn(8, 8)).round()
    picture = Image.fromarray(levels.byte().numpy())
    changed = ImageEnhance.Contrast(picture).enhance(1 + contrast)
    changed = ImageEnhance.Brightness(changed).enhance(1 + brightness)
    expected = torch.tensor(list(changed.tobytes())).view(8, 8) / 255
    got = Gain()((levels / 255).view(1, 1, 1, 8, 8), torch.tensor([[[contrast, brightness]]]).double(), GRAY)
    assert (got[0, 0, 0] - expected).abs().max() < 1.01 / 255  # it rounds the mean and the result


@pytest.mark.parametrize("part", [Shifted(), Affine(), Gain()], ids=["shift", "affine", "gain"])
def test_nothing_is_done_at_zero(part: Part) -> None:
    assert (part(PICTURES, 0 * numbers(part, 2, 4), GRAY) - PICTURES).abs().max() < 1e-12


def somewhere(space: Any) -> dict[str, Tensor]:
    """A point for two trials of four pictures."""
    bound = space.bind(SEEN)
    parts = {part.name: numbers(part, 2, 4) / part.pace for part in bound.parts}
    return {"pixels": drawn(2, 4, 3, 8, 8, seed=5), **parts}


def test_what_is_fed_is_transformed_and_what_is_reported_and_smoothed_is_not() -> None:
    bound, z = EVERY.bind(SEEN), somewhere(EVERY)
    plain = Pixels().bind(SEEN)
    assert torch.equal(bound.reveal(z), plain.reveal(z))
    assert torch.equal(bound.smooth(z), z["pixels"])
    pictures = plain.decode(z)
    for part in EVERY.parts:
        pictures = part(pictures, z[part.name], GRAY)
    assert (bound.decode(z) - pictures).abs().max() < 1e-6
    assert (bound.decode(z) - plain.decode(z)).abs().max() > 0.1


def test_what_was_fed_can_be_reported() -> None:
    bound, z = replace(EVERY, reveal="fed").bind(SEEN), somewhere(EVERY)
    inside = bound.constrain(z)
    assert torch.allclose(bound.reveal(inside), bound.decode(inside))
    assert (bound.reveal(inside) - EVERY.bind(SEEN).reveal(inside)).abs().max() > 0.1


@pytest.mark.parametrize("name", ["shifted", "shifted-re-ats", "affine"])
def test_the_attacks_can_report_what_was_fed(name: str) -> None:
    seen = seen_in(scene(smooth(), 2))
    private, fed = (
        ATTACKS[name](steps=5, restarts=2, reveal=r).reconstruct(seen, Seed(0), Compute(precision="float64"))
        for r in ("private", "fed")
    )
    assert torch.equal(private.loss, fed.loss)
    assert (private.images - fed.images).abs().max() > 1e-3


def test_gray_is_zero_to_the_model_and_black_is_no_light() -> None:
    far = {"pixels": drawn(1, 1, 3, 8, 8), "shift": torch.tensor([[[2.0, 0.0]]]).double()}  # all of it outside
    gray = Shifted(limit=(2.0, 0.0), padding="gray").bind(SEEN).decode(far)
    assert ((gray - GRAY) / torch.tensor(STD).view(3, 1, 1)).abs().max() < 1e-6
    assert Shifted(limit=(2.0, 0.0)).bind(SEEN).decode(far).abs().max() == 0


def test_every_picture_has_numbers_of_its_own() -> None:
    bound, z = EVERY.bind(SEEN), somewhere(EVERY)
    together = bound.decode(z)
    for trial in range(2):
        for example in range(4):
            one = {name: x[trial : trial + 1, example : example + 1] for name, x in z.items()}
            assert (bound.decode(one)[0, 0] - together[trial, example]).abs().max() < 1e-12


@pytest.mark.parametrize("pace", [1.0, 0.1])
def test_numbers_stay_within_their_limits(pace: float) -> None:
    space = Shifted(limit=(1.1, 0.2), pace=pace).bind(SEEN)
    far = {"pixels": drawn(1, 4, 3, 8, 8), "shift": torch.full((1, 4, 2), -9.0).double() / pace}
    inside = space.constrain(far)
    assert (pace * inside["shift"]).unique().tolist() == pytest.approx([-1.1, -0.2])
    assert all(torch.equal(x, space.constrain(inside)[name]) for name, x in inside.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_space_keeps_the_dtype_forward_and_backward(dtype: torch.dtype) -> None:
    seen = replace(SEEN, update={name: u.to(dtype) for name, u in SEEN.update.items()})
    bound = EVERY.bind(seen)
    start = bound.constrain({name: x[None] for name, x in bound.init(Seed(0), "a", 1).items()})
    leaves = {name: x.detach().requires_grad_() for name, x in start.items()}
    fed = bound.decode(leaves)
    assert {x.dtype for x in (fed, *leaves.values(), *torch.autograd.grad(fed.sum(), list(leaves.values())))} == {dtype}


def test_the_gradient_is_that_of_differences() -> None:
    bound = EVERY.bind(SEEN)
    z = {name: 0.3 * x.requires_grad_() for name, x in somewhere(EVERY).items()}
    weights = drawn(2, 4, 3, 8, 8, seed=7)

    def value(*parts: Tensor) -> Tensor:
        return (bound.decode(dict(zip(z, parts, strict=True))) * weights).sum()

    assert torch.autograd.gradcheck(
        value, [x.detach().requires_grad_() for x in z.values()], eps=1e-7, atol=1e-4, fast_mode=True
    )


def test_restarts_begin_all_around() -> None:
    bound = Shifted(limit=(1.0, 0.5)).bind(SEEN)
    begin = torch.stack([bound.init(Seed(0), "a", restart)["shift"] for restart in range(9)])
    assert begin[0].abs().max() == 0
    for example in range(4):
        assert {tuple(x) for x in begin[:, example].tolist()} == set(starts((1.0, 0.5)))
    assert len(starts((1.0, 0.5))) == 9
    assert len(starts((1.0, 0.0))) == 3
    still = Shifted(begin="rest").bind(SEEN)
    assert all(still.init(Seed(0), "a", restart)["shift"].abs().max() == 0 for restart in range(9))


def test_the_pixels_begin_as_they_do_without_a_shift() -> None:
    plain, here = Pixels().bind(SEEN), EVERY.bind(SEEN)
    assert torch.equal(here.init(Seed(3), "b", 2)["pixels"], plain.init(Seed(3), "b", 2)["pixels"])


def test_a_part_can_be_there_once() -> None:
    with pytest.raises(ConfigError, match="one is there twice"):
        Transformed(parts=(Gain(), Gain()))


BAD: list[tuple[type[Part], dict[str, Any]]] = [
    (Shifted, {"limit": (-1.0, 0.0)}),
    (Shifted, {"limit": (math.inf, 0.0)}),
    (Shifted, {"pace": 0.0}),
    (Affine, {"scale": 0.5}),
    (Affine, {"scale": 0.0}),
    (Affine, {"rotation": -1.0}),
    (Gain, {"limit": (0.5, math.nan)}),
]


@pytest.mark.parametrize(("part", "wrong"), BAD)
def test_limits_are_sizes(part: type[Part], wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        part(**wrong)


# optimizer and engine


@pytest.mark.parametrize("kind", [Adam, Sgd])
def test_only_the_named_parts_go_by_the_sign(kind: Any) -> None:
    z = {"pixels": drawn(2, 3), "shift": drawn(2, 2, seed=1)}
    grads, value, progress = {name: x - 0.7 for name, x in z.items()}, drawn(2), torch.tensor(0.0)

    def stepped(signed: Any) -> dict[str, Tensor]:
        optimizer = kind(signed=signed)
        state = optimizer.init(z)
        for _ in range(2):
            here, state = optimizer.step(z, value, grads, state, progress)
            grads["shift"] = 3 * grads["shift"]
        return dict(here)

    named, all_of_them, none = stepped(("pixels",)), stepped(True), stepped(False)
    assert torch.equal(named["pixels"], all_of_them["pixels"])
    assert not torch.equal(named["pixels"], none["pixels"])
    assert not torch.equal(named["shift"], all_of_them["shift"])


def test_the_tv_of_an_objective_is_that_of_the_picture_before() -> None:
    bound, z = Shifted().bind(SEEN), somewhere(Shifted())
    penalty = TotalVariation(1.0).bind(SEEN, torch.arange(2))
    total, match, grads = Objective(lambda fed: (fed.new_zeros(2), torch.zeros_like(fed)), bound, (penalty,))(z)
    assert torch.equal(match, torch.zeros(2).double())
    assert torch.allclose(total, TotalVariation().of(z["pixels"]))
    assert grads["shift"].abs().max() == 0
    assert grads["pixels"].abs().max() > 0


@pytest.mark.more
@pytest.mark.parametrize("name", ["shifted", "affine"])
@pytest.mark.parametrize("examples", [1, 2])
def test_all_back_ends_take_the_same_way(name: str, examples: int) -> None:
    seen = seen_in(scene(smooth(), 2, examples))
    attack = ATTACKS[name](steps=20, restarts=2)
    ways = {b: attack.reconstruct(seen, Seed(0), Compute(precision="float64", backend=b)) for b in BACKENDS}
    assert {b: way.backend for b, way in ways.items()} == {b: b for b in BACKENDS}
    for way in ways.values():
        assert (way.images - ways["loop"].images).abs().max() < 1e-9
        assert (way.loss - ways["loop"].loss).abs().max() < 1e-9


BACKENDS: tuple[Any, ...] = ("loop", "vmap", "sweep")


# attacks


def test_the_presets() -> None:
    theirs, ours = shifted_re_ats(), invertgrad(tv=1e-4, restarts=1)
    assert theirs.space == Shifted(limit=(1.1, 0.4), padding="gray", begin="rest")
    assert (theirs.steps, theirs.restarts, theirs.priors) == (4800, 1, ours.priors)
    assert theirs.optimizer == Adam(rate=0.1, signed=("pixels",), schedule=Steps())
    assert theirs == replace(ours, space=theirs.space, optimizer=theirs.optimizer, steps=4800)
    assert shifted(limit="3-1-7").space == Shifted(limit=(1.1, 0.2), pace=PACE)
    assert shifted(limit="43-18-18").space == Shifted(limit=(0.4, 0.4), pace=PACE)
    assert shifted(limit="hybrid").space == Shifted(limit=(1.1, 0.4), pace=PACE)
    assert shifted(limit=(0.5, 0.0)).restarts == 3
    assert shifted(limit=(0.0, 0.0)).restarts == 1


@pytest.mark.parametrize("limit", ["3-1-7", [0.5, 0.25]])
def test_a_limit_is_a_policy_or_two_numbers(limit: Any) -> None:
    choice = from_tables({"attack": {"mine": {"name": "shifted", "limit": limit}}}).attack["mine"]
    expected = (1.1, 0.2) if limit == "3-1-7" else (0.5, 0.25)
    assert shifted(**choice.options).space == Shifted(limit=expected, pace=PACE)


@pytest.mark.parametrize("limit", ["21-13-3", [1.0], [1.0, -0.1], 0.4])
def test_other_limits_are_refused(limit: Any) -> None:
    with pytest.raises(ConfigError):
        from_tables({"attack": {"mine": {"name": "shifted", "limit": limit}}})


def moved(images: Tensor, columns: int, rows: int = 0) -> Tensor:
    """To the right and down by whole pixels, black behind it."""
    height, width = images.shape[-2:]
    room = F.pad(images, (max(columns, 0), max(-columns, 0), max(rows, 0), max(-rows, 0)))
    top, left = max(-rows, 0), max(-columns, 0)
    return room[..., top : top + height, left : left + width]


@dataclass(frozen=True, kw_only=True)
class Moved(Defense):
    """Moves every picture sideways, `either` to the right or to the left."""

    columns: int
    either: bool = False

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        sign = 1 - 2 * int(torch.randint(2, (), generator=rng)) if self.either else 1
        return Batch(moved(batch.images, sign * self.columns), batch.labels)

    def surrogate(self, seen: Update) -> Defense:
        return self


def photographs(columns: int, *, knows: bool = False) -> tuple[Scenario, Defense]:
    """Four photographs at 8x8, moved by known columns."""
    pictures = photos(size=8, limit=4).images.double().unsqueeze(1)
    scenario = scene(smooth(), 4, threat=ThreatModel(knows_defense=knows))
    return replace(scenario, private=Batch(pictures, scenario.private.labels)), Moved(columns=columns)


def decibels(attack: Inversion, columns: int, *, knows: bool = False) -> tuple[float, float]:
    """Mean PSNR against the private pictures, where they were in the frame, and against the pictures as fed."""
    scenario, defense = photographs(columns, knows=knows)
    seen, truth = observe(scenario, defense, attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0), Compute(precision="float64")).images
    private = truth.private.images
    kept = slice(0, 8 - columns) if columns > 0 else slice(-columns, 8)
    return (
        peak_signal_to_noise(got[..., kept], private[..., kept]).mean().item(),
        peak_signal_to_noise(got, truth.fed.images).mean().item(),
    )


@pytest.mark.parametrize("columns", [2, pytest.param(-2, marks=pytest.mark.slow)])
def test_who_knows_the_shift_itself_needs_no_space_for_it(columns: int) -> None:
    attack = invertgrad(steps=200, tv=1e-4)
    unaware, fed = decibels(attack, columns)
    adaptive, other = decibels(attack, columns, knows=True)
    assert fed > unaware + 8
    assert adaptive > other + 8
    assert adaptive > unaware + 8


@pytest.mark.more
@pytest.mark.parametrize("columns", [2, -2])
def test_a_learned_shift_finds_the_sign(columns: int) -> None:
    """Two columns are half of the frame's half: tx = +-0.5."""
    unaware, _ = decibels(invertgrad(steps=200, tv=1e-2), columns)
    learned, fed = decibels(shifted(limit=(0.6, 0.0), steps=200), columns)
    assert learned > unaware + 3
    assert learned > fed + 3
