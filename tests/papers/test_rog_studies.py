"""The studies of ROG: what is watched is the search itself, what is compared is of the same clients, what is drawn."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from generator_files import tiny_generator
from scenes import as_float32, one_picture, seen_in

from gradveil.attacks import ATTACKS
from gradveil.attacks.rog import rog
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.spaces.space import APART
from gradveil.models.lenet import lenet

STUDIES = Path(__file__).resolve().parents[2] / "papers/rog"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Modules of the folder by name. None of them stays, and none of the same name from elsewhere is taken for one."""
    monkeypatch.syspath_prepend(str(STUDIES))
    names = [file.stem for file in STUDIES.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


def a_round() -> Observation:
    images = torch.rand(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = F.one_hot(torch.tensor([[0, 1], [2, 3]]), 5).float()
    scenario = Scenario(
        name="round",
        model=lenet(classes=5, shape=(3, 16, 16)),
        private=Batch(images, labels),
        names=("a", "b"),
        training=LocalTraining(steps=2, rate=5e-3),
    )
    return observe(scenario, Defense(), rog(), Seed(0))[0]


def test_a_search_that_is_watched_ends_where_it_would(study: Any) -> None:
    module, seen, attack = study("watch"), a_round(), rog(steps=6)
    plain = module.search(attack, seen, Compute())
    watched = module.watch(attack, seen, Compute(), (1, 4, 6))
    assert torch.equal(watched.images, plain.images)
    assert torch.equal(watched.loss, plain.loss)
    assert [moment.step for moment in watched.moments] == [1, 4, 6]


def test_moments_are_the_points_of_their_steps(study: Any) -> None:
    """After one step the best point is the start, which is gray; the match never gets worse on the way with TV off."""
    module = study("watch")
    watched = module.watch(rog(steps=8, tv=0.0), a_round(), Compute(), (1, 2, 5, 8))
    assert torch.allclose(watched.pictures(watched.moments[0]), torch.tensor(0.5), atol=2 * APART)
    matches = torch.stack([moment.match for moment in watched.moments])
    assert bool((matches.diff(dim=0) <= 0).all())
    assert bool((matches[-1] < matches[0]).all())


def test_moments_are_closer_together_at_the_beginning(study: Any) -> None:
    steps = study("reconstruct").moments(2000)
    assert (steps[0], steps[-1]) == (1, 2000)
    assert list(steps) == sorted(set(steps))
    assert steps[1] - steps[0] < steps[-1] - steps[-2]


def test_who_caught_up_is_asked_of_the_clients_of_both(study: Any) -> None:
    """ROG ends at 10 dB with the first client and at 30 with the second, the other attacked the first alone."""
    ours = [{"step": 4, "psnr": torch.tensor([10.0, 30.0])}]
    theirs = [{"step": step, "psnr": torch.tensor([float(step)])} for step in (5, 9, 11, 20)]
    assert study("reconstruct").caught_up(ours, theirs) == {"psnr": 11}
    assert study("reconstruct").caught_up(ours, theirs[:2]) == {"psnr": None}


def test_the_noise_of_fedcdp_has_the_ratio_that_was_asked_for(study: Any) -> None:
    """Noise of deviation `noise` x clip on each of 16 gradients leaves a sixteenth of its square in their mean."""
    module, clip = study("obfuscation"), study("obfuscation").FedCdp().clip
    for ratio in (0, -10, -20):
        power_of_noise = (module.noise_for(2.0, ratio) * clip) ** 2 / 16
        assert 2.0 / power_of_noise == pytest.approx(10 ** (ratio / 10))


def test_curves_rise_where_numbers_rise(study: Any) -> None:
    points = [{"step": step, "psnr": 8.0 + step} for step in (1, 10, 100)]
    drawn = ElementTree.fromstring(study("figures").curves([{"curve": "rog", "model": "lenet5", "points": points}]))
    line = next(part for part in drawn.iter() if part.tag.endswith("polyline"))
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert [x for x, _ in places] == pytest.approx(
        [550 + 330 * share for share in (0, 0.5, 1)], abs=0.1
    )  # on the right
    assert places[0][1] > places[1][1] > places[2][1]  # down is up in a picture


def test_a_cell_that_is_as_another_is_drawn_at_its_place(study: Any) -> None:
    score = {"mean": 12.0, "low": 11.0, "high": 13.0}
    lines = [
        {"defense": "none", "attacker": "unaware", "psnr": {"mean": 20.0}},
        {"defense": "<fedcdp>", "attacker": "unaware", "psnr": score},
        {"defense": "<fedcdp>", "attacker": "aware", "as": "unaware"},
    ]
    drawn = ElementTree.fromstring(study("figures").defenses(lines))
    dots = [part.attrib for part in drawn.iter() if part.tag.endswith("circle")][:3]
    assert dots[1]["cx"] == dots[2]["cx"] != dots[0]["cx"]
    assert "<fedcdp>" in [part.text for part in drawn.iter() if part.tag.endswith("text")]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (4.3, 14.9), (0.61, 0.64), (-3.0, 250.0)])
