"""Spaces that are looked at through views: every picture through its own, and what is reported is what was before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import drawn, four_pictures, scene, seen_in, smooth
from torch import Tensor

from gradveil.core.errors import NotApplicableError
from gradveil.core.knowledge import View
from gradveil.core.scenario import ThreatModel
from gradveil.core.seeds import Seed
from gradveil.engine.spaces.joint_labels import JointLabels
from gradveil.engine.spaces.learned_translation import Gain, Shifted, Transformed
from gradveil.engine.spaces.space import Pixels
from gradveil.engine.spaces.unknown_view import Guesses, Look, Viewed, learns_the_policy, through

VIEWS = (
    View(lambda x: x, "as it is"),
    View(lambda x: x.flip(-1), "mirrored"),
    View(lambda x: 0.5 * x, "dark"),
    View(lambda x: 1 - x, "inverted"),
)
CPU = torch.device("cpu")
SEEN = seen_in(four_pictures(3))
GUESSES: Guesses = {"client-0": ((0, 1, 2, 3),), "client-1": ((1, 1, 1, 1),), "client-2": ((3, 0, 0, 2), (2, 2, 2, 2))}


def one_by_one(pictures: Tensor, which: Tensor) -> Tensor:
    """The reference: a loop."""
    rows = [[VIEWS[int(k)].apply(x) for x, k in zip(*row, strict=True)] for row in zip(pictures, which, strict=True)]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("seed", range(4))
def test_a_look_is_every_picture_through_its_own_view(seed: int) -> None:
    which = torch.randint(len(VIEWS), (3, 5), generator=torch.Generator().manual_seed(seed))
    pictures = drawn(3, 5, 3, 4, 6, seed=seed).requires_grad_()
    expected, got = one_by_one(pictures, which), Look.through(VIEWS, which, CPU)(pictures)
    assert torch.equal(got, expected)
    weights = drawn(*pictures.shape, seed=9)
    slopes = [torch.autograd.grad((x * weights).sum(), pictures)[0] for x in (got, expected)]
    assert torch.equal(*slopes)


def test_views_that_nobody_has_are_not_run() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise AssertionError("run on nothing")

    look = Look.through((VIEWS[1], View(refuse, "never")), torch.zeros(2, 1, dtype=torch.long), CPU)
    pictures = drawn(2, 1, 3, 4, 4)
    assert torch.equal(look(pictures), pictures.flip(-1))


def test_what_is_fed_is_seen_through_the_view_and_what_is_reported_and_smoothed_is_not() -> None:
    plain, space = Pixels().bind(SEEN), Viewed(views=VIEWS, guesses=GUESSES).bind(SEEN)
    z = {"pixels": drawn(3, 4, 3, 8, 8) - 0.5}
    which = torch.tensor([GUESSES[name][0] for name in SEEN.names])
    assert torch.equal(space.decode(z), one_by_one(plain.decode(z), which))
    assert torch.equal(space.reveal(z), plain.reveal(z))
    assert torch.equal(space.smooth(z), plain.smooth(z))
    assert torch.equal(space.constrain(z)["pixels"], plain.constrain(z)["pixels"])
    fed = Viewed(views=VIEWS, guesses=GUESSES, reveal="fed").bind(SEEN)
    assert torch.equal(fed.reveal(z), one_by_one(plain.reveal(z), which))


def test_restarts_take_the_guesses_in_turn_and_each_guess_starts_alike() -> None:
    seen = SEEN.take([2, 2, 2, 2, 0, 0])
    space = Viewed(views=VIEWS, guesses=GUESSES).bind(seen, torch.tensor([0, 1, 2, 3, 0, 1]))
    pictures = drawn(1, 4, 3, 8, 8).expand(6, -1, -1, -1, -1)
    first, second = GUESSES["client-2"]
    which = torch.tensor([first, second, first, second, *GUESSES["client-0"], *GUESSES["client-0"]])
    fed = space.decode({"pixels": pictures})
    assert torch.equal(fed, one_by_one(Pixels().bind(seen).decode({"pixels": pictures}), which))
    starts = [space.init(Seed(0), "client-2", restart)["pixels"] for restart in range(4)]
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[2], starts[3])
    assert not torch.equal(starts[0], starts[2])
    plain = Pixels().bind(seen)  # who has one guess starts as without views
    for restart in range(2):
        expected = plain.init(Seed(0), "client-0", restart)["pixels"]
        assert torch.equal(space.init(Seed(0), "client-0", restart)["pixels"], expected)


def test_any_space_can_be_looked_at_through_views() -> None:
    dark = Pixels(start="black")
    assert through(dark, VIEWS, GUESSES) == Viewed(inner=dark, views=VIEWS, guesses=GUESSES)
    asked = Viewed(inner=dark, reveal="fed")
    assert through(asked, VIEWS, GUESSES) == replace(asked, views=VIEWS, guesses=GUESSES)
    assert through(JointLabels(dark), VIEWS, GUESSES) == JointLabels(through(dark, VIEWS, GUESSES))


def test_a_space_that_learns_the_policy_is_told_from_the_others() -> None:
    learning = [Shifted(), Transformed(parts=(Gain(),)), JointLabels(Shifted())]
    assert all(map(learns_the_policy, learning))
    assert not any(map(learns_the_policy, [Pixels(), Viewed(), JointLabels(Pixels())]))


def test_labels_can_be_searched_for_beside_it() -> None:
    seen = seen_in(scene(smooth(), 2, 2, threat=ThreatModel(knows_labels=False)))
    guesses: Guesses = dict.fromkeys(seen.names, ((1, 2),))
    space = through(JointLabels(Pixels()), VIEWS, guesses).bind(seen)
    start = space.init(Seed(0), "client-0", 0)
    z = {name: torch.stack([x, x]) for name, x in start.items()}
    inside = space.constrain(z)
    assert (space.decode(inside)[:, 0] - space.reveal(inside)[:, 0].flip(-1)).abs().max() < 1e-12


def test_without_views_there_is_nothing_to_look_through() -> None:
    with pytest.raises(NotApplicableError, match="knows of no policy"):
        Viewed().bind(SEEN)
