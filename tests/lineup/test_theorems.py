"""Nobody guesses better than the most likely candidate, and differential privacy bounds even that guess."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rooms import gallery_of, hold, trials_of
from torch import Tensor
from toys import scenario

from gradveil.core.law import Laplace, Law, Normal, Signs
from gradveil.core.scenario import LocalTraining
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.gaussian import Gaussian
from gradveil.dp.trade_off import identified_by_gaussian
from gradveil.lineup.candidates import Gallery

DRAWS = 400
FAR = 5.0  # standard errors: one in three million for each of the comparisons


def random_mechanism(rng: torch.Generator) -> tuple[Tensor, float]:
    """What each of a few candidates makes, in clusters or not, none longer than 1; and the size of the noise."""
    count, size = (int(torch.randint(low, high, (1,), generator=rng)) for low, high in ((2, 13), (1, 9)))
    spread = torch.rand(1, generator=rng)
    made = torch.randn(1, size, generator=rng) + spread * torch.randn(count, size, generator=rng)
    made = made / made.norm(dim=1).max()
    return made, float(0.1 * 20 ** torch.rand(1, generator=rng))


def others(seen: Tensor, made: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    """What other guessers name: by direction, by absolute distances, by signs, through a projection, by chance."""
    gaze = torch.randn(made.shape[1], 2, generator=rng)
    rebuilt = seen / seen.norm(dim=1, keepdim=True)  # of known length: first reconstruct, then look up
    return {
        "cosine": (seen @ (made / made.norm(dim=1, keepdim=True).clamp_min(1e-9)).T).argmax(1),
        "product": (seen @ made.T).argmax(1),
        "absolute": torch.cdist(seen, made, p=1).argmin(1),
        "signs": (seen.sign() @ made.sign().T).argmax(1),
        "projected": torch.cdist(seen @ gaze, made @ gaze).argmin(1),
        "rebuilt": torch.cdist(rebuilt, made).argmin(1),
        "chance": torch.randint(len(made), (len(seen),), generator=rng),
    }


def play(kind: str, made: Tensor, scale: float, chosen: Tensor, rng: torch.Generator) -> tuple[Tensor, Law]:
    """What is sent for each chosen candidate, and by which law."""
    noise = torch.randn(len(chosen), made.shape[1], generator=rng)
    if kind == "normal":
        return made[chosen] + scale * noise, Normal(deviation=scale)
    if kind == "signs":
        return (made[chosen] + scale * noise).sign(), Signs(Normal(deviation=scale))
    exponential = [-torch.rand(noise.shape, generator=rng).clamp_min(1e-30).log() for _ in range(2)]
    return made[chosen] + scale * (exponential[0] - exponential[1]), Laplace(scale=scale)


@pytest.mark.parametrize("kind", ["normal", "laplace", "signs"])
def test_nobody_names_more_than_the_line_up(kind: str) -> None:
    """1,000 mechanisms, a third for each law: every difference within its standard error, and their mean above 0."""
    rng = torch.Generator().manual_seed(7)
    gains: dict[str, list[float]] = {}
    for _ in range(334):
        made, scale = random_mechanism(rng)
        chosen = torch.randint(len(made), (DRAWS,), generator=rng)
        seen, law = play(kind, made, scale, chosen, rng)
        hits = (law.score({"w": seen}, {"w": made}).argmax(1) == chosen).double()
        for name, guess in others(seen, made, rng).items():
            gain = hits - (guess == chosen).double()
            gains.setdefault(name, []).append(float(gain.mean()))
            error = float(gain.std()) / math.sqrt(DRAWS) + 1 / DRAWS
            assert gain.mean() >= -FAR * error, (name, kind, scale)
    same = {"normal": "", "laplace": "absolute", "signs": ""}[kind]  # the one that is the most likely candidate itself
    assert all(np.mean(found) > 0 for name, found in gains.items() if name != same)
    assert np.mean(gains["chance"]) > 0.1


def test_no_line_up_names_more_than_its_certificate() -> None:
    """Noise of `scale` on what is no longer than 1, among equally likely candidates: the Gaussian trade-off."""
    rng = torch.Generator().manual_seed(8)
    near = 0
    for _ in range(1000):
        made, scale = random_mechanism(rng)
        chosen = torch.randint(len(made), (DRAWS,), generator=rng)
        seen, law = play("normal", made, scale, chosen, rng)
        rate = float((law.score({"w": seen}, {"w": made}).argmax(1) == chosen).double().mean())
        bound = identified_by_gaussian(1 / len(made), 1 / scale)
        assert rate <= bound + FAR * math.sqrt(bound * (1 - bound) / DRAWS) + 1 / DRAWS
        near += rate > bound - 0.1 and bound < 0.95
    assert near > 20, "the bound was never near, so the test could not have failed"


def test_orthogonal_candidates_reach_nearly_the_certificate() -> None:
    """Figures of docs/bounds.md: 1,001 candidates at right angles, 4,000 draws."""
    rng, count = torch.Generator().manual_seed(9), 1001
    for scale, expected in ((0.2, 0.949), (0.3, 0.540), (0.5, 0.119)):
        seen = scale * torch.randn(4000, count, generator=rng)
        seen[:, 0] += 1
        scores = Normal(deviation=scale).score({"w": seen}, {"w": torch.eye(count)})
        rate = float((scores.argmax(1) == 0).double().mean())
        assert abs(rate - expected) < 4 * math.sqrt(2 * expected * (1 - expected) / 4000) + 5e-4
        assert rate < identified_by_gaussian(1 / count, 1 / scale)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_units_do_not_matter(scale: float) -> None:
    """Whoever counts updates in other units names the same pictures: the rate is such a unit."""
    weak = [one.ranks for one in hold(Gaussian(scale=2.0), clients=12, standins=2)]
    training = LocalTraining(rate=scale)
    assert weak == [one.ranks for one in hold(Gaussian(scale=2.0 * scale), clients=12, standins=2, training=training)]
    assert max(rank for ranks in weak for rank in ranks) > 1


@pytest.mark.parametrize("defense", [None, Gaussian(scale=1e-3)])
def test_a_picture_that_is_there_twice_is_named_half_as_often(defense: Gaussian | None) -> None:
    """Of equally likely candidates one is drawn."""
    clients = 120
    own = scenario(clients).private
    twice = Gallery(images=own.images[:, 0], labels=own.labels[:, 0])
    named = sum(rank == 1 for rank in trials_of(hold(defense, clients=clients, gallery=twice)))
    assert abs(named - clients / 2) < 4 * math.sqrt(clients) / 2
    assert all(rank <= 2 for rank in trials_of(hold(defense, clients=clients, gallery=twice)))


def test_more_noise_names_fewer() -> None:
    rates = []
    for noise in (0.01, 0.1, 0.3, 3.0):
        trials = trials_of(hold(Dpsgd(noise=noise), clients=20, standins=4, gallery=gallery_of(79)))
        rates.append(sum(rank == 1 for rank in trials) / len(trials))
    assert rates[0] == 1.0
    assert rates[-1] < 0.1
    assert rates == sorted(rates, reverse=True)
