"""Algorithm 1 end to end on small pictures: what comes out, and that it comes out alike however it is run."""

from __future__ import annotations

import gc
import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from searches import own_cache, small

from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, Interrupted
from gradveil.defenses.ats import Ats
from gradveil.experiment import journal
from gradveil.search import semi_trained as cache
from gradveil.search.search import search
from gradveil.search.settings import SearchSettings
from gradveil.transforms.policy import Policy

FORK = Compute(workers=2)


@pytest.fixture(autouse=True, scope="module")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with own_cache(folder):
        yield folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, one_cache: Path):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("full") / "run"
    return search(small(), folder), folder


def functions(policy: str) -> list[set[object]]:
    parsed = Policy.parse(policy)
    return [{parsed.library.entries[place].function for place in slots} for slots in parsed.alternatives]


def test_the_best_come_first_and_the_hybrid_shares_nothing(found) -> None:
    outcome, _ = found
    scores = [one.privacy for one in outcome.policies]
    assert scores == sorted(scores)
    assert len(scores) == 4
    first, second = functions(outcome.hybrid)
    assert not first & second
    assert outcome.hybrid.startswith(outcome.policies[0].policy)
    assert all(one.low <= one.privacy + 1e-9 and 0 <= one.in_top <= 1 for one in outcome.policies)
    assert outcome.policies[0].in_top > 0.5


def test_policies_that_do_the_same_are_scored_once(found) -> None:
    outcome, folder = found
    assert outcome.candidates == 13  # ten at random and three included, of which 47 is 0
    assert outcome.distinct == 12
    keys = [record.key for record in journal.read(folder / "journal.jsonl")]
    assert len(keys) == len(set(keys))
    assert not any("/47/" in key for key in keys)


def test_every_picture_has_an_area_and_every_policy_its_blocks(found) -> None:
    _, folder = found
    records = [r for r in journal.read(folder / "journal.jsonl") if r.attack == "privacy-score"]
    for policy in {r.defense for r in records}:
        places = sorted(int(place) for r in records if r.defense == policy for place in r.scores)
        assert places == list(range(8))


@pytest.mark.more
def test_processes_give_the_same_file(found, tmp_path: Path) -> None:
    outcome, _ = found
    for workers in (1, 2):
        again = search(small(), tmp_path / f"run{workers}", compute=Compute(workers=workers))
        assert again.to_json() == outcome.to_json()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own, which leaves files and processes to be collected
