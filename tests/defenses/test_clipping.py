"""DP-SGD and Fed-CDP: norms, the size of the noise, and what is left at the limits of their options."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scenes import batch_statistics, fedavg, four_pictures, seen_in, smooth
from scipy.stats import kstest
from torch import Generator, Tensor, nn

from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn, Update
from gradveil.defenses import DEFENSES
from gradveil.defenses._per_example import TOGETHER, clip_length, layer_of, length, mean_of_each
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.stack import Stack
from gradveil.dp.accountant import epsilon_of

BOTH = pytest.mark.parametrize("kind", [Dpsgd, FedCdp])


def sent_alone(scenario: Scenario, client: int, example: int, defense: Defense) -> Update:
    """What a client with one of its pictures alone would send."""
    model = in_client_mode(scenario.model, scenario.training)
    at = slice(example, example + 1)
    batch = Batch(scenario.private.images[client, at], scenario.private.labels[client, at])
    return local_update(model, parameters_of(model), batch, LocalTraining(), defense, Seed().rng())


def layers(update: Update) -> dict[str, dict[str, Tensor]]:
    names = {layer_of(name) for name in update}
    return {layer: {n: u for n, u in update.items() if layer_of(n) == layer} for layer in names}


def close(a: Update, b: Update, within: float) -> bool:
    return a.keys() == b.keys() and all((a[n] - b[n]).abs().max() <= within * b[n].abs().max() for n in a)


@BOTH
@pytest.mark.parametrize("scenario", [four_pictures(), fedavg()], ids=["FedSGD", "FedAvg"])
def test_an_infinite_clip_without_noise_is_no_defense(kind: type, scenario: Scenario) -> None:
    assert close(seen_in(scenario, kind(clip=math.inf, noise=0.0)).update, seen_in(scenario).update, 1e-13)


@BOTH
def test_it_is_the_mean_over_examples_however_many_are_taken_at_once(kind: type) -> None:
    model, count = in_client_mode(smooth(), LocalTraining()), TOGETHER + 3
    images = torch.rand(count, 3, 8, 8, dtype=torch.float64)
    batch = Batch(images, torch.eye(5, dtype=torch.float64)[torch.arange(count) % 5])
    defense = kind(clip=0.05, noise=0.0)
    got = local_update(model, parameters_of(model), batch, LocalTraining(), defense, Seed().rng())
    each = [
        local_update(model, parameters_of(model), Batch(*(x[i : i + 1] for x in batch)), LocalTraining(), defense, rng)
        for i, rng in enumerate([Seed().rng()] * count)
    ]
    assert close(got, {name: torch.stack([one[name] for one in each]).mean(0) for name in got}, 1e-12)


def test_flat_clipping_bounds_every_example() -> None:
    scenario, clip = four_pictures(), 0.1
    for example in range(4):
        before = length(sent_alone(scenario, 0, example, Defense()))
        assert before > clip
        assert length(sent_alone(scenario, 0, example, Dpsgd(clip=clip, noise=0.0))).item() == pytest.approx(clip)
        longer = Dpsgd(clip=2 * before.item(), noise=0.0)
        assert length(sent_alone(scenario, 0, example, longer)).item() == pytest.approx(before.item())


def test_clipping_by_layer_bounds_every_layer_of_every_example() -> None:
    scenario, clip = four_pictures(), 0.05
    for example in range(4):
        plain = layers(sent_alone(scenario, 0, example, Defense()))
        short = layers(sent_alone(scenario, 0, example, FedCdp(clip=clip, noise=0.0)))
        assert any(length(u) > clip for u in plain.values())
        for layer, u in short.items():
            assert length(u) <= clip * (1 + 1e-12)
            assert length(u).item() == pytest.approx(min(clip, length(plain[layer]).item()))


def test_clipping_keeps_directions_and_what_is_short() -> None:
    gradient = {"a.weight": torch.tensor([3.0, 4.0]), "a.bias": torch.tensor([12.0])}  # of length 13
    assert torch.allclose(clip_length(gradient, 1.3)["a.bias"], torch.tensor([1.2]))
    assert torch.equal(clip_length(gradient, 20.0)["a.weight"], gradient["a.weight"])
    zero = torch.zeros(3, requires_grad=True)
    (slope,) = torch.autograd.grad(clip_length({"w": zero}, 1.0)["w"].sum(), zero)
    assert torch.equal(slope, torch.ones(3))


@pytest.mark.parametrize(
    ("defense", "scale"), [(Dpsgd(clip=0.5, noise=1.5), 0.75 / 4), (FedCdp(clip=0.5, noise=1.5), 0.75 / 2)]
)
def test_the_noise_is_normal_and_of_the_size_asked_for(defense: Dpsgd | FedCdp, scale: float) -> None:
    """Of four examples: sigma C on the sum, and sigma C on each; both divided by four."""
    scenario = four_pictures()
    noisy, clean = (seen_in(scenario, d).update for d in (defense, replace(defense, noise=0.0)))
    drawn = torch.cat([(noisy[name] - clean[name]).flatten() for name in noisy]) / scale
    assert kstest(drawn.numpy(), "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert kstest((drawn * wrong).numpy(), "norm").pvalue < 1e-6


def ratio(noisy: Update, clean: Update) -> float:
    """Signal to noise in dB, all tensors together."""
    noise, signal = (
        torch.cat([u.flatten() for u in x]) for x in ([noisy[n] - clean[n] for n in clean], clean.values())
    )
    return 20 * math.log10(float(signal.norm() / noise.norm()))


@BOTH
@pytest.mark.parametrize("snr", [0.0, -20.0, 20.0])
def test_a_ratio_of_signal_to_noise_is_that_of_every_clients_clipped_mean_gradient(kind: type, snr: float) -> None:
    scenario = four_pictures(3, smooth())
    noisy, clean = (seen_in(scenario, d).update for d in (kind(clip=0.5, snr=snr), kind(clip=0.5, noise=0.0)))
    numbers = sum(u[0].numel() for u in clean.values())
    for client in range(3):
        got = ratio(*({name: u[client] for name, u in update.items()} for update in (noisy, clean)))
        # the mean square of n normal numbers is off by sqrt(2 / n) of itself: 4 of these, in dB
        assert got == pytest.approx(snr, abs=4 * 4.35 * math.sqrt(2 / numbers))


def test_noise_by_a_ratio_is_normal_and_of_one_size_for_all_tensors() -> None:
    scenario = four_pictures(1)
    noisy, clean = (seen_in(scenario, d).update for d in (FedCdp(clip=0.5, snr=-6.0), FedCdp(clip=0.5, noise=0.0)))
    power = sum(float(u.square().sum()) for u in clean.values()) / sum(u.numel() for u in clean.values())
    drawn = torch.cat([(noisy[name] - clean[name]).flatten() for name in noisy]) / math.sqrt(power * 10**0.6)
    assert kstest(drawn.numpy(), "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert kstest((drawn * wrong).numpy(), "norm").pvalue < 1e-6


@BOTH
def test_a_ratio_needs_no_clip_and_its_surrogate_draws_nothing(kind: type) -> None:
    assert kind(clip=math.inf, snr=0.0).surrogate({}) == kind(clip=math.inf, noise=0.0)


@BOTH
def test_no_epsilon_holds_for_noise_that_follows_the_gradient(kind: type) -> None:
    with pytest.raises(ConfigError, match=r"no epsilon holds with snr = 0 dB.*own gradient, give noise instead"):
        epsilon_of(kind(snr=0.0), layers=2, sampling_rate=0.1, steps=10, delta=1e-5)


@BOTH
def test_every_step_and_client_draws_anew(kind: type) -> None:
    seen, clean = (seen_in(fedavg(), kind(clip=0.5, noise=noise)) for noise in (1.0, 0.0))
    name = "fc.bias"
    noise = seen.update[name] - clean.update[name]
    assert not torch.allclose(noise[0], noise[1])
    assert not torch.allclose(noise[1], noise[2])


@BOTH
def test_the_surrogate_clips_and_does_not_draw(kind: type) -> None:
    assert kind(clip=0.3, noise=2.0).surrogate({}) == kind(clip=0.3, noise=0.0)


class DrawsInside(Defense):
    """Its own noise on the gradient, wherever that is computed."""

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        return lambda params, batch: Gaussian(scale=10.0).update(compute(params, batch), rng)


@BOTH
def test_around_a_defense_that_draws(kind: type) -> None:
    seen = seen_in(four_pictures(1), Stack((DrawsInside(), kind(clip=0.5, noise=0.0))))
    assert all(u.isfinite().all() for u in seen.update.values())


def test_examples_draw_their_own_numbers() -> None:
    rng, batch = Seed().rng(), Batch(torch.zeros(3, 1), torch.zeros(3, 1))
    got = mean_of_each(
        lambda params, batch: {"w": torch.randn((2,), generator=rng).to(batch.images)},
        lambda gradient: {**gradient, "square": gradient["w"].square()},
        {},
        batch,
    )
    assert (got["square"] - got["w"].square() > 1e-3).all()  # the variance over the examples


@BOTH
def test_batch_statistics_leave_no_gradient_of_one_example(kind: type) -> None:
    scenario = batch_statistics()
    name = {Dpsgd: "dpsgd", FedCdp: "fedcdp"}[kind]
    with pytest.raises(ConfigError, match=f"{name}: layer 'norm1' normalizes by the batch"):
        seen_in(scenario, kind())
    with pytest.raises(ConfigError, match="batchnorm = eval"):
        kind().check(in_client_mode(scenario.model, scenario.training))
    kind().check(in_client_mode(scenario.model, LocalTraining()))


@pytest.mark.parametrize("name", ["dpsgd", "fedcdp"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clip": 0.0}, "clip = 0.0 is not a length"),
        ({"clip": -1.0}, "clip = -1.0"),
        ({"clip": math.nan}, "clip = nan"),
        ({"noise": -0.1}, "noise = -0.1"),
        ({"noise": math.inf}, "noise = inf"),
        ({"clip": math.inf, "noise": 1.0}, "bounds nothing"),
        ({"snr": 0.0, "noise": 0.5}, "noise and snr both say how much noise"),
        ({"snr": 300.0}, "snr = 300.0 dB is out of range"),
        ({"snr": math.nan}, "snr = nan dB"),
    ],
)
def test_out_of_range(name: str, options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .*{said}"):
        DEFENSES[name](**options)
