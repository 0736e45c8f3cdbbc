"""The fuzzers of fuzz/, briefly; `make fuzz` runs them for longer."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"fuzz_capture": 200, "fuzz_config": 800, "fuzz_journal": 5000, "fuzz_names": 12}


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "fuzz")


@pytest.mark.more
@pytest.mark.parametrize("name", COUNTS)
def test_no_input_breaks_the_contract(name: str) -> None:
    driver = importlib.import_module("driver")
    assert driver.fuzz(importlib.import_module(name).one, count=COUNTS[name], seed=1_000_000) == COUNTS[name]


def test_every_fuzzer_is_run_here() -> None:
    assert {path.stem for path in (ROOT / "fuzz").glob("fuzz_*.py")} == set(COUNTS)


def test_what_breaks_is_told_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    driver = importlib.import_module("driver")

    def one(rng: random.Random) -> None:
        """Odd numbers are too much for it."""
        assert rng.randrange(100) % 2 == 0

    with pytest.raises(AssertionError) as caught:
        driver.fuzz(one, count=100, seed=5)
    (note,) = caught.value.__notes__
    seed = int(note.split()[2])
    with pytest.raises(AssertionError):
        driver.fuzz(one, count=1, seed=seed)
    assert driver.fuzz(one, count=seed - 5, seed=5) == seed - 5
    assert driver.fuzz(one, count=10**9, seconds=-1) == 0
    driver.main(lambda rng: None, "nothing", ["--count", "3"])
    assert "3 inputs" in capsys.readouterr().err


def test_the_config_fuzzer_reaches_what_it_should() -> None:
    """Sound configs among the broken ones, otherwise the round trip is never tried."""
    fuzzer = importlib.import_module("fuzz_config")
    sound = 0
    for seed in range(300):
        fuzzer.PATH.write_bytes(fuzzer.made_up(random.Random(seed)))
        try:
            fuzzer.load(fuzzer.PATH)
            sound += 1
        except fuzzer.ConfigError:
            continue
    assert 8 < sound < 280
