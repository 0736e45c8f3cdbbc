"""README.md does what it says: its code and its commands run. It is short; links of all pages lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from blocks import ROOT, Block, blocks, execute
from PIL import Image
from safetensors.torch import save_file

from gradveil.audit.verdict.judge import Word
from gradveil.cli import main
from gradveil.config.effort import apply_effort
from gradveil.config.schema import Effort
from gradveil.experiment.journal import read
from gradveil.models import load_model

PAGE = ROOT / "README.md"
STEPS = 3


@pytest.fixture
def clinic(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's own pictures, and no time to lose."""
    monkeypatch.setattr("gradveil.config.resolve.apply_effort", spend_little)
    rng = np.random.default_rng(0)
    for number in range(12):
        folder = desk / "folder" / ("benign", "malignant")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 48, 3), np.uint8)).save(folder / f"{number}.png")
    return desk


def spend_little(budget: Effort, factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The budget's choices, with hardly any steps."""
    return {k: STEPS if k == "steps" else v for k, v in apply_effort(budget, factory, options).items()}


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # torch's own, on its first jvp
def test_the_page_from_start_to_finish(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.file:
            (clinic / block.file).write_text(block.text)
            train(clinic, block.file)
        elif block.language == "python":
            execute(block, PAGE, session)
        follow(block)
    assert capsys.readouterr().out.splitlines()[-1] in get_args(Word)
    for name in ("mine", "from-python"):
        assert (clinic / "runs" / name / "report.html").exists()
        records = read(clinic / "runs" / name / "journal.jsonl")
        assert {r.status for r in records} == {"ok"}
        assert len({r.client for r in records}) == 8


def train(folder: Path, file: str) -> None:
    """Weights for the reader's model, once it is there."""
    if file == "net.py":
        model = load_model("net.py:make", classes=2, shape=(3, 32, 32))
        save_file(model.state_dict(), folder / "w.safetensors")


def follow(block: Block) -> None:
    for arguments in block.commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(arguments)


def test_it_is_short() -> None:
    assert 600 <= len(PAGE.read_text().split()) <= 900


PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(path for folder in ("docs", "papers") for path in (ROOT / folder).rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_reassures(page: Path) -> None:
    """What was tried and what came out; never the words of an all-clear."""
    assert not re.findall(r"\b(?:un|in)?(?:safe|secure|safely|securely)\b", page.read_text(), re.IGNORECASE)
