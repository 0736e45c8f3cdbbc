"""The command line with values that no one should give, and places where nothing can be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradveil.cli import main

LONG = "a" * 20_000
TINY = ("--data", "digits", "--model", "mlp", "--images", "1", "--attack", "linear", "--defense", "none")
WRONG: dict[tuple[str, ...], str] = {
    ("--images", "1e3"): "--images",
    ("--images", "9" * 5000): "--images",
    ("--images", "\uff11\uff10\uff10\uff10\uff10\uff10\uff10"): "--images",
    ("--images", "-1"): "--images",
    ("--batch-size", "99999999999999999999"): "--batch-size",
    ("--local-steps", "1000000000000"): "--local-steps",
    ("--local-rate", "1e400"): "--local-rate",
    ("--local-rate", "-inf"): "--local-rate",
    ("--seed", "9" * 30): "--seed",
    ("--seed", ""): "--seed",
    ("--chunk", "-1"): "--chunk",
    ("--workers", "1000000"): "--workers",
    ("--workers", "-1"): "--workers",
    ("--device", "cuda:999999999999999999999999"): "--device",
    ("--device", "cpu; rm -rf /"): "--device",
    ("--device", ""): "--device",
    ("--precision", "float16"): "--precision",
    ("--backend", "eval"): "--backend",
    ("--budget", LONG): "--budget",
    ("--labels", ""): "--labels",
    ("--bn", "\x1b]0;owned\x07"): "--bn",
    ("--attacker", "root"): "--attacker",
    ("--model", ""): "--model",
    ("--model", LONG): "--model",
    ("--model", "lenet\x00"): "--model",
    ("--model", "\udcff"): "--model",
    ("--model", "os:system"): "os:system",
    ("--model", "nothing.py:build"): "nothing.py",
    ("--model", "nothing.py:__import__('os')"): "nothing.py",
    ("--model", f"{'a' * 300}.py:build"): "--model",
    ("--model", "..:build"): "..:build",
    ("--data", ""): "--data",
    ("--data", LONG): "--data",
    ("--data", "no/such.npz"): "no/such.npz",
    ("--data", "nothing.npy"): "--data",
    ("--data", "http://127.0.0.1/x.npz"): "x.npz",
    ("--data", "file"): "--data",
    ("--data", "/proc/self/mem"): "--data",
    ("--data-option", "=1"): "--data-option",
    ("--data-option", f"size={LONG}"): "--data-option",
    ("--data-option", "size=0x" + "f" * 900): "--data-option",
    ("--data-option", "size=" + "9" * 990): "--data-option",
    ("--data-option", "size=" + "[" * 900): "--data-option",
    ("--data-option", "size=1\nseed=2"): "--data-option",
    ("--data-option", "size=1979-05-27"): "--data-option",
    ("--data-option", f"{LONG}=1"): "--data-option",
    ("--data-option", "root=/"): "--data-option",
    ("--defense", ""): "--defense",
    ("--defense", LONG): "--defense",
    ("--defense", "gaussian:scale=nan"): "--defense",
    ("--defense", "gaussian:scale=1e999"): "--defense",
    ("--defense", "gaussian:scale=__import__('os').system('true')"): "--defense",
    ("--defense", "gaussian:" + ",".join(f"k{k}=1" for k in range(5000))): "--defense",
    ("--defense", "stack:of=[{name='none'}]" + "," * 2000): "--defense",
    ("--defense", "stack:of=[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]"): "--defense",
    ("--defense", "os.system:x=1"): "--defense",
    ("--attack", "dlg:steps=1000000000000"): "--attack: dlg.steps: must be at most 10000000",
    ("--attack", "dlg:steps=0"): "--attack: dlg.steps: must be at least 1",
    ("--attack", "dlg:restarts=100000"): "--attack: dlg.restarts",
    ("--attack", "invertgrad:tv=[]"): "--attack: invertgrad.tv: none is given",
    ("--attack", "dlg\nlinear"): "--attack",
    ("--metric", "../psnr"): "--metric",
    ("--metric", ""): "--metric",
    ("--also", "images=1"): "--also",
    ("--also", "batch_size=0"): "--also",
    ("--also", "batch_size=" + "9" * 900): "--also",
    ("--claim", "nan"): "--claim",
    ("--claim", "2"): "--claim",
    ("--lpips-weights", "x.npz", "--metric", "lpips"): "x.npz",
    ("--unheard-of", "1"): "--unheard-of",
    ("--seed",): "--seed",
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "naming"), WRONG.items(), ids=[" ".join(key)[:40] for key in WRONG])
def test_a_wrong_option_is_refused(arguments: tuple[str, ...], naming: str, refused) -> None:
    Path("file").write_text("x")
    refused("audit", "--data", "digits", *arguments, naming=naming)


@pytest.mark.parametrize(
    ("arguments", "naming"),
    [
        (("report", "no/such"), "no/such"),
        (("report", "\x1b[2J"), "no such folder"),
        (("report", "a" * 5000), "aaa"),
        (("verify", "no/such"), "no/such"),
        (("table", "no/such"), "no/such"),
        (("list", "passwords"), "list"),
        (("list", LONG), "list"),
        (("bench", "engine", "--model", "../lenet"), "--model"),
        (("bench", "engine", "--images", "0"), "--images"),
        (("bench", "engine", "--steps", "-1"), "--steps"),
        (("bench", "engine", "--device", "tpu"), "--device"),
        (("bench", "nothing"), "nothing"),
        (("\x00",), "no such command"),
        (("audti",), "audti"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_other_commands(arguments: tuple[str, ...], naming: str, refused) -> None:
    refused(*arguments, naming=naming)


OUT = {
    "a file": "file: not a folder",
    "below a file": "file/run",
    "a link": "link: not a folder",
    "a dangling link": "nowhere: not a folder",
    "a strange folder": "strange: exists and is not the folder of a run",
    "the current folder": "--out: link is a link",
    "a line break": "--out: 'a\\nb'",
    "an escape sequence": "--out: '\\x1b[2Ja'",
    "half a letter": "--out",
    "a long name": "a" * 300,
    "a very long path": "--out",
    "a way back": "--out: new/../run",
    "a way out of the way": "--out: ../new/../run",
    "the parent": "..",
    "a link inside": "holed/journal.jsonl is a link",
    "a link among the pictures": "deep/images/x.safetensors is a link",
    "a link instead of pictures": "linked/images is a link",
}
PATHS = {
    "a file": "file", "below a file": "file/run", "a link": "link", "a dangling link": "nowhere",
    "a strange folder": "strange", "the current folder": ".", "a line break": "a\nb",
    "an escape sequence": "\x1b[2Ja", "half a letter": "\udc80", "a long name": "a" * 300,
    "a very long path": "a/" * 3000, "a way back": "new/../run", "a way out of the way": "../new/../run",
    "the parent": "..", "a link inside": "holed", "a link among the pictures": "deep",
    "a link instead of pictures": "linked",
}  # fmt: skip


@pytest.fixture
def ground(tmp_path: Path) -> None:
    """Everything that stands in the way of a run."""
    (tmp_path / "file").write_text("x")
    for name in ("strange", "target", "holed", "linked", "deep/images"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "strange/notes.txt").write_text("mine")
    for name, target in {
        "link": "target",
        "nowhere": "gone",
        "holed/journal.jsonl": "../target/stolen",
        "linked/images": "../target",
        "deep/images/x.safetensors": "../../target/stolen",
    }.items():
        (tmp_path / name).symlink_to(target)


@pytest.mark.parametrize("kind", OUT)
@pytest.mark.usefixtures("ground")
def test_a_place_where_nothing_may_be_written(kind: str, refused) -> None:
    refused("audit", *TINY, "--metric", "psnr", "--out", PATHS[kind], naming=OUT[kind])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_closed(tmp_path: Path, refused) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    refused("audit", *TINY, "--metric", "psnr", "--out", "closed/run", naming="closed/run")
    (tmp_path / "dark").mkdir(mode=0o000)
    refused("audit", *TINY, "--data", "dark/x.npz", naming="dark/x.npz")
    refused("audit", *TINY, "--data", "dark/x", naming="dark/x")


def test_a_way_up_at_the_beginning_is_a_path_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["audit", *TINY, "--metric", "psnr", "--out", "../there/run", "--quiet"])
    assert (tmp_path / "there/run/journal.jsonl").is_file()


MODELS = {
    "x = 1 / 0": "ZeroDivisionError",
    "import no_such_thing": "ModuleNotFoundError",
    "raise SystemExit(0)": "SystemExit",
    "def (": "SyntaxError",
    "\x00": "SyntaxError",
    "def build(): return 'a net'": "build() returned str",
    "def build(): return build": "build() returned function",
    "def build(): raise ValueError('two\\nlines' + chr(27) + '[2J')": "ValueError",
    "def build(a, b): pass": "TypeError",
    "build = 5": "build is a int",
    "build = dict": "build() ",
    "import torch\ndef build(): return torch.nn.Linear(1, 1)": "cannot take a picture",
    "import torch\ndef build(): return torch.nn.Flatten()": "expected logits",
    "import sys\ndel sys.modules[__name__]\nraise KeyError('gone')": "KeyError",
    "def build(): return build()": "RecursionError",
    "": "no factory 'build'",
}


@pytest.mark.parametrize(("text", "naming"), MODELS.items(), ids=[text[:30] for text in MODELS])
def test_a_model_file_that_cannot_work(text: str, naming: str, refused) -> None:
    Path("mine.py").write_text(text)
    line = refused("audit", "--data", "digits", "--model", "mine.py:build", naming=naming)
    assert "mine.py" in line
