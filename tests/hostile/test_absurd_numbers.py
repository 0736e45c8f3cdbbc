"""Journals whose checksums are right and whose numbers are absurd: one line or a page, and never a traceback."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradveil.cli import main
from gradveil.core.interval import mean_interval
from gradveil.experiment import journal
from gradveil.experiment.journal import JournalError
from gradveil.experiment.plausible import LARGEST
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of
from gradveil.report.charts import Chart, Series

STORED = Path(__file__).parents[1] / "experiment/stored/0.1.0"
TINY = ["audit", "--data", "digits", "--model", "mlp", "--images", "2", "--attack", "linear", "--defense", "none",
        "--no-convergence", "--quiet", "--device", "cpu"]  # fmt: skip
Change = Callable[[Record], Record]
ABSURD = (1e308, -1e308, 1.7e308, 4e38, -1e39, 10**400, -(10**400))
ODD = (1e-320, -1e-320, 5e-324, 3e38, -3e38, 1e30, -1e30, 0.0, -0.0, 1e15)
FIELDS: dict[str, Callable[[Any], Change]] = {
    "psnr": lambda x: lambda r: replace(r, scores={**r.scores, "psnr": x}),
    "every score": lambda x: lambda r: replace(r, scores={n: x for n in r.scores if kind(n) != "rate"}),
    "retrieval": lambda x: lambda r: replace(r, scores={**r.scores, "retrieval_fed": x}),
    "blank": lambda x: lambda r: replace(r, blank=x),
    "loss": lambda x: lambda r: replace(r, loss=x),
    "seconds": lambda x: lambda r: replace(r, seconds=x),
    "explained": lambda x: lambda r: replace(r, explained=dict.fromkeys(r.explained or ("truth",), x)),
    "floors": lambda x: lambda r: replace(r, floors=dict.fromkeys(r.floors or ("psnr_fed",), x)),
    "fed": lambda x: lambda r: replace(r, fed=dict.fromkeys(r.fed or ("linked", "chance"), x)),
}
OTHER: dict[str, Change] = {
    "seed": lambda r: replace(r, seed=10**30),
    "negative seed": lambda r: replace(r, seed=-1),
    "example": lambda r: replace(r, example=10**30),
    "negative example": lambda r: replace(r, example=-1),
    "inf blank": lambda r: replace(r, blank=math.inf),
    "nan floor": lambda r: replace(r, floors={"psnr_fed": math.nan}),
    "infinite chance": lambda r: replace(r, fed={"linked": 1.0, "chance": math.inf}),
    "nan loss": lambda r: replace(r, loss=math.nan),
}


def kind(score: str) -> str:
    return facts_of(score.removesuffix("_fed")).kind


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def line(record: Record) -> bytes:
    """As `encode` does it, with whatever Python calls a number."""
    from dataclasses import asdict
    from zlib import crc32

    body = json.dumps(asdict(record), separators=(",", ":")).encode()
    return b'%s,"crc":%d}\n' % (body[:-1], crc32(body))


def change(folder: Path, changes: dict[int, Change]) -> None:
    path = folder / "journal.jsonl"
    records = journal.read(path)
    path.write_bytes(b"".join(line(changes.get(i, lambda r: r)(r)) for i, r in enumerate(records)))


def copy_of(name: str, target: Path) -> Path:
    shutil.copytree(STORED / name, target)
    (target / "seal.json.part").touch()
    return target


def follow(folder: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether there is a page. If not, every command says why in one line."""
    codes = [code("report", str(folder)), code("table", str(folder))]
    err = capsys.readouterr().err
    if codes == [0, 0]:
        assert code("verify", str(folder)) == 0
        assert code("gate", str(folder)) in (0, 1)
        verdict = json.loads((folder / "verdict.json").read_text(), parse_constant=lambda name: pytest.fail(name))
        page = (folder / "report.html").read_text()
        assert verdict["verdict"] in page
        assert not any(word in page for word in (">nan<", ">inf<", ">-inf<", "Infinity", "NaN"))
        return True
    assert codes in ([2, 2], [2, 0])  # a table shows scores and judges none
    assert len(err.splitlines()) == codes.count(2)
    for one in err.splitlines():
        assert one.startswith("error: ")
        assert "bad record at byte " in one or "must be between 0 and 1" in one
        assert one.endswith("restore the file")
    return False


