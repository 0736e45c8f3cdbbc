"""Soteria: which columns go, how many, and what an attacker who knows of it matches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scenes import batch_statistics, four_pictures, one_picture, perceptron, scene, seen_in, smooth
from torch import Tensor, nn

from gradveil.audit.audit import run_audit
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build
from gradveil.core.client import in_client_mode, parameters_of
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.precode import Precode
from gradveil.defenses.soteria import OFFSET, Soteria, scores
from gradveil.defenses.stack import Stack
from gradveil.engine.backend import choose
from gradveil.engine.distance import L1, L2, Cosine

FEDSGD = LocalTraining()


def features(model: nn.Module, layer: str, image: Tensor) -> Tensor:
    kept: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _layer, inputs: kept.append(inputs[0]))
    model(image)
    hook.remove()
    return kept[0][0]


def one_backward_per_feature(model: nn.Module, layer: str, image: Tensor) -> Tensor:
    """As the authors' code goes about it."""
    image = image.clone().unsqueeze(0).requires_grad_()
    r = features(model, layer, image)
    each = [torch.autograd.grad(one, image, retain_graph=True)[0].norm() for one in r]
    return torch.stack(each) / (r.detach().abs() + OFFSET)


@pytest.mark.parametrize(("model", "layer"), [(smooth(), "6"), (perceptron(), "2"), (perceptron(), "4")])
def test_the_scores_are_those_of_one_backward_per_feature(model: nn.Module, layer: str) -> None:
    model, image = in_client_mode(model, FEDSGD), torch.rand(3, 8, 8, dtype=torch.float64)
    got = scores(model, parameters_of(model), image, layer)
    assert torch.allclose(got, one_backward_per_feature(model, layer, image), rtol=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.37, 0.8, 0.99])
def test_exactly_the_share_asked_for_goes_and_it_is_the_lowest(rate: float) -> None:
    scenario = one_picture(1, smooth())
    plain, seen = seen_in(scenario).update, seen_in(scenario, Soteria(rate=rate)).update
    weight = seen["6.weight"][0]
    gone = (weight == 0).all(0)
    count = round(rate * weight.shape[1])
    assert gone.sum() == count
    model = in_client_mode(scenario.model, FEDSGD)
    lowest = one_backward_per_feature(model, "6", scenario.private.images[0, 0]).argsort()[:count]
    assert set(lowest.tolist()) == set(gone.nonzero().flatten().tolist())
    assert torch.allclose(weight[:, ~gone], plain["6.weight"][0][:, ~gone], rtol=1e-12)
    for name in seen:
        if name != "6.weight":
            assert torch.allclose(seen[name], plain[name], rtol=1e-12, atol=1e-15)


def test_every_picture_of_a_batch_loses_its_own_columns() -> None:
    scenario = four_pictures(1, smooth())
    whole = seen_in(scenario, Soteria(rate=0.6)).update["6.weight"][0]
    alone = []
    for example in range(4):
        private = type(scenario.private)(*(x[:, example : example + 1] for x in scenario.private))
        alone.append(seen_in(replace(scenario, private=private), Soteria(rate=0.6)).update["6.weight"][0])
    assert torch.allclose(whole, torch.stack(alone).mean(0), rtol=1e-12, atol=1e-16)


def test_a_layer_can_be_named_and_the_last_is_taken_otherwise() -> None:
    scenario = one_picture(1, perceptron())
    plain, last, first = (seen_in(scenario, d).update for d in (Soteria(rate=0.0), Soteria(), Soteria(layer="2")))
    assert not torch.equal(last["4.weight"], plain["4.weight"])
    assert torch.equal(last["2.weight"], plain["2.weight"])
    assert not torch.equal(first["2.weight"], plain["2.weight"])
    assert torch.equal(first["4.weight"], plain["4.weight"])


@pytest.mark.parametrize("distance", [Cosine(), Cosine(per_tensor=True), L2(), L1(relative=True)])
@pytest.mark.parametrize("layer", ["", "2"])
def test_one_who_knows_matches_without_the_defended_weight(distance: Any, layer: str) -> None:
    scenario = scene(perceptron(), 2, 2, threat=ThreatModel(knows_defense=True))
    seen, fed = seen_in(scenario, Soteria(layer=layer)), torch.rand(2, 2, 3, 8, 8, dtype=torch.float64)
    left_out = replace(distance, without=(f"{layer or '4'}.weight",))
    blind = replace(seen, defense=None)
    expected = choose(blind, left_out, "loop").matcher(blind, left_out)(fed)
    for backend in ("loop", "vmap", "auto"):
        got = choose(seen, distance, backend).matcher(seen, distance)(fed)
        assert torch.allclose(got[0], expected[0], rtol=1e-10)
        assert (got[1] - expected[1]).norm() < 1e-10 * expected[1].norm()


def test_together_with_others() -> None:
    stacks = [(Soteria(rate=0.5), Dpsgd(clip=0.1)), (Dpsgd(clip=0.1), Soteria(rate=0.5))]
    for parts in (*stacks, (Precode(size=4), Soteria(rate=0.5))):
        seen = seen_in(four_pictures(2, smooth()), Stack(parts))
        assert all(u.isfinite().all() for u in seen.update.values())
    Stack((Precode(size=4), Soteria(layer="6.head"))).check(smooth())


@pytest.mark.parametrize("rate", [-0.1, 1.0, 80.0, float("nan")])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"^soteria: rate = .*0 <= rate < 1"):
        Soteria(rate=rate)


def test_a_layer_that_is_not_there_names_the_nearest() -> None:
    model = nn.Sequential()
    model.add_module("fc1", nn.Linear(3, 3))
    model.add_module("head", nn.Linear(3, 3))
    with pytest.raises(ConfigError, match="soteria: layer: unknown name 'hed', did you mean 'head'"):
        Soteria(layer="hed").check(model)
    with pytest.raises(ConfigError, match="no linear layer"):
        Soteria().check(nn.Sequential(nn.Flatten()))
    with pytest.raises(ConfigError, match="normalizes by the batch"):
        seen_in(batch_statistics(), Soteria())


def test_an_audit_says_so_before_it_writes(tmp_path: Path) -> None:
    defenses = {"soteria": Choice(name="soteria", options={"layer": "fcc"})}
    config = AuditConfig(
        scenario=ScenarioConfig(images=2, data_options={"size": 16, "count": 60}), defense=defenses, lineup=0
    )
    with pytest.raises(ConfigError, match="did you mean 'fc'"):
        run_audit(build(config), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_layer_that_sees_a_sequence_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(2), nn.Linear(64, 4), nn.Flatten(), nn.Linear(12, 5)).double()
    with pytest.raises(ConfigError, match="not one row for each picture"):
        seen_in(one_picture(1, model), Soteria(layer="1"))
