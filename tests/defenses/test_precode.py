"""PRECODE: the bottleneck, its draws, its term of the loss, and the path of the mean."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scenes import drawn, four_pictures, one_picture, perceptron, seen_in, smooth
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call

from gradveil.attacks.linear import linear
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.core.seeds import Seed, normal
from gradveil.core.types import Batch, Params, Update
from gradveil.defenses import DEFENSES
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.precode import Precode, VariationalBottleneck, bottleneck_of, fixed_draws
from gradveil.defenses.stack import Stack
from gradveil.engine.backend import choose
from gradveil.engine.distance import Cosine
from gradveil.metrics.psnr import peak_signal_to_noise

FEDSGD = LocalTraining()
DATA = Batch(drawn(4, 3, 8, 8, seed=3), F.one_hot(torch.arange(4), 5).double())


def update_of(model: nn.Module, defense: Defense, seed: int = 0) -> Update:
    model = in_client_mode(model, FEDSGD)
    return local_update(model, parameters_of(model), DATA, FEDSGD, defense, Seed(seed).rng())


def close(a: Update, b: Update) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], rtol=1e-10, atol=1e-14) for n in a)


def quiet(model: nn.Module) -> nn.Module:
    """Its deviations are zero."""
    layer = model.get_submodule(bottleneck_of(model))
    assert isinstance(layer, VariationalBottleneck)
    size = layer.decoder.in_features
    layer.encoder.weight.data[size:] = 0
    layer.encoder.bias.data[size:] = -50.0
    return model


def test_the_model_gets_a_bottleneck_before_its_last_linear_layer() -> None:
    plain = smooth()
    before = copy.deepcopy(plain.state_dict())
    model = Precode().model(plain)
    assert all(torch.equal(x, before[key]) for key, x in plain.state_dict().items())
    added = {
        "6.bottleneck.encoder.weight": (512, 128),
        "6.bottleneck.decoder.weight": (128, 256),
        "6.head.weight": (5, 128),
    }
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert added.items() <= shapes.items()
    assert torch.equal(model.get_parameter("6.head.weight"), plain.get_parameter("6.weight"))
    again, other = Precode().model(plain), Precode(seed=1).model(plain)
    assert all(torch.equal(p, again.get_parameter(n)) for n, p in model.named_parameters())
    assert not torch.equal(
        model.get_parameter("6.bottleneck.encoder.weight"), other.get_parameter("6.bottleneck.encoder.weight")
    )
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_without_noise_the_model_goes_by_the_mean_and_draws_nothing() -> None:
    model = Precode(size=8).model(smooth()).eval()
    state = torch.get_rng_state()
    once, again = model(DATA.images), model(DATA.images)
    assert torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)


def test_with_deviation_zero_a_draw_is_the_mean() -> None:
    defense = Precode(size=8, beta=0.0)
    model = quiet(defense.model(smooth()))
    kept = {n for n in update_of(model, Defense()) if "encoder" not in n}  # whose slope by the deviation is noise too
    sent, mean = update_of(model, defense), update_of(model, Defense())
    assert close({n: sent[n] for n in kept}, {n: mean[n] for n in kept})
    noisy = defense.model(smooth())
    assert not close(update_of(noisy, defense), update_of(noisy, Defense()))


def test_what_is_sent_is_the_gradient_of_loss_and_divergence_at_the_numbers_drawn() -> None:
    defense = Precode(size=8, beta=0.3)
    model = in_client_mode(defense.model(smooth()), FEDSGD)
    body, tail = model[:6], model.get_submodule("6")  # type: ignore[index]
    noise = normal((4, 8), Seed(0).rng(), DATA.images)
    mean, raw = tail.get_submodule("bottleneck.encoder")(body(DATA.images)).chunk(2, -1)
    std = F.softplus(raw)
    logits = tail.get_submodule("head")(tail.get_submodule("bottleneck.decoder")(mean + std * noise))
    bits = kl_divergence(Normal(mean, std), Normal(0.0, 1.0)).sum(1).mean() / torch.log(torch.tensor(2.0)).double()
    named = dict(model.named_parameters())
    slopes = torch.autograd.grad(F.cross_entropy(logits, DATA.labels) + 0.3 * bits, list(named.values()))
    expected = dict(zip(named, slopes, strict=True))
    got = update_of(model, defense)
    assert got.keys() == expected.keys()
    assert all(torch.allclose(got[n], expected[n], rtol=1e-6, atol=1e-9) for n in got)  # softplus in two forms


def test_clients_steps_and_seeds_draw_their_own_numbers() -> None:
    defense = Precode(size=8)
    model = defense.model(smooth())
    assert close(update_of(model, defense), update_of(model, defense))
    assert not close(update_of(model, defense), update_of(model, defense, seed=1))
    scenario = one_picture(2, smooth())
    twins = Batch(*(x[:1].repeat_interleave(2, 0) for x in scenario.private))
    seen = seen_in(replace(scenario, private=twins), defense)
    assert not torch.allclose(seen.update["6.head.weight"][0], seen.update["6.head.weight"][1])


def test_one_who_knows_goes_by_the_mean_and_matches_what_comes_before() -> None:
    scenario = replace(four_pictures(2, smooth()), threat=ThreatModel(knows_defense=True))
    seen = seen_in(scenario, Precode(size=8, beta=0.0))
    fed, early = drawn(2, 4, 3, 8, 8, seed=5), Cosine(without=("6.*",))
    blind = replace(seen, defense=None)
    expected = choose(blind, early, "loop").matcher(blind, early)(fed)
    got = choose(seen, Cosine(), "vmap").matcher(seen, Cosine())(fed)
    assert torch.allclose(got[0], expected[0], rtol=1e-10)
    assert torch.allclose(got[1], expected[1], rtol=1e-8, atol=1e-12)


def test_an_attacker_with_draws_takes_the_mean_of_their_gradients() -> None:
    defense = Precode(size=8, beta=0.0, draws=3)
    model = in_client_mode(defense.model(smooth()), FEDSGD)
    place, params = bottleneck_of(model), parameters_of(model)

    def gradient(noise: Tensor) -> Update:
        def loss(params: Params) -> Tensor:
            return F.cross_entropy(
                functional_call(model, {**params, f"{place}.noise": noise}, (DATA.images,)), DATA.labels
            )

        return torch.func.grad(loss)(params)

    each = [gradient(noise) for noise in fixed_draws(3 * 4, 8).view(3, 4, 8)]
    got = update_of(model, defense.surrogate({}))
    early = {name for name in params if not name.startswith("6.")}
    assert close(got, {name: torch.stack([one[name] for one in each]).mean(0) for name in early})


def test_its_draws_are_the_same_for_every_trial_and_back_end() -> None:
    scenario = replace(four_pictures(2, smooth()), threat=ThreatModel(knows_defense=True))
    seen = seen_in(scenario, Precode(size=8, draws=2))
    twins, fed = seen.take([1, 1, 0]), drawn(1, 4, 3, 8, 8, seed=5).expand(3, -1, -1, -1, -1)
    together = choose(twins, Cosine(), "vmap").matcher(twins, Cosine())(fed)
    one_by_one = choose(twins, Cosine(), "loop").matcher(twins, Cosine())(fed)
    for got, expected in zip(together, one_by_one, strict=True):
        assert torch.allclose(got, expected, rtol=1e-8, atol=1e-12)
    assert torch.allclose(together[0][0], together[0][1], rtol=1e-12)
    assert not torch.allclose(together[0][0], together[0][2])


def test_more_draws_come_nearer_to_what_clients_send_on_the_mean() -> None:
    """The mean over many clients' draws is the gradient that the attacker wants, which the mean path only nears."""
    model = Precode(size=8, beta=0.0).model(smooth())
    sent = [update_of(model, Precode(size=8, beta=0.0), seed) for seed in range(80)]
    early = [name for name in sent[0] if not name.startswith("6.")]
    mean = torch.cat([torch.stack([one[name] for one in sent]).mean(0).flatten() for name in early])

    def off(draws: int) -> float:
        got = update_of(model, Precode(size=8, beta=0.0, draws=draws).surrogate({}))
        return float((torch.cat([got[name].flatten() for name in early]) - mean).norm())

    assert off(256) < off(4)
    assert off(256) < off(0)


