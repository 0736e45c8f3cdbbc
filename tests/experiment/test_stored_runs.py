"""What an earlier version wrote is read and judged by this one: `tests/experiment/stored/README.md`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.cli import main
from gradveil.experiment import journal
from gradveil.experiment.folder import RunFolder

STORED = Path(__file__).with_name("stored")
RUNS = sorted(path.parent for path in STORED.rglob("journal.jsonl"))
AUDITS = [folder for folder in RUNS if (folder / "verdict.json").exists()]
LARGEST = 200_000  # bytes of one version
# a later version may doubt more, and never less
DOUBT = ("leaks", "inconclusive", "not evaluated", "no leak found", "bounded")


def name(folder: Path) -> str:
    return str(folder.relative_to(STORED))


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def test_every_kind_of_run_is_there_and_small() -> None:
    versions = [path for path in STORED.iterdir() if path.is_dir() and not path.name.startswith("__")]
    assert versions
    for version in versions:
        assert {path.name for path in version.iterdir()} >= {"audit", "search-attack", "active", "search", "training"}
        assert sum(path.stat().st_size for path in version.rglob("*") if path.is_file()) < LARGEST


@pytest.mark.parametrize("folder", RUNS, ids=name)
def test_every_record_is_read(folder: Path) -> None:
    content = (folder / "journal.jsonl").read_bytes()
    records, sound = journal.parse(content)
    assert sound == len(content)
    assert len(records) == content.count(b"\n") > 0
    assert RunFolder(folder).read_provenance()["finished"]


@pytest.mark.parametrize("folder", AUDITS, ids=name)
def test_every_audit_is_judged(folder: Path) -> None:
    verdict, before = judge(read_run(folder)), json.loads((folder / "verdict.json").read_text())
    assert verdict.missing == before["missing"] == 0
    assert {cell.scenario for cell in verdict.cells if not cell.control} == {c["scenario"] for c in before["cells"]}
    then = {(one["scenario"], one["defense"]): one["verdict"] for one in before["findings"]}
    for finding in verdict.findings:
        earlier = then[finding.tally.scenario, finding.tally.defense]
        assert DOUBT.index(finding.verdict) <= DOUBT.index(earlier)


@pytest.mark.parametrize("folder", AUDITS, ids=name)
def test_every_audit_gets_its_page_and_its_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    (run / "seal.json.part").touch()
    assert code("report", str(run)) == 0
    assert code("verify", str(run)) == 0
    capsys.readouterr()
    assert code("table", str(run)) == 0
    assert capsys.readouterr().out.count("\n") == 1 + len(journal.read(run / "journal.jsonl"))