def test_axes_have_round_numbers_inside(study: Any, low: float, high: float) -> None:
    levels = study("figures").round_numbers(low, high)
    assert 2 <= len(levels) <= 8
    assert low <= levels[0] <= levels[-1] <= high


def test_a_page_of_photographs_stays_small(study: Any) -> None:
    """Noise of 128 pixels, which no photograph is as large as: 360 of them are below 12 MB."""
    picture = torch.rand(3, 128, 128, generator=torch.Generator().manual_seed(0))
    module = study("pictures")
    assert 360 * len(module.cell(picture)) < 12e6
    assert "image/png" in module.cell(picture[:, :32, :32])


def test_the_tagger_names_its_variable(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESNET20_WEIGHTS", raising=False)
    with pytest.raises(Exception, match="RESNET20_WEIGHTS is not set"):
        study("cifar_tagger").tagger(100, (3, 32, 32))


def test_the_limit_is_the_nearest_of_all_that_can_be_drawn(study: Any) -> None:
    """What is enlarged stays as it is; of any other picture nothing enlarged is nearer."""
    rng = torch.Generator().manual_seed(0)
    small, picture = torch.rand(1, 3, 4, 4, generator=rng), torch.rand(1, 3, 16, 16, generator=rng)
    enlarged, limit = F.interpolate(small, scale_factor=4, mode="bicubic"), study("limits").projected(picture)
    assert torch.allclose(study("limits").projected(enlarged), enlarged, atol=1e-5)
    left = picture - limit
    assert abs(float((left * enlarged).sum())) < 1e-3 * float(left.norm() * enlarged.norm())


def test_attackers_and_defenses_are_left_out_on_demand(study: Any) -> None:
    module = study("obfuscation")
    asked = SimpleNamespace(only=("topk", "precode"), attackers=("aware",))
    assert [(cell.label, cell.attacker) for cell in module.plain(module.FIRST, asked)] == [
        ("topk 0.95", "aware"),
        ("precode", "aware"),
    ]


def test_sixteen_victims_in_a_row_have_sixteen_labels(study: Any) -> None:
    """Pictures lie in the archive five of a class together."""
    dealt = study("victims").dealt()
    assert sorted(dealt.tolist()) == list(range(160))
    assert all(len(set((client // 5).tolist())) == 16 for client in dealt.view(-1, 16))


def test_the_best_and_the_worst_sixteenth_are_by_lpips(study: Any) -> None:
    """LPIPS falls where it is better; the other scores are those of the same pictures."""
    lpips = torch.arange(32.0).flip(0)
    line = {"lpips": {"each": lpips.tolist()}, "psnr": {"each": (100 - lpips).tolist()}, "loss": {"each": [1.0]}}
    report = study("batches").extremes(line)
    assert (report["lpips_of_best"], report["lpips_of_worst"]) == (0.5, 30.5)
    assert (report["psnr_of_best"], report["psnr_of_worst"]) == (99.5, 69.5)
    assert "loss_of_best" not in report


def test_a_sample_is_of_the_label_and_of_nothing_that_was_found(study: Any) -> None:
    attack = ATTACKS["rogs"](generator=tiny_generator(), inner="rog:steps=1")
    semantic, seen = study("semantic"), seen_in(as_float32(one_picture(2)))
    assert seen.labels is not None
    asked = semantic.Study(data=None, defense=Defense(), attack=attack, metrics=(), compute=Compute(), args=None)
    gray = Reconstruction(
        images=torch.full((2, 1, 3, 8, 8), 0.5),
        labels=seen.labels,
        found=torch.ones(2, 1, dtype=torch.bool),
        loss=torch.zeros(2),
    )
    drawn = asked.sample(gray, seen, 0).images
    assert drawn.shape == gray.images.shape
    assert torch.equal(drawn, asked.sample(replace(gray, images=gray.images + 0.1), seen, 0).images)
    assert not torch.equal(drawn, asked.sample(replace(gray, labels=seen.labels.roll(1, -1)), seen, 0).images)
    assert not torch.equal(drawn, asked.sample(gray, seen, 1).images)
