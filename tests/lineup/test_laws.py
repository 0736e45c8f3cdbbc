"""Every law is the likelihood of what its defense draws: held against scipy, and against the draws themselves."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.law import Kept, Laplace, Normal, Round, Same, Signs
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.defenses import DEFENSES
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.prune import Prune
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.sign import Sign
from gradveil.defenses.stack import Stack
from gradveil.defenses.topk import TopK

ONCE = Round()


def some(count: int, size: int = 60, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def update_of(rows: Tensor) -> dict[str, Tensor]:
    """Two tensors."""
    return {"a": rows[:, :20].unflatten(1, (4, 5)), "b": rows[:, 20:]}


def test_normal_noise_is_scored_as_scipy_does() -> None:
    seen, made = some(3), some(5, seed=1)
    expected = stats.norm.logpdf(seen[:, None].numpy(), made[None].numpy(), 0.7).sum(-1)
    found = Normal(deviation=0.7).score(update_of(seen), update_of(made)).numpy()
    assert found - found[:, :1] == pytest.approx(expected - expected[:, :1], rel=1e-4, abs=1e-3)


def test_noise_relative_to_an_update_is_scored_as_scipy_does() -> None:
    """Its size tells of the candidate too."""
    seen, made = some(3), 3 * some(5, seed=1) * torch.rand(5, 1)
    size = 0.5 * made.square().mean(1).sqrt()
    expected = stats.norm.logpdf(seen[:, None].numpy(), made[None].numpy(), size[None, :, None].numpy()).sum(-1)
    found = Normal(relative=0.5).score(update_of(seen), update_of(made)).numpy()
    assert found - found[:, :1] == pytest.approx(expected - expected[:, :1], rel=1e-4, abs=1e-3)


def test_laplacian_noise_is_scored_as_scipy_does() -> None:
    seen, made = some(3), some(5, seed=1)
    expected = stats.laplace.logpdf(seen[:, None].numpy(), made[None].numpy(), 0.7).sum(-1)
    found = Laplace(scale=0.7).score(update_of(seen), update_of(made)).numpy()
    assert found - found[:, :1] == pytest.approx(expected - expected[:, :1], rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("law", [Normal(deviation=1.0), Laplace(scale=1.0)])
def test_large_updates_lose_nothing_to_rounding(law: Normal | Laplace) -> None:
    """A million numbers of noise: candidates differ by less than the last digit of a sum in single precision."""
    made = 3e-3 * some(6, 1_000_000)
    seen = made[:2] + (some(2, 1_000_000, seed=1) if isinstance(law, Normal) else exponential(2, 1_000_000))
    found = law.score({"w": seen}, {"w": made})
    rows = [(row.double() - made.double()).abs() for row in seen]
    expected = torch.stack([-(d.square() / 2 if isinstance(law, Normal) else d).sum(1) for d in rows])
    assert ((found - found[:, :1]) - (expected - expected[:, :1])).abs().max() < 0.01


def exponential(count: int, size: int) -> Tensor:
    """Laplacian numbers of scale 1."""
    rng = torch.Generator().manual_seed(2)
    one, other = (torch.rand(count, size, generator=rng).clamp_min(1e-30).log() for _ in range(2))
    return one - other


def test_signs_under_noise_are_scored_as_scipy_does() -> None:
    seen, made = some(3).sign(), some(5, seed=1)
    expected = stats.norm.logcdf(seen[:, None].numpy() * made[None].numpy() / 0.7).sum(-1)
    found = Signs(Normal(deviation=0.7)).score(update_of(seen), update_of(made)).numpy()
    assert found == pytest.approx(expected, rel=1e-5)


def test_probabilities_of_all_roundings_add_up() -> None:
    """Of two numbers: whatever QSGD can send, once each."""
    defense = Qsgd(bits=3)
    made = {"w": torch.tensor([[1.0, -0.37]])}
    law = defense.law(ONCE)
    assert law is not None
    step = 1.0 / 3
    sent = [{"w": torch.tensor([[step * a, -step * b]])} for a, b in itertools.product((2, 3), (1, 2))]
    each = [float(law.score(one, made).exp()) for one in sent]
    assert sum(each) == pytest.approx(1, abs=1e-3)
    assert each[2] == pytest.approx(2 - 0.37 * 3, abs=1e-3), "3 and 1 steps, as likely as 0.37 is near to one step"


@pytest.mark.parametrize("defense", [Gaussian(scale=0.1), Gaussian(relative=0.3), Gaussian(snr=3.0),
                                     Laplacian(scale=0.1), Laplacian(relative=0.3), Qsgd(bits=4)])  # fmt: skip
def test_what_is_sent_fits_the_law_and_twice_the_noise_does_not(defense: Defense) -> None:
    law = defense.law(ONCE)
    assert law is not None
    plain = {"w": some(1, 4000)[0]}
    sent = defense.update(plain, Seed(3).rng())
    made = {"w": plain["w"][None]}
    assert law.fits({"w": sent["w"][None]}, made)
    twice = plain["w"] + 2 * (sent["w"] - plain["w"])
    assert not law.fits({"w": twice[None]}, made)
    assert not law.fits({"w": some(1, 4000, seed=9)}, made), "another picture's update"


def test_noise_of_several_steps_grows_as_it_is_drawn() -> None:
    """Standard deviation of the sum of drawn noise, with momentum."""
    training = LocalTraining(steps=4, rate=0.3, momentum=0.9)
    noise = torch.randn(4, 200_000, generator=torch.Generator().manual_seed(0))
    velocity, total = torch.zeros(200_000), torch.zeros(200_000)
    for step in range(4):
        velocity = 0.9 * velocity + noise[step]
        total += 0.3 * velocity
    assert Round(training=training).growth == pytest.approx(float(total.std()), rel=0.01)


def test_a_mean_over_clients_has_less_noise() -> None:
    assert Normal(deviation=1.0).mean_of(4) == Normal(deviation=0.5)
    assert Laplace(scale=1.0).mean_of(4) == Normal(deviation=math.sqrt(0.5), exact=False)
    assert Dpsgd(noise=1.0).law(Round(examples=5, members=4)) == Normal(deviation=0.1)
    assert Normal(relative=1.0).mean_of(2) is None
    assert Qsgd().law(Round(members=2)) is None


def test_stacks_have_the_law_of_their_noise_as_it_is_sent() -> None:
    assert Stack((Prune(ratio=0.5), Gaussian(scale=0.3))).law(ONCE) == Normal(deviation=0.3)
    both = Stack((Gaussian(scale=0.3), Gaussian(scale=0.4))).law(ONCE)
    assert isinstance(both, Normal)
    assert both.deviation == pytest.approx(0.5)
    assert Stack((Gaussian(scale=0.3), Prune(ratio=0.5))).law(ONCE) == Kept(Normal(deviation=0.3))
    assert Stack((Gaussian(scale=0.3), Sign())).law(ONCE) == Signs(Normal(deviation=0.3))
    assert Stack((Prune(), TopK())).law(ONCE) == Same()
    assert Stack((Gaussian(scale=0.3), Qsgd())).law(ONCE) is None
    assert Stack((Gaussian(scale=0.3), Prune(ratio=0.5))).quiet() == Stack((Defense(),))


@pytest.mark.parametrize("name", sorted(DEFENSES))
def test_every_defense_of_the_catalogue_has_a_law(name: str) -> None:
    """A user's own may have none; ours all do."""
    options = {"loda": {"extractor": "lenet:untrained"}}.get(name.split("-")[0], {})
    defense = Stack((Gaussian(), Prune())) if name == "stack" else DEFENSES[name](**options)
    assert defense.law(ONCE) is not None
