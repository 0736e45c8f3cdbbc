"""The planted module: what the rest of the model gets, where it may stand, and where the bins lie."""

from __future__ import annotations

import pytest
import torch
from scenes import CLASSES, MEAN, STD, drawn, four_pictures, seen_in, smooth, usual
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.imprint.functional import Functional, assumed_quantiles, edges_of, levels_of, measured_quantiles
from gradveil.attacks.imprint.insertion import place_in
from gradveil.attacks.imprint.module import Imprint
from gradveil.attacks.rtf import rtf
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

NOTHING = Batch(torch.zeros(0, 3, 8, 8).double(), torch.zeros(0, CLASSES).double())
BOTH = pytest.mark.parametrize("make", [rtf, cah])


def imprint_of(model: nn.Module) -> Imprint:
    return next(layer for layer in model.modules() if isinstance(layer, Imprint))


@BOTH
@pytest.mark.parametrize("options", [{}, {"gain": 1e6}, {"neurons": 7}, {"at": "conv1"}])
def test_a_cancelled_imprint_leaves_the_output_as_it_was_bit_for_bit(make, options: dict) -> None:
    model, pictures = usual().eval(), drawn(4, 3, 8, 8, seed=3)
    sent = make(**options).plant(model, NOTHING, Seed(0)).eval()
    assert torch.equal(sent(pictures), model(pictures))


def test_the_sparse_one_too() -> None:
    model, pictures = usual().eval(), drawn(4, 3, 8, 8, seed=3)
    assert torch.equal(rtf(sparse=True).plant(model, NOTHING, Seed(0)).eval()(pictures), model(pictures))


@BOTH
@pytest.mark.parametrize("connection", ["add", "linear"])
def test_a_small_gain_changes_the_output_little(make, connection) -> None:
    model, pictures = smooth(), drawn(4, 3, 8, 8, seed=3)
    for gain in (1e-3, 1e-6):
        off = make(connection=connection, gain=gain).plant(model, NOTHING, Seed(0))(pictures) - model(pictures)
        assert 0 < off.abs().max() < 100 * gain


@BOTH
def test_a_second_layer_does_what_its_factors_do(make) -> None:
    model, pictures = smooth(), drawn(4, 3, 8, 8, seed=3)
    outputs = [make(connection=c, gain=0.1).plant(model, NOTHING, Seed(0))(pictures) for c in ("add", "linear")]
    assert torch.allclose(*outputs, rtol=0, atol=1e-12)


@BOTH
def test_the_honest_layers_get_the_honest_gradient(make) -> None:
    """Whoever looks at the rest of the update sees nothing unusual."""
    model, own = usual(), Batch(drawn(4, 3, 8, 8, seed=5), torch.eye(CLASSES).double()[:4])
    honest, sent = (
        local_update(m, parameters_of(m), own, LocalTraining(), Defense(), Seed().rng())
        for m in (in_client_mode(x, LocalTraining()) for x in (model, make().plant(model, NOTHING, Seed(0))))
    )
    for name, u in honest.items():
        assert torch.allclose(sent[f"model.{name}"], u, rtol=0, atol=1e-14)


@BOTH
def test_the_model_given_stays_as_it_was(make) -> None:
    model = usual()
    before, names = {k: v.clone() for k, v in model.state_dict().items()}, [n for n, _ in model.named_modules()]
    for at in ("", "conv1"):
        make(at=at).plant(model, NOTHING, Seed(0))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [n for n, _ in model.named_modules()] == names


@BOTH
def test_planting_twice_gives_the_same_and_another_seed_another(make) -> None:
    one, same, other = (make().plant(smooth(), NOTHING, Seed(k)).state_dict() for k in (0, 0, 1))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_imprint_has_the_precision_of_its_model(make, dtype) -> None:
    sent = make().plant(smooth().to(dtype), NOTHING, Seed(0))
    assert {x.dtype for x in sent.state_dict().values()} == {dtype}


