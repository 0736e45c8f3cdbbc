"""`gradveil check-model`: exit codes, words and JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import save_file

from gradveil.cli import main
from gradveil.inspection import against_reference as reference
from gradveil.inspection import bias_ladder as ladder
from gradveil.inspection import dominance as dominated
from gradveil.inspection import front_layer as front
from gradveil.inspection import half_negative as half
from gradveil.inspection import one_scalar as scalar
from gradveil.inspection import proportional_rows as rows
from gradveil.inspection import single_sample as single
from gradveil.models import MODELS

PLANTED = """
import torch
from torch import nn


def make(classes, shape):
    pixels = shape[0] * shape[1] * shape[2]
    layer = nn.Linear(pixels, 64)
    layer.weight.data[:] = 1 / pixels
    layer.bias.data = -torch.linspace(0, 1, 64)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(64, classes))
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["check-model", *arguments])
    printed = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, printed.out, printed.err


@pytest.fixture
def planted(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(PLANTED)
    return f"{tmp_path / 'net.py'}:make"


def test_nothing_found_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "lenet", "--shape", "1x28x20")
    assert code == 0
    assert out.startswith("nothing found by these checks\n")
    assert "no pictures were given" in out


def test_found_exits_with_3_and_says_where(planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, planted, "--shape", "1x12x9")
    assert code == 3
    assert out.startswith("planted structure found: proportional rows (1.weight), bias ladder (1.weight)\n")


def test_json_has_every_statistic(planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, planted, "--data", "digits", "--data-option", "size=12", "--json")
    report = json.loads(out)
    assert code == 3
    assert report["planted"] is True
    assert {m["check"] for m in report["findings"]} >= {"proportional rows", "bias ladder", "one scalar"}
    assert all({"check", "layer", "statistic", "threshold", "found", "sentence"} <= set(m) for m in report["checked"])
    assert [m for m in report["checked"] if m["found"]] == report["findings"]


@pytest.mark.parametrize("constants", [{}, {"mean": (0.5,), "std": (0.2,)}])
def test_weights_and_a_reference_file(
    constants: dict[str, tuple[float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With or without normalization constants in the file; the reference is the round before."""
    model = MODELS["mlp"](classes=4, shape=(1, 10, 8), **constants)
    save_file(model.state_dict(), tmp_path / "before.safetensors")
    model.get_submodule("fc2").reset_parameters()  # type: ignore[operator]
    save_file(model.state_dict(), tmp_path / "now.safetensors")
    about = ("mlp", "--weights", str(tmp_path / "now.safetensors"), "--classes", "4", "--shape", "1x10x8")
    assert run(capsys, *about)[0] == 0
    code, out, _ = run(capsys, *about, "--reference", str(tmp_path / "before.safetensors"))
    assert code == 3
    assert out.startswith("planted structure found: rows unlike the reference's (fc2.weight)\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("lenett",), "MODEL: unknown name 'lenett', did you mean 'lenet'?"),
        (("lenet", "--shape", "32x32"), "--shape: must be channels x height x width"),
        (("lenet", "--shape", "0x32x32"), "got '0x32x32'"),
        (("lenet", "--weights", "none.safetensors"), "none.safetensors: no such file"),
        (("lenet", "--reference", "none.safetensors"), "none.safetensors: no such file"),
        (("lenet", "--data", "pictures"), "data: unknown name 'pictures'"),
        (("none.py:make",), "none.py: no such file"),
    ],
)
def test_bad_input_exits_with_2(arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_the_page_runs_and_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs/check-model.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(block, "docs/check-model.md", "exec"), {})
    named = re.findall(r"^\| ([a-z' -]+) \|", page, re.MULTILINE)
    assert {front.CHECK, ladder.CHECK, half.CHECK, rows.CHECK, reference.ADDED, reference.CHANGED} <= set(named)
    assert {single.CHECK, dominated.CHECK, scalar.CHECK} <= set(named)
