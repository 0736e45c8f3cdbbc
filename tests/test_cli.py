from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradveil.attacks import ATTACKS
from gradveil.audit import runner as runner_module
from gradveil.cli import main
from gradveil.data import DATASETS
from gradveil.defenses import DEFENSES
from gradveil.experiment import journal
from gradveil.metrics import METRICS
from gradveil.models import MODELS

TINY = [
    "--data",
    "digits",
    "--model",
    "mlp",
    "--images",
    "2",
    "--attack",
    "linear",
    "--metric",
    "psnr",
    "--lineup",
    "off",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with the caller's umask back in place afterwards."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield
    os.umask(before)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def test_help_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-m", "gradveil", "--help"], check=True, capture_output=True)
    probe = "import sys, gradveil.cli; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@pytest.mark.parametrize("command", [[], ["audit"], ["report"], ["list"], ["bench"], ["bench", "engine"],
                                     ["bench", "strength"], ["bench", "strength", "export"]])  # fmt: skip
def test_every_command_has_help_with_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*command, "--help") == 0
    text = capsys.readouterr().out
    assert "gradveil" in text
    if command and command != ["bench"]:
        assert "Examples" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("--version") == 0
    assert capsys.readouterr().out.startswith("gradveil ")


@pytest.mark.parametrize(
    ("kind", "table"),
    [("attacks", ATTACKS), ("defenses", DEFENSES), ("metrics", METRICS), ("models", MODELS), ("data", DATASETS)],
)
def test_list(kind: str, table: dict, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("list", kind, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(table)
    for row in rows:
        assert {"name", "paper", "summary", "options"} <= set(row)
        assert row["summary"]
        assert isinstance(row["options"], dict)
    assert code("list", kind) == 0
    text = capsys.readouterr().out
    assert all(f"{name}: " in text for name in table)


def test_list_says_what_matters_of_defenses_and_attacks(capsys: pytest.CaptureFixture[str]) -> None:
    code("list", "defenses", "--json")
    defenses = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert defenses["prune"]["options"] == {"ratio": 0.9}
    assert "Zhu" in defenses["prune"]["paper"]
    assert "invertgrad" in defenses["prune"]["adaptive"]
    assert "linear" not in defenses["prune"]["adaptive"]
    assert defenses["none"]["adaptive"] == []
    code("list", "attacks", "--json")
    attacks = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert isinstance(attacks["invertgrad"]["options"]["steps"], int)


def test_an_audit_from_options_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("audit", *TINY, "--defense", "none", "--defense", "prune:ratio=0.5", "--out", "run") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["defense", "attack"]
    assert [line.split()[0] for line in lines[1:4]] == ["none", "prune", "prune"]
    assert lines[4].startswith(
        "positive control: without a defense these attacks recover 2 of 2 pictures, and these are"
    )
    assert lines[5].startswith("none: leaks. 2 of 2 pictures leaked")
    assert lines[7].startswith(
        "verdict: leaks, under linear (closed form, no search); an honest-but-curious server; labels known"
    )
    assert lines[-1] == "report: run/report.html"
    assert (tmp_path / "run/report.html").exists()
    assert "[1/3] digits-mlp-b1 / none / linear / unaware: 2 trials" in err
    found = journal.read(tmp_path / "run/journal.jsonl")
    assert Counter(r.control for r in found) == {"": 6, "another": 2, "prior": 2}
    assert {r.status for r in found} == {"ok"}
    exact = [r.scores["psnr"] for r in found if r.defense == "none" and not r.control]
    assert min(exact) > 60  # one picture per client
    for path in (tmp_path / "run").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("audit", *TINY, "--defense", "none", "--out", "run", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["report"] == "run/report.html"
    (cell,) = summary["cells"]
    assert (cell["attempted"], cell["failed"], cell["attacker"]) == (2, 0, "unaware")
    psnr = cell["metrics"]["psnr"]
    assert psnr["low"] <= psnr["mean"] <= psnr["high"] <= psnr["worst"]
    assert summary["verdict"] == "leaks"
    assert summary["cells"] == json.loads((tmp_path / "run/verdict.json").read_text())["cells"]


def test_what_failed_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lenet = [*TINY, "--model", "lenet"]
    assert code("audit", *lenet, "--defense", "none", "--out", "run") == 0  # a convolution comes first: nothing to read
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[3:6] == ["2", "2", "0"]
    assert lines[2].startswith("4 trials failed: NotApplicableError: ")  # its control among them
    assert lines[4].startswith("none: inconclusive. 2 of 2 trials failed")
    assert "linear is no evidence: without a defense linear recovers 0 of 2 pictures" in lines[4]


def test_quiet_is_quiet_and_the_folder_has_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("audit", *TINY, "--defense", "none", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-mlp-20")


def test_the_same_command_goes_on_and_another_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["audit", *TINY, "--defense", "none", "--out", "run"]
    assert code(*command) == 0
    before = (tmp_path / "run/journal.jsonl").read_bytes()
    assert code(*command) == 0
    assert (tmp_path / "run/journal.jsonl").read_bytes() == before
    assert code(*command, "--seed", "1") == 2
    assert "seed is 0 there, 1 here" in capsys.readouterr().err


def test_options_go_over_the_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("audit", *TINY, "--defense", "none", "--defense", "gaussian:scale=0.1", "--out", "one") == 0
    assert code("audit", "one/config.toml", "--defense", "none", "--out", "two", "--quiet") == 0
    assert {r.defense for r in journal.read(tmp_path / "two/journal.jsonl")} == {"none"}
    capsys.readouterr()
    assert code("audit", "one/config.toml", "--out", "three", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 3


def test_report_again_and_redacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code("audit", *TINY, "--defense", "none", "--out", "run", "--quiet")
    assert b"data:image/png" in (tmp_path / "run/report.html").read_bytes()
    assert code("report", "run", "--redact") == 0
    assert capsys.readouterr().out.strip() == "run/report.html"
    assert b"data:image/png" not in (tmp_path / "run/report.html").read_bytes()


def test_interrupted_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", *TINY, "--defense", "none", "--defense", "prune", "--out", "run"]
    whole, calls = runner_module.run_cell, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(runner_module, "run_cell", interrupted)
    assert code(*command) == 130
    assert "4 trials are kept, go on with --out run" in capsys.readouterr().err
    assert len(journal.read(tmp_path / "run/journal.jsonl")) == 4
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert code(*command) == 0
    assert len(journal.read(tmp_path / "run/journal.jsonl")) == 10


BAD = {
    "audit --sed 1": "--sed",
    "audit --seed one": "--seed",
    "audit --seed -1": "--seed: must be at least 0, got -1",
    "audit nothing.toml": "nothing.toml: cannot be read",
    "audit --model lenett": "--model: unknown name 'lenett', did you mean 'lenet'?",
    "audit --data digits --model no.py:build": "no.py: no such file",
    "audit --data digits --weights no.safetensors": "no.safetensors: no such file",
    "audit --data digits --weights w.pt": "w.pt: pickles are not read",
    "audit --data photo": "--data: unknown name 'photo', did you mean 'photos'?",
    "audit --data no/folder": "--data: no/folder: no such folder",
    "audit --data-option siz=8 --data digits": "--data-option: siz: unknown key, did you mean 'size'?",
    "audit --data-option size": "--data-option: expected KEY=VALUE, got 'size'",
    "audit --defense gausian": "--defense: gausian.name: unknown name 'gausian', did you mean 'gaussian'?",
    "audit --defense gaussian:scle=1": "--defense: gaussian.scle: unknown key, did you mean 'scale'?",
    "audit --defense prune:ratio=2": "--defense: prune: ratio = 2",
    "audit --defense none --defense none": "--defense: 'none' is given twice",
    "audit --attack invertgrat": "--attack: invertgrat.name: unknown name",
    "audit --attack invertgrad:steps=many": "--attack: invertgrad.steps: expected a whole number",
    "audit --images 0": "--images: must be at least 1, got 0",
    "audit --data digits --images 99999": "pictures",
    "audit --batch-size 0": "--batch-size: must be at least 1",
    "audit --local-steps 0": "--local-steps: must be at least 1",
    "audit --local-rate nan": "--local-rate: expected a finite number",
    "audit --labels know": "--labels: unknown name 'know', did you mean 'known'?",
    "audit --bn train": "--bn: unknown name 'train'",
    "audit --attacker furious": "--attacker: unknown name 'furious', did you mean 'curious'?",
    "audit --metric psrn": "--metric: unknown name 'psrn', did you mean 'psnr'?",
    "audit --metric lpips": "--lpips-weights: lpips needs AlexNet's LPIPS weights, give the path of the file",
    "audit --metric lpips-vgg": "--lpips-vgg-weights: lpips-vgg needs VGG16's LPIPS weights, give the path of the file",
    "audit --metric jaccard": "--tagger: jaccard needs the weights of EfficientNet-Lite0 or your own classifier",
    "audit --data digits --metric lpips --lpips-weights no.npz": "no.npz: cannot be read",
    "audit --budget quik": "--budget: unknown name 'quik', did you mean 'quick'?",
    "audit --device gpu": "--device: unknown name 'gpu'",
    "audit --device cuda:99": "--device: cuda:99 is not here",
    "audit --precision float23": "--precision: unknown name 'float23', did you mean 'float32'?",
    "audit --backend sweeep": "--backend: unknown name 'sweeep', did you mean 'sweep'?",
    "audit --also batchsize=1": "--also: batchsize: unknown key, did you mean 'batch_size'?",
    "audit --also batch_size=0": "--also: batch_size: must be at least 1",
    "audit --also labels=known,guessed": "--also: labels: unknown name 'guessed'",
    "audit --workers -1": "--workers: must be between 0 and 256, got -1",
    "audit --claim 1": "--claim: must be a share between 0 and 1",
    "audit --chunk 0": "--chunk: must be at least 1, got 0",
    "audit --data digits --out file": "file: not a folder",
    "audit --data digits --out file/run": "file/run: cannot be made",
    "audit one.toml two.toml": "two.toml",
    "verify nowhere": "nowhere",
    "table nowhere": "nowhere",
    "reproduce-cell nowhere --trial x": "nowhere",
    "report nowhere": "nowhere: no such folder",
    "report .": "no finished trial",
    "list attack": "list: unknown name 'attack', did you mean 'attacks'?",
    "bench engine --model lenett": "--model: unknown name 'lenett'",
    "adit": "adit",
}


@pytest.mark.parametrize(("command", "message"), BAD.items(), ids=list(BAD))
def test_bad_input_is_one_line_and_nothing_is_written(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    assert code(*command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_nothing_in_an_error_can_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("audit", "--model", "\x1b[2Jlenet\nerror: forged") == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert err.count("\n") == 1
