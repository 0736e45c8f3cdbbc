"""What is recommended, deployed by one line and captured, is named as seldom as was promised."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import recommended_app as deployed
import torch

import gradveil
from gradveil import capture
from gradveil.core.errors import ConfigError
from gradveil.core.interval import rate_interval
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.flower.train import QUIET
from gradveil.recommend.outcome import Advice
from gradveil.recommend.recommend import recommend


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> tuple[Advice, Path]:
    folder = tmp_path_factory.mktemp("advice") / "run"
    return recommend(deployed.SETTINGS, folder), folder


def test_a_folder_without_a_recommendation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recommendation\.json is there"):
        gradveil.veil(f"recommended:{tmp_path}")


def test_the_mod_takes_what_the_folder_names(tmp_path: Path) -> None:
    (tmp_path / "recommendation.json").write_text('{"deploy": "gaussian:scale=0.25"}')
    assert gradveil.veil(f"recommended:{tmp_path}").defense == parse_defense("gaussian:scale=0.25")


@pytest.mark.slow
@pytest.mark.flower
def test_the_captured_round_is_named_as_promised(advised: tuple[Advice, Path], tmp_path: Path) -> None:
    advice, run = advised
    assert advice.best is not None
    promised = advice.best.strength
    assert promised is not None
    seen = simulate(run, tmp_path)
    assert len(seen.updates) == deployed.CLIENTS
    kept = rate_interval(named(seen, advice.deploy), deployed.CLIENTS, level=0.99)
    assert kept.low <= promised.interval[1]
    assert kept.high >= promised.interval[0]
    assert kept.low <= 0.1


def simulate(run: Path, folder: Path) -> capture.Capture:
    with tempfile.TemporaryDirectory(prefix="gv-") as where:
        code = f"import recommended_app; recommended_app.main({str(run)!r}, {str(folder / 'seen')!r}, {where!r})"
        path = os.pathsep.join([str(Path(deployed.__file__).parent), *sys.path])  # workers import the apps by name
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | QUIET | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return capture.load(folder / "seen/round-0001.safetensors")


def named(seen: capture.Capture, defense: str) -> int:
    """How many updates name their picture among as many candidates as the recommendation had."""
    split, _ = deployed.study()
    model = deployed.model()
    model.load_state_dict(dict(seen.weights))
    gallery = split.training.images[: deployed.SETTINGS.lineup - 1]
    return sum(_is_named(seen, client, model, gallery, defense) for client in seen.clients)


def _is_named(seen: capture.Capture, client: str, model: torch.nn.Module, gallery: torch.Tensor, defense: str) -> bool:
    own: Batch = deployed.picture_of(int(seen.metrics[client]["client"]))
    candidates = torch.cat([own.images, gallery])
    guess = gradveil.lineup(model, seen.updates[client], candidates, int(own.labels.argmax()),
                            classes=own.labels.shape[1], defense=defense, training=deployed.training())  # fmt: skip
    return guess.rank_of(0) == 1
