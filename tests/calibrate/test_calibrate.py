"""A calibration: the curve by one pass against line-ups that are held, the search, the folder, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradveil.calibrate.bench import Bench, load_bench
from gradveil.calibrate.calibrate import CalibrationFolder, calibrate
from gradveil.calibrate.curve import count_named, find_additive
from gradveil.calibrate.family import parse_family, strength_of, write_choice
from gradveil.calibrate.gram import gram_of, least_noise, root_of
from gradveil.calibrate.ladder import hold_group, search_ladder
from gradveil.calibrate.outcome import CalibrationOutcome, Step, least_strengths, smooth
from gradveil.calibrate.settings import CalibrationSettings, check_settings
from gradveil.core.choice import Choice, parse_choice
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.interval import rate_interval
from gradveil.defenses import DEFENSES, parse_defense
from gradveil.defenses.mixup import Mixup
from gradveil.experiment.seal import find_changes

SMALL = {"data_options": {"count": 400, "size": 16}, "images": 6, "named_at_most": 0.1}


def settings(defense: str, **more: Any) -> CalibrationSettings:
    return CalibrationSettings(**{**SMALL, "defense": defense, **more})


def bench_of(one: CalibrationSettings) -> Bench:
    _, config = check_settings(one)
    return load_bench(config, one.standins)


@pytest.mark.parametrize(
    "text", ["gaussian", "dpsgd:clip=0.5", 'stack:of=[{name="prune",ratio=0.9},{name="gaussian"}]']
)
@pytest.mark.parametrize("size", [1, 3])
def test_the_curve_of_one_pass_is_what_line_ups_say(text: str, size: int) -> None:
    """At three strengths between all and none: the pass lies within the interval of the line-ups."""
    asked = settings(text, lineup=60, standins=12, batch_size=size, images=4)
    bench, family = bench_of(asked), parse_family(text)
    additive = find_additive(bench, family, family.ladder)
    assert additive is not None
    grid = [10 ** (n / 8) for n in range(-24, 24)]
    counts = torch.tensor([count_named(additive, bench, group, grid) for group in bench.groups]).sum(0)
    shares = (counts / bench.pictures).tolist()
    assert shares == sorted(shares, reverse=True)
    for wanted in (0.9, 0.5, 0.15):
        place = min(range(len(grid)), key=lambda at: abs(shares[at] - wanted))
        ranks = [
            rank
            for group in bench.groups
            for one in hold_group(bench, group, family.build(grid[place])).ranks
            for rank in one.ranks
        ]
        assert len(ranks) == bench.pictures
        found = rate_interval(sum(rank == 1 for rank in ranks), len(ranks), level=0.999)
        assert found.low <= shares[place] <= found.high, (grid[place], shares[place], found)


def test_a_gram_matrix_by_blocks_is_the_gram_matrix() -> None:
    whole = torch.randn(23, 40, generator=torch.Generator().manual_seed(0))
    calls: list[tuple[int, int]] = []

    def rows(first: int, end: int) -> Tensor:
        calls.append((first, end))
        return whole[first:end]

    origin = whole[4]
    expected = (whole - origin).double() @ (whole - origin).double().T
    for held in (1, 40 * 4 * 10, 1 << 30):
        torch.testing.assert_close(gram_of(rows, 23, 5, origin, held), expected, rtol=1e-4, atol=1e-4)
    assert max(end - first for first, end in calls) == 5  # never more at once


def test_the_least_noise_is_where_another_candidate_comes_first() -> None:
    """By the definition: the noise is drawn as vectors and the nearest candidate is sought."""
    rng = torch.Generator().manual_seed(1)
    updates = torch.randn(9, 6, generator=rng, dtype=torch.float64)
    gram = updates @ updates.T
    root = root_of(gram)
    torch.testing.assert_close(root @ root.T, gram)
    draws = torch.randn(9, 2000, generator=rng, dtype=torch.float64)
    least, chance = least_noise(gram, root, 0, torch.arange(1, 9), draws)
    assert chance == 1
    for noise in (0.2, 0.6, 1.5):
        seen = updates[0] + noise * torch.randn(4000, 6, generator=rng, dtype=torch.float64)
        named = (torch.cdist(seen, updates).argmin(1) == 0).double().mean()
        assert abs((least > noise).double().mean() - named) < 5 * (0.25 / 2000 + 0.25 / 4000) ** 0.5


def test_a_candidate_that_is_there_twice_is_named_half_as_often() -> None:
    updates = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2]]
    gram = updates @ updates.T
    least, chance = least_noise(gram, root_of(gram), 0, torch.tensor([1, 2, 3]), torch.zeros(4, 1).double())
    assert chance == 0.5
    assert least.isinf().all()  # without noise nobody else comes first


def test_chance_alone_raises_no_curve() -> None:
    steps = [Step(strength=s, named=n, pictures=100) for s, n in ((1, 90.0), (2, 3.0), (4, 5.0), (8, 0.0))]
    curve = smooth(steps)
    assert [step.named for step in curve] == [90.0, 5.0, 5.0, 0.0]
    enough, likely, at_least = least_strengths(curve, 0.05)
    assert enough == curve[3]
    assert (likely, at_least) == (2, 2)


def test_a_picture_counts_once_however_often_its_noise_is_drawn() -> None:
    """Ten pictures of which none is named say no more than at most 26 %."""
    assert Step(strength=1, named=0.0, pictures=10).at_most == pytest.approx(0.2589, abs=1e-4)


@pytest.mark.parametrize("enough_from", [0, 1, 7, 20, 39])
def test_the_search_finds_the_least_that_is_enough(enough_from: int) -> None:
    tried: list[int] = []

    def is_enough(value: int) -> bool:
        tried.append(value)
        return value >= enough_from

    search_ladder(range(40), is_enough)
    assert min(value for value in tried if value >= enough_from) == enough_from
    assert len(set(tried)) <= 8


def test_every_strength_is_an_option_and_agrees_with_what_grows() -> None:
    for name, factory in DEFENSES.items():
        strength = strength_of(Choice(name=name))
        if strength is None:
            continue
        assert len(set(strength.ladder)) == len(strength.ladder) > 1, name
        grows = type(factory()).stronger
        if grows:
            assert strength.option in grows, name
            assert strength.grows, name
        for value in strength.ladder:
            family = parse_family(name)
            assert getattr(family.build(value), strength.option) == value or name.startswith("oasis")


def test_mixtures_are_tried_where_the_batch_is_large_enough() -> None:
    assert type(Mixup()).strength is not None
    one = parse_family("mixup")
    assert one.option == "k"


@pytest.mark.parametrize(
    "text", ["gaussian:scale=0.5", "prune:ratio=0.9", 'stack:of=[{name = "sign"}, {name = "topk"}]']
)
def test_a_defense_is_written_as_it_is_read(text: str) -> None:
    choice = parse_choice(text, "defense", DEFENSES)
    assert parse_choice(write_choice(choice), "defense", DEFENSES) == choice
    assert isinstance(parse_defense(write_choice(choice)), Defense)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[CalibrationOutcome, Path]:
    folder = tmp_path_factory.mktemp("calibrate") / "run"
    return calibrate(settings("gaussian"), folder), folder


def test_what_it_leaves_behind(found: tuple[CalibrationOutcome, Path]) -> None:
    outcome, folder = found
    content = json.loads((folder / "calibration.json").read_text())
    assert content == json.loads(json.dumps(outcome.to_json()))
    assert content["reached"]
    assert content["named"]["at_most"] <= 0.1
    assert content["at_least"] <= content["likely"] <= content["strength"]
    assert parse_defense(content["deploy"]) == parse_defense(f"gaussian:scale={content['strength']}")
    assert not find_changes(folder)
    assert {path.name for path in folder.iterdir()} == set(CalibrationFolder.files) - {"signature.json"}
    assert "http" not in (folder / "report.html").read_text().replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_less_noise_than_that_is_not_enough(found: tuple[CalibrationOutcome, Path]) -> None:
    """Line-ups at a third of it name more than the limit, for sure."""
    outcome, _ = found
    assert outcome.found.enough is not None
    bench, weak = bench_of(settings("gaussian")), parse_family("gaussian").build(outcome.found.enough.strength / 3)
    ranks = [r for group in bench.groups for one in hold_group(bench, group, weak).ranks for r in one.ranks]
    assert rate_interval(sum(rank == 1 for rank in ranks), len(ranks)).low > 0.1


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_it_goes_on_where_it_was_killed(found: tuple[CalibrationOutcome, Path], tmp_path: Path, kept: int) -> None:
    _, folder = found
    again = Path(shutil.copytree(folder, tmp_path / "run"))
    lines = (again / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > kept
    (again / "journal.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
    for name in ("calibration.json", "report.html", "seal.json"):
        (again / name).unlink()
    calibrate(settings("gaussian"), again)
    for name in ("calibration.json", "report.html"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_what_hides_nothing_is_an_answer(tmp_path: Path) -> None:
    outcome = calibrate(settings("prune", lineup=50, standins=10), tmp_path / "run")
    assert not outcome.found.reached
    assert outcome.found.strongest.strength == 0.9999
    content = json.loads((tmp_path / "run/calibration.json").read_text())
    assert content["reached"] is False
    assert content["deploy"] is None
    assert "No strength of prune hides which picture it was" in (tmp_path / "run/report.html").read_text()


def test_what_has_one_strength_is_measured_at_it(tmp_path: Path) -> None:
    outcome = calibrate(settings("sign", lineup=50, standins=10), tmp_path / "run")
    assert [step.share for step in outcome.found.curve] == [1.0]
    assert outcome.found.option == ""


@pytest.mark.parametrize(
    ("defense", "more", "what"),
    [
        ("gausian", {}, "unknown name 'gausian'"),
        ("none", {}, "has no strength"),
        ("gaussian:scale=1", {}, "scale is what is calibrated"),
        ("gaussian", {"named_at_most": 0.0}, "between 0 and 1"),
        ("gaussian", {"named_at_most": 1.0}, "between 0 and 1"),
        ("gaussian", {"named_at_most": 0.01, "lineup": 51}, "use `lineup = 201` or more"),
        ("gaussian", {"lineup": 1}, "must be between 2"),
        ("gaussian", {"lineup": 5000}, "lineup: must be at most .* got 5000"),
        ("gaussian", {"named_at_most": 0.01, "lineup": 300, "standins": 0}, "can show no bound below"),
        ("mixup", {}, "pictures of a client"),
        ("dpsgd", {"batchnorm": "batch", "model": "resnet20-4"}, "batch"),
    ],
)
def test_what_cannot_be_done_is_one_line(defense: str, more: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        calibrate(settings(defense, **more), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run/calibration.json").exists()


def test_a_defense_without_a_likelihood_says_so(tmp_path: Path) -> None:
    """What is drawn after noise has no law."""
    text = 'stack:of=[{name="gaussian"},{name="qsgd",bits=3}]'
    with pytest.raises(ConfigError, match="cannot be calibrated, no likelihood is known"):
        calibrate(settings(text), tmp_path / "run")


def test_a_folder_of_another_calibration_is_refused(found: tuple[CalibrationOutcome, Path]) -> None:
    with pytest.raises(ConfigError, match="holds another run"):
        calibrate(replace(settings("gaussian"), seed=1), found[1])
