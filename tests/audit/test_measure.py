"""The metrics of a config, each with what it asks for."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gradveil.audit.audit import traffic
from gradveil.config import AuditConfig, build
from gradveil.config.load import dumps, from_tables
from gradveil.config.schema import ScenarioConfig
from gradveil.core.choice import Choice
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.metrics.backbones import ALEXNET
from gradveil.metrics.efficientnet_lite0 import EfficientNetLite0
from gradveil.wire import encoded_size

DIGITS = ScenarioConfig(data="digits", data_options={"limit": 60}, images=2)


def config(**changes: Any) -> AuditConfig:
    return AuditConfig(
        **{"scenario": DIGITS, "attack": {"dlg": Choice(name="dlg")}, "budget": "quick", "lineup": 0, **changes}
    )


def test_options_of_a_metric_are_written_beside_its_name_and_kept() -> None:
    asked = config(metrics=("psnr", "jaccard:top=3"), tagger="weights.safetensors")
    again = from_tables(tomllib.loads(dumps(asked)))
    assert again.metrics == ("psnr", "jaccard:top=3")


def test_the_gallery_is_as_large_as_asked_for_and_as_there_is() -> None:
    assert [len(build(config(gallery=many)).gallery) for many in (5, 1000)] == [5, 47]  # type: ignore[arg-type]


def test_without_a_file_the_audited_model_looks() -> None:
    metric = build(config(metrics=("retrieval-features",))).metrics[0]
    assert metric.source is None
    assert metric.score(*torch.rand(2, 1, 1, 32, 32)).item() in (0.0, 1.0)


def test_with_weights_of_lpips_alexnet_looks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in ALEXNET.shapes().items()}
    np.savez(tmp_path / "w.npz", **arrays)
    metric = build(config(metrics=("retrieval-features",), lpips_weights=str(tmp_path / "w.npz"))).metrics[0]
    assert metric.source is not None
    assert metric.score(*torch.rand(2, 1, 1, 32, 32)).item() in (0.0, 1.0)


def test_a_tagger_looks_and_tags_and_is_read_once(tmp_path: Path) -> None:
    save_file(EfficientNetLite0().state_dict(), tmp_path / "t.safetensors")
    asked = config(metrics=("jaccard:top=2", "retrieval-features"), tagger=str(tmp_path / "t.safetensors"), gallery=2)
    tags, found = build(asked).metrics
    assert tags.source is not None
    assert tags.source is found.source


def test_what_a_client_sends_is_measured_on_its_real_update() -> None:
    defenses = {"none": Choice(name="none"), "prune": Choice(name="prune", options={"ratio": 0.99})}
    audit = build(config(defense=defenses, also={"batch_size": (2,)}))
    sizes = traffic(audit, Compute())
    assert list(sizes) == [audit.scenario.name, audit.also[0].name]
    plain = sizes[audit.scenario.name]
    dense = {name: p.detach() for name, p in audit.scenario.model.named_parameters()}
    assert plain["none"] == pytest.approx(encoded_size(dense), rel=0.2)
    assert plain["prune"] < 0.1 * plain["none"]
    assert traffic(audit, Compute(precision="float64")) == sizes  # what is sent is float32


def test_one_client_of_a_sum_sends_as_much_as_alone() -> None:
    alone, summed = (build(config(scenario=replace(DIGITS, batch_size=2, aggregate=k))) for k in (1, 3))
    one, other = (next(iter(traffic(audit, Compute()).values()))["none"] for audit in (alone, summed))
    assert one == pytest.approx(other, rel=0.05)


def test_a_defense_that_fails_is_left_out() -> None:
    class Broken(Defense):
        def update(self, update: Any, rng: Any) -> Any:
            raise RuntimeError("no")

    audit = replace(build(config()), defenses={"none": Defense(), "broken": Broken()})
    assert list(next(iter(traffic(audit, Compute()).values()))) == ["none"]