def test_behind_the_normalization_it_sees_normalized_pictures() -> None:
    place = place_in(usual(), (3, 8, 8), "conv1", "rtf", Seed(0))
    pictures = drawn(2, 3, 8, 8)
    mean, std = (torch.tensor(c, dtype=torch.float64).view(3, 1, 1) for c in (MEAN, STD))
    assert torch.allclose(place.arrives_as(pictures), ((pictures - mean) / std).flatten(1), atol=1e-6)
    assert torch.allclose(place.pictures(place.arrives_as(pictures)), pictures, atol=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("at", "why"), [("conv2", "sees features"), ("fc", "sees features"), ("nowhere", "has no layer 'nowhere'")]
)
def test_a_model_that_cannot_take_it_there_says_so_in_one_line(make, at: str, why: str) -> None:
    with pytest.raises(NotApplicableError, match=why) as caught:
        make(at=at).plant(usual(), NOTHING, Seed(0))
    assert "\n" not in str(caught.value)


@BOTH
def test_without_pictures_there_is_no_size(make) -> None:
    with pytest.raises(NotApplicableError, match="size of the pictures"):
        make().plant(usual(), None, Seed(0))


@BOTH
def test_a_model_without_an_imprint_has_nothing_to_read(make) -> None:
    with pytest.raises(NotApplicableError, match="holds no imprint"):
        make().reconstruct(seen_in(four_pictures()), Seed(0))


@BOTH
@pytest.mark.parametrize("options", [{"neurons": 1}, {"gain": -1.0}, {"connection": "glue"}])
def test_options_out_of_range(make, options: dict) -> None:
    with pytest.raises(ConfigError, match="take"):
        make(**options)


def test_levels_are_of_equal_share_or_one_around_the_middle() -> None:
    assert levels_of(4, 0.0).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert levels_of(4, 0.1).tolist() == pytest.approx([0.45, 0.55])


@pytest.mark.parametrize("spread", ["gaussian", "laplace"])
def test_assumed_quantiles_are_those_of_scipy(spread) -> None:
    from scipy import stats

    of = stats.norm(scale=0.7) if spread == "gaussian" else stats.laplace(scale=0.7 / 2**0.5)
    levels = torch.linspace(0.01, 0.99, 37, dtype=torch.float64)
    assert assumed_quantiles(levels, spread, 0.7).tolist() == pytest.approx(of.ppf(levels.numpy()).tolist(), abs=1e-9)


def test_measured_quantiles_rise_and_hold_their_share_of_new_values() -> None:
    rng = torch.Generator().manual_seed(0)
    known, new = (torch.randn(n, generator=rng, dtype=torch.float64).mul(0.5).exp() for n in (400, 20000))
    levels = torch.arange(20, dtype=torch.float64) / 20
    edges = edges_of(levels, known, "gaussian", 1.0)
    assert (edges.diff() > 0).all()
    share = torch.bucketize(new, edges[1:]).bincount(minlength=20) / len(new)
    assert share.sum() == pytest.approx(1)
    assert share.min() > 0.02
    assert share.max() < 0.1
    assert torch.allclose(measured_quantiles(levels[1:], known), edges[1:])


def functional_values(text: str, pictures: Tensor) -> Tensor:
    return pictures.flatten(1) @ Functional(text=text).weights(pictures[0].numel(), Seed(0), pictures)


def test_the_mean_is_the_mean_and_a_fourier_mode_turns_with_the_picture() -> None:
    pictures = drawn(3, 3, 8, 8)
    turned = pictures.rot90(1, (-2, -1))
    assert torch.allclose(functional_values("mean", pictures), pictures.mean((1, 2, 3)), atol=1e-12)
    assert torch.allclose(functional_values("mean", turned), functional_values("mean", pictures), atol=1e-12)
    for text in ("fourier:32", "random"):
        assert (functional_values(text, turned) - functional_values(text, pictures)).abs().min() > 1e-3


@pytest.mark.parametrize("text", ["", "median", "fourier", "fourier:x", "fourier:-1"])
def test_an_unknown_functional(text: str) -> None:
    with pytest.raises(ConfigError, match="functional"):
        rtf(functional=text)


@BOTH
def test_a_defense_that_changes_the_model_stays_in_it(make) -> None:
    """The rest of the model is whatever everybody agreed on."""
    model = nn.Sequential(smooth())
    sent = make().plant(model, NOTHING, Seed(0))
    assert {name for name, _ in sent.named_parameters()} >= {f"model.{name}" for name, _ in model.named_parameters()}
    assert imprint_of(sent).first.in_features == 192
