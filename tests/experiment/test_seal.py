from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.provenance import HASHES
from gradveil.experiment.record import Record
from gradveil.experiment.seal import find_changes, read_seal, seal

IMAGE = "images/digits_none_linear_unaware_c0000.safetensors"


def record(client: int) -> Record:
    return Record(
        key=f"digits/none/linear/unaware/c{client:04}/0",
        status="ok",
        scenario="digits",
        defense="none",
        attack="linear",
        attacker="unaware",
        client=f"c{client:04}",
        example=0,
        seed=client,
        seconds=0.5,
        backend="loop",
        scores={"psnr": 20.25 + client},
        images=f"digits_none_linear_unaware_c{client:04}.safetensors",
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with the caller's umask back in place afterwards."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished and sealed run, as small as it can be."""
    folder = tmp_path / "run"
    (folder / "images").mkdir(parents=True)
    (folder / "config.toml").write_text('seed = 0\nmetrics = ["psnr"]\n\n[scenario]\ndata = "digits"\nimages = 2\n')
    (folder / "provenance.json").write_text(json.dumps({"schema": 1, "seed": 0, "finished": None}, indent=2) + "\n")
    with Journal(folder / "journal.jsonl") as journal:
        for client in range(2):
            journal.append(record(client))
            pictures = np.random.default_rng(client).random((3, 1, 1, 8, 8), dtype=np.float32)
            original, fed, rebuilt = pictures
            save_file(
                {"original": original, "fed": fed, "reconstructed": rebuilt}, folder / "images" / record(client).images
            )
    (folder / "report.html").write_text("<!doctype html><title>run</title><p>no leak found under linear</p>\n")
    (folder / "verdict.json").write_text('{"verdict": "inconclusive"}\n')
    seal(folder)
    return folder


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "seal.json")


def test_the_seal_holds_every_file_and_its_hash(run: Path) -> None:
    stored = json.loads((run / "seal.json").read_bytes())
    expected = {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files(run)}
    assert stored["files"] == expected
    assert list(stored["files"]) == sorted(expected)
    assert len(expected) == 7
    assert set(stored) == {"schema", "files", "sealed", "id", "check"}
    assert stat.S_IMODE((run / "seal.json").stat().st_mode) == 0o600
    assert not list(run.rglob("*.part"))


def test_the_id_is_that_of_the_contents_alone(run: Path, tmp_path: Path) -> None:
    first = read_seal(run).id
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "seal.json").unlink()
    assert seal(copy) == first == seal(run)
    (copy / "report.html").write_text("another")
    assert seal(copy) != first


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not here")
def test_the_id_can_be_computed_without_us(run: Path) -> None:
    sorted_files = subprocess.run(["jq", "-S", ".files", run / "seal.json"], check=True, capture_output=True).stdout
    assert hashlib.sha256(sorted_files).hexdigest() == read_seal(run).id


def test_untouched_passes_and_again_after_sealing_again(run: Path) -> None:
    assert find_changes(run) == []
    (run / "report.html").write_text("made again")
    assert find_changes(run)
    seal(run)
    assert find_changes(run) == []


def flip(path: Path, at: int, mask: int) -> None:
    """Change one byte in place; the second time undoes the first."""
    with open(path, "r+b", buffering=0) as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def report(name: str) -> list[str]:
    return [f"{name}: changed since the run was sealed, restore it or treat the run as edited"]


@pytest.mark.parametrize("mutations", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_changed_bytes_are_all_noticed(mutations: int, run: Path) -> None:
    rng = random.Random(0)
    places = [(path, at) for path in files(run) for at in range(path.stat().st_size)]
    missed = []
    for path, at in rng.choices(places, k=mutations):
        mask = rng.randrange(1, 256)
        flip(path, at, mask)
        if find_changes(run) != report(str(path.relative_to(run))):
            missed.append((path.name, at, mask))
        flip(path, at, mask)
    assert missed == []
    assert find_changes(run) == []


def test_every_byte_of_the_seal_itself_counts(run: Path) -> None:
    rng = random.Random(0)
    path = run / "seal.json"
    content = path.read_bytes()
    for at in range(len(content)):
        for mask in (1 << rng.randrange(8), rng.randrange(1, 256), 0x20):  # 0x20: another case of the same letter
            flip(path, at, mask)
            assert find_changes(run) == report("seal.json")
            flip(path, at, mask)
    for other in (
        b"",
        content[:-1],
        content + b"\n",
        b" " + content,
        content * 2,
        json.dumps(json.loads(content)).encode(),
    ):
        path.write_bytes(other)
        assert len(find_changes(run)) == 1
    path.write_bytes(content)
    assert find_changes(run) == []


def link(path: Path) -> None:
    """The same bytes, but elsewhere."""
    path.rename(path.parents[1] / "moved")
    path.symlink_to(path.parents[1] / "moved")


TAMPERINGS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "removed": (lambda run: (run / "report.html").unlink(), ["report.html: missing"]),
    "removed picture": (lambda run: (run / IMAGE).unlink(), [f"{IMAGE}: missing"]),
    "added": (lambda run: (run / "notes.txt").write_text("x"), ["notes.txt: was not there"]),
    "added hidden": (lambda run: (run / ".hidden").write_text(""), [".hidden: was not there"]),
    "added picture": (lambda run: (run / "images/a").write_text("x"), ["images/a: was not there"]),
    "added folder": (
        lambda run: [(run / "more").mkdir(), (run / "more/seal.json").write_text("x")],
        ["more/seal.json: was not there"],
    ),
    "renamed": (
        lambda run: (run / "report.html").rename(run / "page.html"),
        ["page.html: was not there", "report.html: missing"],
    ),
    "swapped": (
        lambda run: [
            (run / "report.html").rename(run / "x"),
            (run / "verdict.json").rename(run / "report.html"),
            (run / "x").rename(run / "verdict.json"),
        ],
        ["report.html: changed", "verdict.json: changed"],
    ),
    "truncated": (lambda run: os.truncate(run / "journal.jsonl", 100), ["journal.jsonl: changed"]),
    "emptied": (lambda run: os.truncate(run / "journal.jsonl", 0), ["journal.jsonl: changed"]),
    "grown": (
        lambda run: (run / "config.toml").write_bytes((run / "config.toml").read_bytes() + b"\n"),
        ["config.toml: changed"],
    ),
    "linked": (lambda run: link(run / "report.html"), ["report.html: a link"]),
    "linked seal": (lambda run: link(run / "seal.json"), ["seal.json: changed"]),
    "linked folder": (
        lambda run: link(run / "images"),
        ["images: was not there", f"{IMAGE}: missing", f"{IMAGE.replace('c0000', 'c0001')}: missing"],
    ),
    "link half written": (lambda run: (run / "report.html.part").symlink_to("x"), ["report.html.part: was not there"]),
    "pipe": (
        lambda run: [(run / "verdict.json").unlink(), os.mkfifo(run / "verdict.json")],
        ["verdict.json: a link or a device"],
    ),
    "pipe for the seal": (
        lambda run: [(run / "seal.json").unlink(), os.mkfifo(run / "seal.json")],
        ["seal.json: changed"],
    ),
    "folder for file": (
        lambda run: [(run / "verdict.json").unlink(), (run / "verdict.json").mkdir()],
        ["verdict.json: missing"],
    ),
    "two lines": (lambda run: (run / "a\nb\x1b").write_text(""), ["a b : was not there"]),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_noticed(name: str, run: Path) -> None:
    tamper, expected = TAMPERINGS[name]
    tamper(run)
    found = find_changes(run)
    assert len(found) == len(expected)
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning)
        assert "\n" not in line


