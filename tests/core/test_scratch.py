"""Files with private pictures stay below the folder of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.core.files import SCRATCH, cache_folder, picture_cache, scratch
from gradveil.defenses.loda.cache import Cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_innermost_run_has_the_pictures(tmp_path: Path) -> None:
    assert picture_cache() == cache_folder()
    with scratch(None):
        assert picture_cache() is None
        with scratch(tmp_path / "study"):
            with scratch(tmp_path / "study/point"):
                assert picture_cache() == tmp_path / "study/point" / SCRATCH
            assert picture_cache() == tmp_path / "study" / SCRATCH
        assert picture_cache() is None
    assert picture_cache() == cache_folder()


def test_what_a_kill_left_is_removed_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / SCRATCH / "old").mkdir(parents=True)

    def work() -> None:
        with scratch(tmp_path) as place:
            assert not place.exists()
            place.mkdir()
            (place / "new").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("x")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / SCRATCH).symlink_to(tmp_path / "mine")
    with scratch(tmp_path / "run") as place:
        assert not place.is_symlink()
    assert (tmp_path / "mine/precious").exists()


@pytest.mark.parametrize("inside", [True, False])
def test_encodings_are_kept_where_the_run_is(inside: bool, tmp_path: Path, home: Path) -> None:
    picture = torch.rand(3, 4, 4)
    if inside:
        with scratch(tmp_path / "run") as place:
            cache = Cache.of("key")
            cache.keep("ab" * 32, picture)
            found = cache.read("ab" * 32, picture)
            assert [p for p in place.rglob("*") if p.is_file()]
    else:
        cache = Cache.of("key")
        cache.keep("ab" * 32, picture)
        found = cache.read("ab" * 32, picture)
    assert found is not None
    assert found.equal(picture)
    assert bool([p for p in home.rglob("*") if p.is_file() and p.stat().st_size]) == (not inside)


def test_nowhere_means_nowhere(home: Path) -> None:
    with scratch(None):
        cache = Cache.of("key")
        cache.keep("ab" * 32, torch.rand(3, 4, 4))
        assert cache.read("ab" * 32, torch.rand(3, 4, 4)) is None
    assert not [p for p in home.rglob("*") if p.is_file() and p.stat().st_size]


def test_a_killed_audit_is_cleaned_by_the_next(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_audit(audit({"a": Noise()}), run)
    (run / SCRATCH).mkdir()
    (run / SCRATCH / "pictures").write_text("private")
    run_audit(audit({"a": Noise()}), run)
    assert not (run / SCRATCH).exists()