def test_a_first_linear_layer_gives_its_picture_away_all_the_same() -> None:
    """Balunovic et al., 2022: the ratio of its gradients does not depend on what is drawn later."""
    scenario = one_picture(3, perceptron())
    seen = seen_in(scenario, Precode(size=8, beta=0.0))
    assert (peak_signal_to_noise(linear().reconstruct(seen, Seed()).images, scenario.private.images) > 100).all()


def test_inside_clipping_every_example_draws_its_own() -> None:
    seen = seen_in(four_pictures(2, smooth()), Stack((Precode(size=8), Dpsgd(clip=0.1, noise=0.0))))
    assert all(u.isfinite().all() for u in seen.update.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "size = 0"),
        ({"beta": -1.0}, "beta = -1.0"),
        ({"beta": float("inf")}, "beta = inf"),
        ({"draws": -1}, "draws = -1"),
    ],
)
def test_out_of_range(options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^precode: {said}"):
        Precode(**options)


def test_a_model_without_a_linear_layer() -> None:
    with pytest.raises(ConfigError, match="precode: the model has no linear layer"):
        Precode().check(nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()))


def test_a_layer_that_sees_a_sequence() -> None:
    layer = VariationalBottleneck(6, 2).double()
    x: Tensor = drawn(4, 3, 6)
    assert layer(x).shape == x.shape


def test_in_a_stack_it_comes_before_what_goes_around_the_gradient() -> None:
    first = [{"name": "precode", "size": 4}, {"name": "dpsgd", "noise": 0.0}]
    assert [type(one).__name__ for one in DEFENSES["stack"](of=first).defenses] == ["Precode", "Dpsgd"]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="stack: precode changes the model and comes too late, put it before dpsgd"):
        DEFENSES["stack"](of=first[::-1])
