"""A seal that was lost or broken and made again is named: on the page, in verdict.json and by `verify`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.experiment import journal, provenance
from gradveil.experiment import seal as seal_module
from gradveil.report.conclude import conclude
from gradveil.tradeoff.study import StudyFolder

ORIGIN = {"command": "c", "device": "cpu", "precision": "float32", "gradveil": "1", "torch": "2", "started": "now"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Finished and sealed."""
    folder = tmp_path / "run"
    run_audit(audit({"a": Noise()}), folder)
    conclude(folder)
    return folder


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def edit_journal(folder: Path) -> None:
    """Every picture recovered worse, with the right checksums."""
    path = folder / "journal.jsonl"
    records = [replace(r, scores={name: value / 2 for name, value in r.scores.items()}) for r in journal.read(path)]
    path.write_bytes(b"".join(map(journal.encode, records)))


def stored(folder: Path) -> dict:
    return json.loads((folder / "provenance.json").read_text())


def problems(folder: Path) -> list[str]:
    return [event["problem"] for event in stored(folder).get("sealed_again", [])]


def flags(folder: Path) -> list[str]:
    return json.loads((folder / "verdict.json").read_text())["flags"]


def test_an_edited_journal_is_not_hidden_by_a_new_seal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_journal(run)
    assert code("report", str(run)) == 2
    (run / "seal.json").unlink()
    assert code("report", str(run)) == 0
    capsys.readouterr()
    assert code("verify", str(run)) == 1
    out, err = capsys.readouterr()
    assert "files unchanged since" in out
    assert err.startswith("not proven: sealed again on 20")
    assert "by the report, made again (gradveil" in err
    assert "seal.json was missing" in err
    assert err.count("\n") == 1
    page = (run / "report.html").read_text()
    assert 'id="flag-sealed-again"' in page
    assert "seal.json was missing" in page
    assert "sealed-again" in flags(run)


def test_it_is_not_forgotten_by_the_next_report(run: Path) -> None:
    (run / "seal.json").unlink()
    conclude(run)
    conclude(run, redact=True)
    assert problems(run) == ["seal.json was missing"]
    assert 'id="flag-sealed-again"' in (run / "report.html").read_text()
    (run / "seal.json").unlink()
    conclude(run)
    assert problems(run) == ["seal.json was missing"] * 2


def test_without_the_provenance_it_is_named_too(run: Path) -> None:
    for name in ("seal.json", "provenance.json"):
        (run / name).unlink()
    conclude(run)
    assert problems(run) == ["seal.json and provenance.json were missing"]


def test_the_library_refuses_an_edited_run_as_the_command_does(run: Path) -> None:
    edit_journal(run)
    with pytest.raises(ConfigError, match=r"run/journal\.jsonl: changed since the run was sealed"):
        conclude(run)


def test_a_run_that_goes_on_after_an_edit_says_so(run: Path) -> None:
    edit_journal(run)
    (run / "images/noise.txt").write_text("x")
    run_audit(audit({"a": Noise()}), run)
    assert problems(run) == ["journal.jsonl, 1 other files had changed since the run was sealed"]
    conclude(run)
    assert "sealed-again" in flags(run)
    (run / "seal.json").unlink()
    run_audit(audit({"a": Noise()}), run)
    assert problems(run)[1:] == ["seal.json was missing"]


def test_what_was_never_broken_is_not_accused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conclude(run)  # made again
    run_audit(audit({"a": Noise()}), run)  # resumed, with nothing to do
    conclude(run)
    (run / "report.html").unlink()  # lost, and made again
    conclude(run, redact=True)
    assert problems(run) == []
    assert code("verify", str(run)) == 0
    assert capsys.readouterr().err == ""
    assert "sealed-again" not in flags(run)


@pytest.mark.parametrize("finished", [True, False], ids=["before its seal", "in the middle"])
def test_an_interrupted_run_is_not_accused(finished: bool, tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}), tmp_path / "run")
    if not finished:
        (tmp_path / "run/seal.json.part").unlink()
        content = {key: value for key, value in stored(tmp_path / "run").items() if key != "check"}
        from gradveil.experiment.folder import _with_checksum

        (tmp_path / "run/provenance.json").write_bytes(_with_checksum(content | {"finished": None}))
    conclude(tmp_path / "run")
    assert problems(tmp_path / "run") == []


def test_a_disk_that_is_full_at_the_seal_is_no_lost_seal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        path.with_name(path.name + ".part").unlink(missing_ok=True)
        raise OSError(28, "No space left on device")

    run_audit(audit({"a": Noise()}), run)
    with monkeypatch.context() as patch:
        patch.setattr("gradveil.core.files.write_whole", full)
        with pytest.raises(OSError, match="No space"):
            seal_module.seal(run)
    conclude(run)
    assert problems(run) == []


def test_a_study_keeps_its_seal_one_folder_higher(tmp_path: Path) -> None:
    home = StudyFolder(tmp_path)
    home.create()
    home.prepare("seed = 0\n", dict(ORIGIN))
    home.finish()
    seal_module.seal(tmp_path)
    assert not (tmp_path / "seal.json.part").exists()
    (tmp_path / "seal.json").unlink()
    home.prepare("seed = 0\n", dict(ORIGIN))
    home.finish()
    seal_module.seal(tmp_path)
    assert code("verify", str(tmp_path)) == 1
    assert problems(tmp_path / "study") == ["seal.json was missing"]


def test_another_version_is_named_and_flagged(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_audit(audit({"a": Noise()}), run)
    conclude(run)
    assert "versions" not in stored(run)
    assert "several-versions" not in flags(run)
    first = stored(run)["gradveil"]
    for version in ("9.9.0", "9.9.0", "9.9.1"):
        monkeypatch.setattr(provenance, "own_version", lambda version=version: version)
        run_audit(audit({"a": Noise()}), run)
    assert stored(run)["versions"] == [first, "9.9.0", "9.9.1"]
    for redact in (False, True):
        conclude(run, redact=redact)
        assert "several-versions" in flags(run)
        assert "9.9.1" in (run / "report.html").read_text()
