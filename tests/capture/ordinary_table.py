"""What became of every ordinary round: replayed as it was declared, and diagnosed where it was declared wrongly.

`python tests/capture/ordinary_table.py` writes the table into docs/captures.md; `test_ordinary_rounds.py` holds it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordinary_client_networks import CLASSES
from ordinary_clients import PICTURES, SIDE
from ordinary_rounds import ROUNDS, Round, describe, misdeclare, network_of
from PIL import Image

from gradveil.capture import Capture
from gradveil.capture.replay import Replay, compare
from gradveil.capture.truth import find
from gradveil.config.captured_audit import model_as_sent
from gradveil.config.load import from_tables
from gradveil.config.schema import AuditConfig
from gradveil.core.local_training import LocalTraining
from gradveil.data import load
from gradveil.doctor.diagnose import CAPTURED, diagnose_config

PAGE = Path(__file__).resolve().parents[2] / "docs/captures.md"
BEGIN, END = "<!-- ordinary rounds: begin -->\n", "<!-- ordinary rounds: end -->\n"
SECONDS = 60.0  # of a diagnosis, so that a slow machine comes to the same table
HEAD = ("", "model", "optimizer", "order", "dropout", "normalization", "resize", "BatchNorm", "augmentation", "else",
        "replay", "declared wrongly", "error before", "named first", "error after", "right")  # fmt: skip


def write_pictures(root: Path) -> Path:
    """A folder of small photographs that are no squares, six of each class."""
    data = load("photos", size=32, count=48)
    for place, (picture, target) in enumerate(zip(data.images, data.targets, strict=True)):
        folder = root / data.class_names[int(target.argmax())]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (255 * picture[:, 2:30]).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"{place // CLASSES:02}.png")
    return root


def capture_of(one: Round, says: Mapping[str, Any], root: Path, file: Path) -> AuditConfig:
    """What the server saw of the client, with what is said of it, in a file; and the settings that go with it."""
    model, sent, statistics = one.client.run(root)
    training = LocalTraining(**says["training"])
    statistics = statistics if training.batchnorm == "batch-shared" else {}
    Capture(
        weights=model.state_dict(), updates={"client": sent}, statistics={"client": statistics} if statistics else {},
        round=0, training=training, examples={"client": PICTURES}, shape=(3, SIDE, SIDE), classes=CLASSES,
        normalization=None,
    ).save(file)  # fmt: skip
    networks = Path(__file__).with_name("ordinary_client_networks.py")
    scenario = {"capture": str(file), "data": str(root), "data_options": says["data"],
                "model": f"{networks}:{network_of(one)}", "normalize": says["normalize"]}  # fmt: skip
    return from_tables({"scenario": scenario})


def replay_round(one: Round, root: Path, file: Path) -> Replay:
    """Declared as it was."""
    config = capture_of(one, one.says, root, file)
    capture = Capture.load(file)
    model = model_as_sent(capture, config)
    found = find(capture, model, {PICTURES: ("client",)}, load(str(root), **one.says["data"]))
    return compare(capture, model, "client", found.batches["client"], decoys=found.decoys)


class Diagnosed(NamedTuple):
    named: str  # first, in words; nothing if all seemed well
    before: str
    after: str

    def names(self, one: Round) -> bool:
        return one.cause in self.named.partition(", and ")[0]


def diagnose_round(one: Round, root: Path, file: Path) -> Diagnosed:
    """Declared wrongly."""
    found = diagnose_config(capture_of(one, misdeclare(one), root, file), {}, SECONDS, CAPTURED).findings
    what = next((one.what for one in found if (one.topic, one.level) == ("replay", "problem")), "")
    first, _, rest = what.partition(". ")
    named, _, left = rest.partition(": ")[2].rpartition(" (")
    before = first.partition("relative error ")[2].partition(";")[0]
    after = left.partition("relative error ")[2].partition(" is left")[0] or ("draws" if named else "-")
    return Diagnosed(named, before or "-", after)


def tabulate(rounds: Sequence[Round], root: Path) -> list[tuple[str, ...]]:
    rows = []
    for number, one in enumerate(rounds, 1):
        played = replay_round(one, root, root.parent / "right.safetensors")
        found = diagnose_round(one, root, root.parent / "wrong.safetensors")
        replayed = f"{played.error:.0e}" if played.status == "reproduced" else played.status
        wrong = ", ".join(f"{key} {'left out' if value is None else value}" for key, value in one.wrong.items())
        right = "yes" if found.names(one) else "**no**"
        named = found.named or "nothing"
        rows.append((str(number), *describe(one), replayed, wrong, found.before, named, found.after, right))
        print(" | ".join(rows[-1]), file=sys.stderr)
    return rows


def render(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join("| " + " | ".join(row) + " |\n" for row in lines)


def read_table() -> list[tuple[str, ...]]:
    """The rows on the page."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines()[2:]]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = tabulate(ROUNDS, write_pictures(Path(folder) / "pictures"))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + render(rows) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
