"""`gradveil protect` and `train-extractor`: a folder of pictures to encodings that everybody can load."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from gradveil import data
from gradveil.cli import main
from gradveil.core.compute import Compute
from gradveil.core.hashes import sha256
from gradveil.protect import offline

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from children import FOREVER, forked, until

LODA = "loda:extractor=lenet:untrained,layers=all,c=1,steps=6"
ARCHIVE = "encoded.npz"


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder with 22 pictures of two classes in it, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(offline, "ON_A_CPU", 4)
    before = os.umask(0o022)
    rng = np.random.default_rng(0)
    for number in range(22):
        folder = tmp_path / "pictures" / ("benign", "malignant")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / f"{number}.png")
    yield tmp_path
    os.umask(before)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def protect(*more: str, out: str = "encoded", defense: str = LODA, source: str = "pictures") -> int:
    return code("protect", source, "--defense", defense, "--out", out, "--device", "cpu", *more)


def stem(line: str) -> str:
    return line.strip().splitlines()[-1]


@pytest.mark.parametrize("defense", [LODA, "ats:3-1-7", "random-policy"])
def test_a_folder_becomes_an_archive_that_our_loader_reads(defense: str) -> None:
    assert protect(defense=defense) == 0
    private, encoded = data.load("pictures"), data.load("encoded/encoded.npz")
    assert encoded.images.shape == private.images.shape
    assert torch.equal(encoded.targets, private.targets)
    assert encoded.class_names == ("benign", "malignant")
    assert not torch.isclose(encoded.images, private.images, atol=1e-3).all((1, 2, 3)).any()
    assert {path.name for path in Path("encoded").iterdir()} == {ARCHIVE, "manifest.json", "before-after.png"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in Path("encoded").iterdir())


def test_the_archive_in_plain_pytorch() -> None:
    """As in docs/methods/loda.md."""
    protect()
    with np.load("encoded/encoded.npz") as file:
        images, labels = torch.from_numpy(file["images"]), torch.from_numpy(file["labels"])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=8, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
    losses = [torch.nn.functional.cross_entropy(model(x), y) for x, y in loader]
    assert len(losses) == 3
    assert all(loss.isfinite() for loss in losses)


def test_the_manifest_says_what_was_done_and_the_sheet_shows_it() -> None:
    protect()
    manifest = json.loads(Path("encoded/manifest.json").read_text())
    assert manifest["defense"]["name"] == "loda"
    assert manifest["defense"]["rate"] == 0.1
    assert manifest["data"]["pictures"] == 22
    assert manifest["finished"]
    assert manifest["archive_sha256"] == sha256(Path("encoded/encoded.npz").read_bytes())
    with Image.open("encoded/before-after.png") as sheet:
        assert sheet.size == (8 * (96 + 4) + 4, 2 * (96 + 4) + 4)
        first = np.asarray(sheet)[4, 4]
    assert (first == (data.load("pictures").images[0, :, 0, 0] * 255).round().byte().numpy()).all()


def test_encoded_twice_it_is_the_same_byte_for_byte(monkeypatch: pytest.MonkeyPatch, desk: Path) -> None:
    protect(out="one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "another"))
    monkeypatch.setattr(offline, "ON_A_CPU", 7)
    protect(out="two")
    assert Path("one/encoded.npz").read_bytes() == Path("two/encoded.npz").read_bytes()


def test_worker_processes_encode_the_same_byte_for_byte() -> None:
    protect(defense="ats:3-1-7")
    offline.protect("pictures", "ats:3-1-7", "spread", compute=Compute(workers=2))
    assert Path("spread/encoded.npz").read_bytes() == Path("encoded/encoded.npz").read_bytes()


def test_parts_with_the_same_pictures_are_parts_of_their_own() -> None:
    for path in Path("pictures").rglob("*.png"):
        path.write_bytes(Path("pictures/benign/0.png").read_bytes())
    encode, parts = offline.Protection.encode, iter(range(99))

    def stop_once(self: offline.Protection, pictures: torch.Tensor) -> torch.Tensor:
        if next(parts) == 2:
            raise KeyboardInterrupt
        return encode(self, pictures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline.Protection, "encode", stop_once)
        assert protect(defense="ats:3-1-7") == 130
        assert protect(defense="ats:3-1-7") == 0
    images = data.load("encoded/encoded.npz").images
    assert torch.equal(images, images[:1].expand_as(images))


def test_bfloat16_is_an_option_of_the_defense(capsys: pytest.CaptureFixture[str]) -> None:
    protect("--precision", "bf16", out="half")
    protect(out="same", defense=f"{LODA},bf16=true")
    assert Path("half/encoded.npz").read_bytes() == Path("same/encoded.npz").read_bytes()
    assert json.loads(Path("half/manifest.json").read_text())["defense"]["bf16"] is True
    protect(out="plain")
    assert Path("half/encoded.npz").read_bytes() != Path("plain/encoded.npz").read_bytes()
    assert protect(out="half") == 2
    assert "defense.bf16 is True there, False here" in capsys.readouterr().err


def test_memory_does_not_grow_with_the_number_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the encodings of a part nothing is held once it is on disk."""
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    encode = offline.Protection.encode

    def watched(self: offline.Protection, pictures: torch.Tensor) -> torch.Tensor:
        alive.append(sum(kept() is not None for kept in made))
        encodings = encode(self, pictures)
        made.append(weakref.ref(encodings))
        return encodings

    monkeypatch.setattr(offline.Protection, "encode", watched)
    protect()
    assert alive == [0] * 6