@pytest.mark.parametrize("value", ABSURD, ids=lambda value: f"{str(value)[:8]}")
@pytest.mark.parametrize("field", FIELDS)
def test_what_no_trial_gives_is_refused(field: str, value: float, tmp_path: Path) -> None:
    folder = copy_of("audit", tmp_path / "run")
    change(folder, {3: FIELDS[field](value)})
    with pytest.raises(JournalError, match=r"bad record at byte \d+, [\w.-]+ is .*, which no trial gives, restore"):
        journal.read(folder / "journal.jsonl")


@pytest.mark.parametrize("name", OTHER)
def test_other_absurd_numbers_are_refused_even_at_the_end(name: str, tmp_path: Path, capsys: Any) -> None:
    folder = copy_of("audit", tmp_path / "run")
    last = len(journal.read(folder / "journal.jsonl")) - 1
    change(folder, {last: OTHER[name]})
    before = (folder / "journal.jsonl").read_bytes()
    assert not follow(folder, capsys)
    assert before == (folder / "journal.jsonl").read_bytes()


@pytest.mark.parametrize("value", [3e38, -3e38, 5e-324])
@pytest.mark.parametrize("field", ["psnr", "every score", "blank", "loss"])
def test_the_largest_and_the_smallest_have_a_page(field: str, value: float, tmp_path: Path, capsys: Any) -> None:
    folder = copy_of("search-attack", tmp_path / "run")
    count = len(journal.read(folder / "journal.jsonl"))
    change(folder, dict.fromkeys(range(count), FIELDS[field](value)))
    assert follow(folder, capsys)


def test_a_rate_lies_between_0_and_1(tmp_path: Path, capsys: Any) -> None:
    folder = copy_of("audit", tmp_path / "run")
    change(folder, {0: FIELDS["retrieval"](1.5)})
    assert code("report", str(folder)) == 2
    assert "retrieval_fed must be between 0 and 1, got 1.5, restore the file" in capsys.readouterr().err


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.more) for n in range(6, 120))])
def test_any_mixture_is_a_page_or_a_line(seed: int, tmp_path: Path, capsys: Any) -> None:
    rng = random.Random(seed)
    folder = copy_of(rng.choice(("audit", "search-attack", "active")), tmp_path / "run")
    count = len(journal.read(folder / "journal.jsonl"))
    values = ODD + ABSURD if rng.random() < 0.2 else ODD
    chosen = rng.sample(range(count), rng.choice((1, 2, count // 2, count)))
    changes = {i: FIELDS[rng.choice(list(FIELDS))](rng.choice(values)) for i in chosen}
    change(folder, changes)
    follow(folder, capsys)


@pytest.mark.parametrize("field", ["psnr", "seconds"])
def test_a_run_does_not_go_on_from_them(field: str, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    assert code(*TINY, "--out", str(run)) == 0
    change(run, {0: FIELDS[field](1e308)})
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert code(*TINY, "--out", str(run)) == 2
    (err,) = capsys.readouterr().err.splitlines()
    assert f"{field} is 1e+308, which no trial gives" in err
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_means_of_the_largest_and_the_smallest_are_finite() -> None:
    rng = random.Random(0)
    for _ in range(300):
        values = [rng.choice((*ODD, LARGEST, -LARGEST)) for _ in range(rng.choice((2, 3, 8, 40)))]
        between = mean_interval(values)
        assert between is not None
        most = max(map(abs, values)) * (1 + 1e-9)
        assert -most <= between.low <= between.high <= most


def test_charts_of_the_largest_and_the_smallest() -> None:
    rng = random.Random(0)
    for _ in range(300):
        points = [(rng.choice(ODD), rng.choice(ODD)) for _ in range(rng.choice((1, 2, 5)))]
        drawn = Chart(title="t", x="x", y="y", series=[Series(name="s", points=points)]).svg()
        assert drawn.count("<text") < 40
        assert "nan" not in drawn