def test_ray_gives_the_same_file(found, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install gradveil[ray]")
    outcome, _ = found
    assert search(small(), tmp_path / "run", compute=Compute(ray="local")).to_json() == outcome.to_json()
    gc.collect()  # here, and not in a test that knows nothing of Ray


@pytest.mark.parametrize("kept", [1, 20])
def test_what_is_missing_is_done_and_nothing_twice(found, tmp_path: Path, kept: int) -> None:
    outcome, folder = found
    again = shutil.copytree(folder, tmp_path / "run")
    lines = (again / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (again / "journal.jsonl").write_bytes(b"".join(lines[:kept]) + b'{"key":"torn')
    assert search(small(), again).to_json() == outcome.to_json()
    keys = [record.key for record in journal.read(again / "journal.jsonl")]
    assert len(keys) == len(set(keys)) == len(lines)


def test_another_search_in_the_same_folder_is_refused(found) -> None:
    _, folder = found
    with pytest.raises(ConfigError, match=r"search.candidates is 10 there, 11 here"):
        search(small(candidates=11), folder)


def test_a_score_does_not_depend_on_who_else_is_there(found, tmp_path: Path) -> None:
    """Random numbers belong to pictures: 3-1-7 has the same areas among others."""
    _, folder = found
    search(small(candidates=2, include=("3-1-7",), top=1), tmp_path / "other")
    one, other = (
        [r.scores for r in journal.read(run / "journal.jsonl") if r.defense == "3-1-7" and r.attack == "privacy-score"]
        for run in (folder, tmp_path / "other")
    )
    assert one == other
    assert len(one) > 0


@pytest.mark.more
def test_a_race_looks_at_less_and_finds_the_same_best(tmp_path: Path) -> None:
    wide = {"candidates": 24, "top": 2, "images": 16, "score": "ats-paper"}
    raced, full = (search(small(strategy=kind, **wide), tmp_path / kind, compute=FORK) for kind in ("race", "full"))
    assert raced.scored < full.scored == full.passed
    areas = {one.policy: one.area for one in full.policies}
    assert {one.policy: one.area for one in raced.policies} == areas  # the same pictures give the same areas


def test_filters_leave_out_what_they_should(tmp_path: Path) -> None:
    strict = search(small(threshold="30%", fsim=0.5), tmp_path / "strict")
    assert 0 < strict.distorted < strict.distinct
    assert strict.passed == -(-3 * (strict.distinct - strict.distorted) // 10)
    assert all(one.accuracy >= strict.threshold and (one.fsim or 0) >= 0.5 for one in strict.policies)
    none = search(small(threshold=0.0), tmp_path / "none")
    assert (none.passed, none.policies, none.hybrid) == (0, (), "")


def test_against_an_adaptive_attacker_scores_differ(found, tmp_path: Path) -> None:
    outcome, _ = found
    other = search(small(against="adaptive", score="ats-paper"), tmp_path / "run")
    assert {one.policy: one.area for one in other.policies} != {one.policy: one.area for one in outcome.policies}


def test_who_knows_a_policy_may_ignore_it(tmp_path: Path) -> None:
    """Of every policy the larger area counts, so no policy scores lower against who knows it."""
    scores = {against: search(small(against=against, score="ats-paper", top=12, threshold="100%"), tmp_path / against)
              for against in ("unaware", "adaptive")}  # fmt: skip
    areas = {against: {one.policy: one.area for one in outcome.policies} for against, outcome in scores.items()}
    both = areas["unaware"].keys() & areas["adaptive"].keys()
    assert len(both) > 3
    assert all(areas["adaptive"][policy] >= areas["unaware"][policy] - 1e-9 for policy in both)
    assert any(areas["adaptive"][policy] > areas["unaware"][policy] + 1e-6 for policy in both)


def test_the_file_is_private_complete_and_what_ats_takes(found, tmp_path: Path) -> None:
    outcome, _ = found
    path = tmp_path / "policy.json"
    outcome.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert content["library"]["name"] == "ats-code"
    assert content["library"]["entries"][3] == ["translateX", 9]
    assert {"policy", "privacy", "low", "high", "accuracy", "fsim", "confirmed"} <= content["policies"][0].keys()
    assert {"candidates", "passed", "correlation", "settings", "provenance"} <= content.keys()
    assert Ats(policy=str(path)).policy == outcome.hybrid


def test_the_semi_trained_model_is_made_once_and_kept_privately(
    one_cache: Path, found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept, *_) = (one_cache / "gradveil/semi-trained").glob("*.safetensors")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    monkeypatch.setattr(cache, "fit", lambda *_, **__: pytest.fail("trained again"))
    search(small(candidates=3, top=1), tmp_path / "again")
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        search(small(semi_epochs=3), tmp_path / "other")


def test_the_folder_and_its_files_are_for_their_owner_alone(found) -> None:
    _, folder = found
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"library": "nothere.toml"}, "library: nothere.toml: cannot be read"),
        ({"library": "ats-cod"}, "library: .*did you mean 'ats-code'"),
        ({"top": 14}, "top: must be at most 13"),
        ({"images": 64}, "images: 64 pictures to score"),
        ({"images": 1}, "images: must be between 2"),
        ({"length": 0}, "length: must be between 1"),
        ({"candidates": 0}, "candidates: must be between 1"),
        ({"hybrid": 0}, "hybrid: must be between 1"),
        ({"score": "ats"}, "score: unknown name 'ats'"),
        ({"strategy": "fast"}, "strategy: unknown name 'fast'"),
        ({"against": "nobody"}, "against: unknown name 'nobody'"),
        ({"threshold": "many"}, "threshold: must be a number such as .*, got 'many'"),
        ({"threshold": "120%"}, "threshold: must be above 0%"),
        ({"threshold": float("nan")}, "threshold: expected a finite number"),
        ({"fsim": 2.0}, "fsim: must be above 0 and at most 1"),
        ({"confirm": 2}, "confirm: must be 0 .none. or at least 4"),
        ({"include": ("3-99",)}, "include: policy 3-99: 99 is not in the library"),
        ({"include": ("3+1",)}, "include: 3.1 is a hybrid"),
        ({"model": "lenett"}, "model: unknown name 'lenett'"),
        ({"data": "photo"}, "data: unknown name 'photo'"),
        ({"data_options": {"colour": 1}}, "data_options.colour"),
        ({"weights": "nothere.safetensors"}, "nothere.safetensors: no such file"),
        ({"semi_share": 0.0}, "semi_share: must be above 0"),
        ({"seed": -1}, "seed: must be between 0"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(changes: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as content:
        search(small(**changes), tmp_path / "run")
    assert "\n" not in str(content.value)
    assert list(tmp_path.iterdir()) == []


def test_the_whole_of_it_is_three_lines(tmp_path: Path) -> None:
    asked = SearchSettings(data_options={"count": 64, "size": 16}, candidates=4, top=1, images=4, rounds=1, confirm=0)
    outcome = search(asked, tmp_path / "run")
    assert Policy.parse(outcome.hybrid).alternatives


def test_a_library_of_one_s_own_is_in_the_file(tmp_path: Path) -> None:
    """Twelve policies of at most two of three entries, two of which are the identity alone or with another."""
    rows = (("translateX", 9), ("solarize", 0), ("invert", 0))
    text = "".join(f'[[entry]]\noperation = "{name}"\nmagnitude = {magnitude}\n' for name, magnitude in rows)
    (tmp_path / "mine.toml").write_text(text)
    asked = small(library=str(tmp_path / "mine.toml"), include=(), candidates=50, length=2)
    outcome = search(asked, tmp_path / "run")
    assert (outcome.candidates, outcome.distinct) == (12, 7)
    assert outcome.to_json()["library"] == {"name": "mine", "entries": [list(row) for row in rows]}
    keys = [record.key for record in journal.read(tmp_path / "run/journal.jsonl")]
    assert len(keys) == len(set(keys))
    (tmp_path / "mine.toml").write_text(text.replace("9", "5"))
    with pytest.raises(ConfigError, match=r"search\.entries is"):
        search(asked, tmp_path / "run")


def test_a_search_that_ran_out_of_time_goes_on_to_the_same_policies(found, tmp_path: Path) -> None:
    whole, _ = found
    with pytest.raises(Interrupted, match="results are kept"):
        search(small(), tmp_path / "run", seconds=1e-6)
    assert search(small(), tmp_path / "run", seconds=1e6).policies == whole.policies