def test_a_finished_folder_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    protect()
    before = {path: path.read_bytes() for path in Path("encoded").iterdir()}
    monkeypatch.setattr(offline.Protection, "encode", lambda *_: pytest.fail("encoded again"))
    assert protect() == 0
    assert {path: path.read_bytes() for path in Path("encoded").iterdir()} == before


def protect_until(parts: int) -> None:
    """Encode, and stay in the middle of the next part once so many are there; nothing is synced."""
    os.fsync = lambda handle: None
    encode = offline.Protection.encode

    def stay(self, pictures):
        if len(list(Path("encoded/parts").glob("*.safetensors"))) >= parts:
            time.sleep(FOREVER)
        return encode(self, pictures)

    offline.Protection.encode = stay
    main(["protect", "pictures", "--defense", f"{LODA},cache=false", "--out", "encoded", "--device", "cpu", "--quiet"])


def test_killed_and_gone_on_with_it_is_the_same(desk: Path) -> None:
    protect(out="undisturbed", defense=f"{LODA},cache=false")
    for kill in range(1, 4):
        child = forked(partial(protect_until, kill), desk / "log")
        until(lambda kill=kill: len(list(Path("encoded/parts").glob("*.safetensors"))) >= kill)
        child.kill(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert len(list(Path("encoded/parts").glob("*.safetensors"))) == kill
    assert not Path("encoded/encoded.npz").exists()
    assert forked(partial(protect_until, 99), desk / "log").wait() == 0
    assert Path("encoded/encoded.npz").read_bytes() == Path("undisturbed/encoded.npz").read_bytes()
    assert not Path("encoded/parts").exists()


def test_a_part_that_was_changed_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    protect(out="undisturbed")
    with monkeypatch.context() as patch:
        patch.setattr(offline.Protection, "put_together", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert protect() == 130
    part = Path("encoded/parts/000000004.safetensors")
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    assert protect() == 0
    assert Path("encoded/encoded.npz").read_bytes() == Path("undisturbed/encoded.npz").read_bytes()


def test_two_at_once_are_refused() -> None:
    from gradveil.experiment.journal import Journal

    Path("encoded/parts").mkdir(parents=True)
    with Journal(Path("encoded/journal.jsonl")):
        assert protect() == 4


# refusals


@pytest.mark.parametrize("source", ["encoded", "encoded/encoded.npz", "renamed.npz"])
def test_what_is_encoded_already_is_refused(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    protect()
    Path("renamed.npz").write_bytes(Path("encoded/encoded.npz").read_bytes())
    capsys.readouterr()
    assert protect(source=source, out="twice") == 2
    assert "is encoded already" in stem(capsys.readouterr().err)
    assert not Path("twice").exists()


@pytest.mark.parametrize(
    ("defense", "precision", "expected"),
    [
        ("ats:3-1-7", "bf16", "ats has no features to round to bf16, take float32 or tf32"),
        (LODA, "float64", "Known: bf16, float32, tf32"),
    ],
)
def test_a_precision_that_cannot_be_had_is_one_line(defense: str, precision: str, expected: str, capsys) -> None:
    assert protect("--precision", precision, defense=defense) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not Path("encoded").exists()


@pytest.mark.parametrize(
    ("defense", "expected"),
    [
        ("loda-1", "gradveil train-extractor"),
        ("gaussian", "does not change pictures one by one"),
        ("lodda", "did you mean 'loda'"),
        ("loda:extractor=lenet:untrained", "first5 asks for 5 convolutional layers"),
        ("loda:extractor=lenet:untrained,layers=all,public=nowhere/", "public: data: unknown name"),
        ("loda:extractor=lenet:untrained,layers=all,c=-1", "out of range"),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_written(defense: str, expected: str, capsys) -> None:
    assert protect(defense=defense) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not Path("encoded").exists()


def test_a_folder_of_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("encoded").mkdir()
    Path("encoded/letter.txt").write_text("dear")
    assert protect() == 2
    assert "no folder of encoded pictures" in capsys.readouterr().err
    protect(out="mine")
    assert protect(out="mine", defense=f"{LODA},seed=1") == 2
    assert "defense.seed is 0 there, 1 here" in capsys.readouterr().err


# the extractor


def test_an_extractor_is_trained_stored_and_used(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "lenet", "--epochs", "2", "--rate", "0.01", "--out", "extractor.safetensors"]
    assert code("train-extractor", "pictures", *options, "--device", "cpu") == 0
    assert "use it as extractor=lenet:extractor.safetensors" in capsys.readouterr().out
    with safe_open("extractor.safetensors", "pt") as file:
        report = file.metadata()
    assert (report["model"], report["epochs"], report["classes"], report["shape"]) == ("lenet", "2", "2", "3x8x8")
    assert len(report["data_sha256"]) == 64
    assert protect(defense="loda:extractor=lenet:extractor.safetensors,layers=all,steps=3,public=pictures/") == 0
    assert "#" in json.loads(Path("encoded/manifest.json").read_text())["defense"]["extractor"]
    assert code("train-extractor", "pictures", *options) == 2
    assert "exists, choose another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--out", "w.pt"], "ends in .safetensors"),
        (["--out", "w.safetensors", "--model", "lennet"], "did you mean 'lenet'"),
        (["--out", "w.safetensors", "--epochs", "0"], "must be 1 or more"),
        (["--out", "no/w.safetensors"], "no is no folder"),
        (["--out", "w.safetensors", "--data-option", "sise=3"], "did you mean 'size'"),
    ],
)
def test_training_that_cannot_work_is_one_line(options: list[str], expected: str, capsys) -> None:
    assert code("train-extractor", "pictures", *options) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
