"""README.md does what it says: its code and its commands run, and it names all there is to choose from."""

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

from gradveil.attacks import ATTACKS
from gradveil.audit.verdict.judge import Word
from gradveil.cli import main
from gradveil.config.effort import spend
from gradveil.config.schema import Budget
from gradveil.data import DATASETS
from gradveil.defenses import DEFENSES
from gradveil.experiment.journal import read
from gradveil.metrics import METRICS
from gradveil.models import MODELS, load_model

PAGE = ROOT / "README.md"
STEPS = 3
TABLES = {"attack": ATTACKS, "defense": DEFENSES, "metric": METRICS, "model": MODELS, "data": DATASETS}


@pytest.fixture
def clinic(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's own pictures, and no time to lose."""
    monkeypatch.setattr("gradveil.config.resolve.spend", spend_little)
    rng = np.random.default_rng(0)
    for number in range(12):
        folder = desk / "folder" / ("benign", "malignant")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 48, 3), np.uint8)).save(folder / f"{number}.png")
    return desk


def spend_little(budget: Budget, factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The budget's choices, with hardly any steps."""
    return {k: STEPS if k == "steps" else v for k, v in spend(budget, factory, options).items()}


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
    for name in ("mine", "from-toml", "from-python"):
        assert (clinic / "runs" / name / "report.html").exists()
        records = read(clinic / "runs" / name / "journal.jsonl")
        assert {r.status for r in records} == {"ok"}
        assert len({r.client for r in records}) == 8
    assert {r.defense for r in read(clinic / "runs/from-toml/journal.jsonl")} == {"none", "noise"}


def train(folder: Path, file: str) -> None:
    """Weights for the reader's model, once it is there."""
    if file == "net.py":
        model = load_model("net.py:make", classes=2, shape=(3, 32, 32))
        save_file(model.state_dict(), folder / "w.safetensors")


def follow(block: Block) -> None:
    for arguments in block.commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(arguments)


@pytest.mark.parametrize("kind", TABLES)
def test_every_row_is_named(kind: str) -> None:
    """The table of each kind has the catalogue's rows, all of them and no others, in its order."""
    table = re.search(rf"^\| {kind} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert table is not None
    assert re.findall(r"^\| `([^`]+)` \|", table[1], re.MULTILINE) == list(TABLES[kind])


PAGES = [PAGE, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_reassures(page: Path) -> None:
    """What was tried and what came out; never the words of an all-clear."""
    assert not re.findall(r"\b(?:un|in)?(?:safe|secure|safely|securely)\b", page.read_text(), re.IGNORECASE)