def test_what_a_crash_left_half_written_is_no_change(run: Path) -> None:
    (run / "report.html.part").write_text("half")
    (run / "images/new.safetensors.part").write_text("half")
    assert find_changes(run) == []


def test_links_are_not_sealed(run: Path) -> None:
    before = (run / "seal.json").read_bytes()
    (run / "images/away").symlink_to("/")
    with pytest.raises(ConfigError, match=r"run/images/away: a link or a device, put a plain file there"):
        seal(run)
    assert (run / "seal.json").read_bytes() == before


def test_a_forged_seal_reaches_nothing_outside_and_no_terminal(run: Path) -> None:
    from gradveil.experiment.seal import _canonical, _digest

    def forged(**changes: Any) -> bytes:
        body = {**json.loads((run / "seal.json").read_bytes()), **changes}
        body.pop("check")
        body["id"] = _digest(body["files"])
        return _canonical({**body, "check": _digest(body)})

    kept = (run / "seal.json").read_bytes()
    assert forged() == kept
    outside = {**json.loads(kept)["files"], "../../etc/passwd": "0" * 64}
    for bad, message in (
        (forged(files=outside), "../../etc/passwd: missing"),
        (forged(sealed="2025-01-01\x1b10:00:00+00:00"), "seal.json: changed"),
        (forged(files=[]), "seal.json: changed"),
        (forged(files={"report.html": 1}), "seal.json: changed"),
        (forged(schema=2), "seal.json: written by another version, schema 2"),
        (b"[]\n", "seal.json: changed"),
        (b"[" * 100_000, "seal.json: changed"),
    ):
        (run / "seal.json").write_bytes(bad)
        (line,) = find_changes(run)
        assert line.startswith(message)


def test_a_file_larger_than_a_block(run: Path) -> None:
    path = run / "images/large"
    path.write_bytes(bytes(3 * 2**20 + 1))
    seal(run)
    assert find_changes(run) == []
    with path.open("r+b") as file:
        file.seek(3 * 2**20)
        file.write(b"x")
    assert find_changes(run) == [
        "images/large: changed since the run was sealed, restore it or treat the run as edited"
    ]


def test_verify_says_in_one_line_that_nothing_find_changes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealed = read_seal(run)
    assert code("verify", "run") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == f"7 files unchanged since {sealed.sealed}, id {sealed.id[:16]}\n"


def test_verify_names_the_first_change_and_counts_the_others(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "journal.jsonl").write_bytes(b"")
    report = "error: run/journal.jsonl: changed since the run was sealed, restore it or treat the run as edited"
    assert code("verify", "run") == 2
    assert capsys.readouterr() == ("", f"{report}\n")
    (run / "verdict.json").unlink()
    (run / "zzz").write_text("")
    assert code("verify", "run") == 2
    assert capsys.readouterr() == ("", f"{report} (and 2 more)\n")


def test_verify_without_a_seal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "seal.json").unlink()
    assert code("verify", "run") == 2
    err = capsys.readouterr().err
    assert err.startswith("error: run/seal.json: not there, the run was not finished or was made by an older version")
    assert err.count("\n") == 1
    assert code("verify", "nowhere") == 2
    assert capsys.readouterr().err == "error: nowhere: no such folder, give the folder of a run\n"


def test_verify_is_there_at_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("verify", "--help") == 0
    assert "Examples" in capsys.readouterr().out
    probe = "import sys, gradveil.cli as c; sys.exit(c._code(['verify', 'run']) or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True).returncode == 0


def test_a_sealed_folder_is_still_that_of_a_run(run: Path) -> None:
    stored = json.loads((run / "provenance.json").read_text())
    RunFolder(run).check((run / "config.toml").read_text(), {name: stored.get(name) for name in HASHES})
