"""A defense on differences of weights, and the filter of NVFlare that applies it (where NVFlare is installed)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gradveil.nvflare
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.defenses import parse_defense
from gradveil.nvflare.difference import FilterError, check_reach, defend_difference

RNG = np.random.default_rng(0)
DIFFERENCE = {
    "w": RNG.normal(size=(5, 4)).astype(np.float32), "b": RNG.normal(size=4).astype(np.float64),
    "bn.running_mean": np.ones(4, np.float32), "bn.num_batches_tracked": np.array(3),
}  # fmt: skip


@pytest.mark.parametrize("text", ["prune:ratio=0.5", "percentile:gamma=0.1", "sign", "clip:clip=0.1"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_it_is_the_defense_of_the_update_and_nothing_else_is_touched(text: str, kind: str) -> None:
    given = DIFFERENCE if kind == "numpy" else {name: torch.from_numpy(np.array(x)) for name, x in DIFFERENCE.items()}
    sent = defend_difference(parse_defense(text), given, Seed(0))
    update = {name: -torch.tensor(DIFFERENCE[name]) for name in ("w", "b")}
    expected = parse_defense(text).update(update, Seed(0).rng())
    for name, value in given.items():
        assert type(sent[name]) is type(value)
        assert sent[name].dtype == value.dtype
        assert np.array_equal(
            np.asarray(sent[name]), -expected[name].numpy() if name in expected else np.asarray(value)
        )


def test_noise_is_on_what_the_training_changed() -> None:
    noisy = parse_defense("gaussian:scale=0.1")
    one, other = (defend_difference(noisy, DIFFERENCE, Seed(number)) for number in (0, 1))
    assert not np.array_equal(one["w"], other["w"])
    assert np.array_equal(one["bn.running_mean"], DIFFERENCE["bn.running_mean"])


def test_named_parameters_alone_are_defended() -> None:
    sent = defend_difference(parse_defense("sign"), DIFFERENCE, Seed(0), ["w", "bn.running_mean"])
    assert set(np.unique(sent["w"])) <= {-1.0, 1.0}
    assert np.array_equal(sent["b"], DIFFERENCE["b"])
    assert np.array_equal(sent["bn.running_mean"], np.ones(4))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"w": np.full(3, np.nan)}, "w has numbers that are not finite, nothing is sent"),
        ({"w": b"encrypted"}, "w is no array of numbers"),
        ({"w": np.array(["x"])}, "w is no array of numbers"),
    ],
)
def test_what_cannot_be_defended_is_not_sent(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FilterError, match=said):
        defend_difference(parse_defense("sign"), {**DIFFERENCE, **change}, Seed(0))
    with pytest.raises(FilterError, match="holds no parameters"):
        defend_difference(parse_defense("sign"), {"n": np.array(3)}, Seed(0))


@pytest.mark.parametrize("text", ["dpsgd", "mixup", "ats:3-1-7", "precode"])
def test_a_defense_that_a_filter_cannot_reach_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^defense: acts on the (gradient|data|batch|model), which a filter never sees"
    ):
        check_reach(parse_defense(text))


class TestWithNVFlare:
    """The class in NVFlare's own chain."""

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("nvflare")

    def run(self, filter: Any, kind: str = "WEIGHT_DIFF", data: Any = None) -> Any:
        from nvflare.apis.dxo import DXO, from_shareable  # pyright: ignore[reportMissingImports]
        from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]

        given = {name: np.array(value) for name, value in DIFFERENCE.items()} if data is None else data
        shareable = DXO(kind, data=given, meta={"NUM_STEPS_CURRENT_ROUND": 3}).to_shareable()
        return from_shareable(filter.process(shareable, FLContext()))

    def test_a_difference_is_defended_and_its_history_kept(self) -> None:
        got = self.run(gradveil.nvflare.DefenseFilter("prune:ratio=0.5", seed=0))
        expected = defend_difference(parse_defense("prune:ratio=0.5"), DIFFERENCE, Seed(0))
        assert all(np.array_equal(got.data[name], value) for name, value in expected.items())
        assert got.get_meta_prop("NUM_STEPS_CURRENT_ROUND") == 3
        assert "DefenseFilter" in got.get_filter_history()

    def test_percentile_is_that_of_nvflare_in_its_chain(self) -> None:
        from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy  # pyright: ignore[reportMissingImports]

        data = {"w": DIFFERENCE["w"], "b": DIFFERENCE["b"].astype(np.float32)}
        ours = self.run(gradveil.nvflare.DefenseFilter("percentile:gamma=0.1,steps=3"), data={**data})
        theirs = self.run(PercentilePrivacy(gamma=0.1), data={name: np.array(x) for name, x in data.items()})
        assert all(np.array_equal(ours.data[name], theirs.data[name]) for name in data)

    @pytest.mark.parametrize("kind", ["WEIGHTS", "FL_MODEL", "APP_DEFINED"])
    def test_whole_weights_are_not_sent(self, kind: str) -> None:
        with pytest.raises(FilterError, match=f"is of kind {kind}, nothing is sent"):
            self.run(gradveil.nvflare.DefenseFilter("sign"), kind)

    def test_what_is_no_dxo_is_not_sent_and_metrics_pass(self) -> None:
        from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
        from nvflare.apis.shareable import Shareable  # pyright: ignore[reportMissingImports]

        with pytest.raises(FilterError, match="is no DXO"):
            gradveil.nvflare.DefenseFilter("sign").process(Shareable({"w": DIFFERENCE["w"]}), FLContext())
        assert self.run(gradveil.nvflare.DefenseFilter("sign"), "METRICS", {"loss": 0.5}).data == {"loss": 0.5}

    def test_a_budget_is_kept(self) -> None:
        text, data = "local-dp:epsilon=2", {"w": DIFFERENCE["w"]}
        one = gradveil.nvflare.DefenseFilter(text, epsilon_at_most=5.0)
        assert one.allowance is not None
        for _ in range(one.allowance.releases):
            self.run(one, data=dict(data))
        with pytest.raises(FilterError, match=r"would raise epsilon to .*, above 5, nothing is sent"):
            self.run(one, data=dict(data))
        with pytest.raises(FilterError, match="running_mean leaves without noise"):
            self.run(gradveil.nvflare.DefenseFilter(text, epsilon_at_most=5.0))
