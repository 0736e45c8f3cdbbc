"""Which noise of a defense counts, held by the defenses' own code: the best attacker stays below and comes near."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import gradveil
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.clip import Clip
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.oasis import Oasis
from gradveil.defenses.prune import Prune
from gradveil.defenses.sign import Sign
from gradveil.defenses.soteria import Soteria
from gradveil.defenses.stack import Stack
from gradveil.dp import certify_gaussian
from gradveil.dp.audited_round import certify_round, round_certificates

PRIVATE = Batch(torch.eye(12).reshape(4, 3, 1, 3, 4), torch.eye(2)[torch.zeros(4, 3, dtype=torch.long)])
PLAIN = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
SCENE = Scenario(name="scene", model=PLAIN, private=PRIVATE, names=("a", "b", "c", "d"))
DRAWS = 500


class TwoBranches(nn.Module):
    """Two layers that see the picture alike, so each moves as far as its clip lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(12, 2, bias=False), nn.Linear(12, 2, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return self.one(flat) + self.two(flat)


def flat(update: dict[str, Tensor]) -> Tensor:
    return torch.cat([u.flatten() for u in update.values()])


def rate_of_the_best_attacker(defense: Defense, silent: Defense, scale: float, model: nn.Module) -> float:
    """Twelve pictures that have nothing in common, so their gradients are orthogonal; all normal noise is of one
    deviation, so the nearest of the noiseless updates is the likeliest candidate. `scale` enlarges the gradients above
    every clip."""
    model = in_client_mode(model, LocalTraining())
    params = {name: torch.zeros_like(p) for name, p in parameters_of(model).items()}
    data = [Batch(scale * image[None], torch.tensor([[1.0, 0.0]])) for image in PRIVATE.images.flatten(0, 1)]

    def send(candidate: int, kind: Defense, seed: int) -> Tensor:
        rng = Seed(seed).rng()
        return flat(dict(local_update(model, params, data[candidate], LocalTraining(), kind, rng)))

    clean = torch.stack([send(c, silent, 0) for c in range(12)])
    named = [int((send(d % 12, defense, d) - clean).norm(dim=1).argmin()) == d % 12 for d in range(DRAWS)]
    return sum(named) / DRAWS


CASES = {
    "dpsgd": (Dpsgd(clip=0.5, noise=1.0), Dpsgd(clip=0.5, noise=0.0), None),
    "copies": (
        Stack((Oasis(transforms="hflip"), Dpsgd(clip=0.5, noise=2.0))),
        Stack((Oasis(transforms="hflip"), Dpsgd(clip=0.5, noise=0.0))),
        None,
    ),
    "fedcdp": (FedCdp(clip=0.5, noise=2**0.5), FedCdp(clip=0.5, noise=0.0), TwoBranches()),
    "clip": (Stack((Clip(clip=0.5), Gaussian(scale=0.5))), Clip(clip=0.5), None),
    "clip in two layers": (Stack((Clip(clip=0.5), Gaussian(scale=0.5))), Clip(clip=0.5), TwoBranches()),
}


@pytest.mark.parametrize(("defense", "silent", "model"), CASES.values(), ids=CASES)
def test_the_best_attacker_of_a_defense(defense: Defense, silent: Defense, model: nn.Module | None) -> None:
    model = model or nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    bound = gradveil.certificate(defense, model=model, candidates=12)
    assert bound.sigma == pytest.approx(1.0)
    rate = rate_of_the_best_attacker(defense, silent, 100.0, model)
    error = math.sqrt(bound.at_most * (1 - bound.at_most) / DRAWS)
    assert rate < bound.at_most + 3 * error
    # copies mirrored move in other directions than the picture, so the account of copies is not tight
    if defense.copies == 1:
        assert rate > certify_gaussian(sigma=1.35, kappa=1 / 12).at_most


SIX = Dpsgd(noise=6.0)


@pytest.mark.parametrize(
    ("defense", "sigma", "unit"),
    [
        (SIX, 6.0, "example"),
        (FedCdp(noise=6.0), 6.0 / 2, "example"),
        (Stack((Oasis(transforms="hflip"), SIX)), 3.0, "example"),
        (Stack((Soteria(), SIX, Gaussian(), Prune())), 6.0, "example"),
        (Stack((Clip(clip=0.5), Gaussian(scale=2.0))), 4.0, "client"),
        (Stack((Prune(), Clip(clip=0.5), Gaussian(scale=2.0), Sign())), 4.0, "client"),
        (Stack((Gaussian(), Clip(clip=0.5), Gaussian(scale=2.0))), 4.0, "client"),
        (Stack((Mixup(), SIX, Clip(clip=0.5), Gaussian(scale=2.0))), 4.0, "client"),
        (Stack((SIX, Clip(clip=0.5), Gaussian(scale=0.1))), 6.0, "example"),
        (Stack((SIX, Clip(clip=0.5), Gaussian(scale=9.0))), 18.0, "client"),
    ],
)
def test_the_noise_that_counts(defense: Defense, sigma: float, unit: str) -> None:
    got = gradveil.certificate(defense, layers=4)
    assert (got.kind, got.sigma, got.unit) == ("gaussian", pytest.approx(sigma), unit)
    assert got.at_most == certify_gaussian(sigma=sigma).at_most


@pytest.mark.parametrize(
    ("defense", "why"),
    [
        (Defense(), "no noise of a fixed size"),
        (Prune(), "no noise of a fixed size"),
        (Laplacian(), "no noise of a fixed size"),
        (Clip(), "no noise of a fixed size"),
        (Stack((Clip(), Gaussian(snr=3.0))), "no noise of a fixed size"),
        (Gaussian(), "gaussian adds noise to an update that nothing clips"),
        (Stack((Gaussian(), Clip())), "put clip right before it"),
        (Stack((Clip(), Prune(), Gaussian())), "put clip right before it"),
        (Stack((Clip(clip=math.inf), Gaussian())), "nothing clips"),
        (Stack((Clip(), Gaussian(scale=0.0))), "there is no noise"),
        (Dpsgd(noise=0.0), "there is no noise"),
        (Dpsgd(snr=0.0), "no epsilon holds with snr"),
        (Stack((Mixup(), Dpsgd())), "mixup mixes pictures"),
        (Stack((Dpsgd(), Soteria())), "soteria looks at the pictures again"),
    ],
)
def test_what_has_no_certificate_says_why(defense: Defense, why: str) -> None:
    got = gradveil.certificate(defense)
    assert (got.at_most, got.kind, got.holds) == (1.0, "none", False)
    assert why in got.reason
    assert why in str(got)


def test_releases_are_steps_of_a_picture_and_rounds_of_a_client() -> None:
    client = Stack((Clip(), Gaussian(scale=4.0)))
    assert gradveil.certificate(SIX, rounds=3, steps=2).releases == 6
    assert gradveil.certificate(client, rounds=3, steps=2).releases == 3
    assert gradveil.certificate(SIX, pictures=2).mu == pytest.approx(2 / 6)
    assert gradveil.certificate(client, neighbors="replace-one").mu == pytest.approx(2 / 4)


def test_the_chance_is_named() -> None:
    one = gradveil.certificate("dpsgd:noise=0.5", candidates=101, attacks=2, top=5)
    assert one.kappa == 10 / 101
    assert one.event == "identified as one of 5 among 101 candidates by one of 2 attacks"
    text = 'stack:of=[{name="clip",clip=2.0},{name="gaussian",scale=1.0}]'
    assert gradveil.certificate(text) == gradveil.certificate(Stack((Clip(clip=2.0), Gaussian(scale=1.0))))


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"rounds": 0}, "rounds"),
        ({"steps": 0}, "steps"),
        ({"candidates": 1}, "candidates"),
        ({"pictures": 0}, "pictures"),
        ({"layers": 0}, "layers"),
        ({"neighbors": "next-door"}, "neighbors"),
        ({"defense": FedCdp()}, "model"),
        ({"defense": "dpsgd:noise=-1"}, "defense"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict, key: str) -> None:
    given = {"defense": SIX, **wrong}
    with pytest.raises(ConfigError, match=f"^{key}: ") as error:
        gradveil.certificate(**given)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_of_an_audited_round() -> None:
    """Three pictures a client, two a step: a picture is in two of four steps, and in four of two rounds."""
    often = replace(SCENE, training=LocalTraining(steps=4, batch_size=2), threat=ThreatModel(rounds=2))
    client = Stack((Clip(), Gaussian(scale=4.0)))
    found = round_certificates(
        (SCENE, replace(often, name="often")), {"none": Defense(), "dp": SIX, "client": client}, candidates=301
    )
    assert list(found["scene"]) == ["none", "dp", "client"]
    assert [certify_round(one, SIX).releases for one in (SCENE, often)] == [1, 4]
    assert [certify_round(one, client).releases for one in (SCENE, often)] == [1, 2]
    assert found["scene"]["dp"].at_most == certify_gaussian(sigma=6.0, kappa=1 / 301).at_most
    assert found["scene"]["dp"].event == "identified among 301 candidates"
    assert not found["scene"]["none"].holds
    assert certify_round(SCENE, FedCdp(noise=6.0)).sigma == pytest.approx(6.0)  # of one layer
    assert certify_round(replace(SCENE, model=TwoBranches()), FedCdp(noise=6.0)).sigma == pytest.approx(6 / 2**0.5)


def test_what_a_scenario_shows_beside_the_noise_ends_the_certificate() -> None:
    client = Stack((Clip(), Gaussian()))
    shared = replace(SCENE, training=LocalTraining(batchnorm="batch-shared"))
    assert "BatchNorm statistics" in certify_round(shared, client).reason
    assert "unusual" in certify_round(replace(SCENE, chosen=True), SIX).reason
    published = replace(SCENE, threat=ThreatModel(sees_encodings=True))
    assert "published" in certify_round(published, Stack((Loda(), Clip(), Gaussian()))).reason
    assert certify_round(published, client).holds
    malicious = replace(SCENE, threat=ThreatModel(may_plant=True))
    assert "may add layers" in certify_round(malicious, FedCdp()).reason
    assert certify_round(malicious, SIX).holds
    assert certify_round(malicious, client).holds


def test_what_a_captured_client_did_is_not_known() -> None:
    from gradveil.core.scenario import Received

    captured = replace(SCENE, received=Received(update={"w": torch.zeros(4, 2)}))
    assert round_certificates((captured,), {"dp": SIX}) == {}
