"""`gradveil report`: verdict, page and seal together, and never over a run that was edited."""

import json
from pathlib import Path

import pytest
from synthetic import write_run

from gradveil.cli import main
from gradveil.experiment.seal import find_changes


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leave:
        main(arguments)
    return int(leave.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "november")
    assert code("report", str(folder)) == 0
    return folder


def test_writes_verdict_page_and_seal(folder, capsys):
    assert code("report", str(folder), "--claim", "0.01") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")
    assert "Claim: at most 1 %" in (folder / "report.html").read_text()
    content = json.loads((folder / "verdict.json").read_text())
    assert content["findings"][1]["claim"] == {"at_most": 0.01, "supported": False}
    assert find_changes(folder) == []


def test_redacts_page_and_verdict(folder):
    assert code("report", str(folder), "--redact") == 0
    for name in ("report.html", "verdict.json"):
        assert "ward-" not in (folder / name).read_text()
        assert "/home/someone" not in (folder / name).read_text()


def test_an_edited_run_is_not_sealed_anew(folder, capsys):
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("images = 8", "images = 9"))
    before = (folder / "seal.json").read_bytes()
    assert code("report", str(folder)) == 2
    assert "config.toml: changed since the run was sealed" in capsys.readouterr().err
    assert (folder / "seal.json").read_bytes() == before


def test_a_lost_or_edited_page_is_made_again(folder):
    old = (folder / "report.html").read_bytes()
    (folder / "report.html").write_text("nothing to see here")
    (folder / "verdict.json").unlink()
    assert code("report", str(folder)) == 0
    assert (folder / "report.html").read_bytes() == old
    assert find_changes(folder) == []


@pytest.mark.parametrize("claim", ["0", "1", "-0.5", "much"])
def test_a_claim_must_be_a_share(folder, claim, capsys):
    assert code("report", str(folder), "--claim", claim) == 2
    assert "claim" in capsys.readouterr().err
