"""Runs as an audit would leave them: a folder made of random pictures, and runs in memory with any outcome."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from plans import plan_of, with_doubled
from safetensors.numpy import save_file

from gradveil.audit.plan import attack_seed
from gradveil.audit.results import Run
from gradveil.core.seeds import Seed
from gradveil.experiment.journal import encode
from gradveil.experiment.record import Record

HOSTILE = "<script>alert(1)</script>"
HOSTILE_DEFENSE = "<img src=x onerror=alert(2)>"
CONFIG = f"""
seed = 7
metrics = ["psnr", "ssim", "lpips", "retrieval"]

[scenario]
model = "resnet20"
weights = ""
data = "photos"
images = 8
batch_size = 1
local_steps = 1
local_rate = 1.0
batchnorm = "eval"
loss = "cross-entropy"
labels = "known"
attacker = "curious"

[defense.none]
name = "none"

[defense.oasis]
name = "oasis"
turns = [1, 2, 3]

[defense."{HOSTILE_DEFENSE}"]
name = "gaussian"
scale = 0.01

[attack.invertgrad]
name = "invertgrad"
steps = 4800
"""
SCENE = {
    "role": "audited",
    "regime": "diagnostic",
    "trained": False,
    "name": "scene",
    "images": 8,
    "batch_size": 1,
    "local_steps": 1,
    "labels": "known",
    "batchnorm": "eval",
}
PROVENANCE = {
    "gradveil": "0.1.0",
    "torch": "2.13.0+cpu",
    "device": "cpu: x86_64",
    "command": "gradveil audit /home/someone/audit.toml",
    "versions": {"numpy": "2.4.6", "note": HOSTILE},
    "class_names": ["hidden-class-name"],
    "model_sha256": "9f" * 32,
    "started": "2026-11-16T05:41:00+00:00",
    "finished": "2026-11-16T06:02:11+00:00",
    "gallery": 999,
    "scenarios": {"scene": SCENE},
    "declared": ["scenario.batch_size", "attack"],
}
CELLS = (  # defense, attacker, control, noise that the attack leaves, whether the model was fed something else
    ("none", "unaware", "", 0.06, False),
    ("oasis", "unaware", "", 0.25, True),
    (HOSTILE_DEFENSE, "adaptive", "", 0.45, False),
    ("none", "unaware", "prior", 2.0, False),
    ("none", "unaware", "random", 2.0, False),
    ("none", "unaware", "doubled", 0.06, False),
)
AUDITED = 3  # of the cells above
BLANK = 9.0


def smooth(rng: np.random.Generator, count: int, side: int = 32) -> np.ndarray:
    """Random pictures with shapes in them: coarse noise, enlarged."""
    coarse = rng.random((count, 3, side // 4, side // 4), dtype=np.float32)
    return coarse.repeat(4, axis=2).repeat(4, axis=3)


def psnr(got: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(((got - truth) ** 2).mean()))


def write_run(folder: Path, clients: int = 8) -> Path:
    """Three audited cells and their controls; in the first cell the last client's trial has failed."""
    (folder / "images").mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    rng = np.random.default_rng(3)
    original = smooth(rng, clients)
    lines = [line for cell in range(len(CELLS)) for line in cell_lines(folder, rng, original, cell)]
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
    (folder / "seal.json.part").touch()  # not sealed yet
    return folder


def of_run(record: Record, seed: int = 7) -> Record:
    """With the number that a trial of its names has in a run of this seed."""
    own = attack_seed(Seed(seed), record.scenario, record.defense, record.attack).at(record.client)
    return replace(record, seed=own.number())


def cell_lines(folder: Path, rng: np.random.Generator, original: np.ndarray, cell: int) -> list[bytes]:
    defense, attacker, control, noise, fed_differs = CELLS[cell]
    fed = np.rot90(original, axes=(2, 3)).copy() if fed_differs else original
    spread = noise * np.linspace(0.3, 1.6, len(original), dtype=np.float32).reshape(-1, 1, 1, 1)
    got = (original + spread * rng.standard_normal(original.shape, dtype=np.float32)).clip(0, 1)
    save_file({"original": original, "fed": fed, "reconstructed": got}, folder / "images" / f"cell-{cell}.safetensors")
    lines = []
    for example in range(len(original)):
        client = HOSTILE if example == 0 else f"ward-{example}"
        failed = cell == 0 and example == len(original) - 1
        level = psnr(got[example], original[example])
        as_fed = psnr(got[example], fed[example])
        scores = {"psnr": level, "ssim": min(level / 30, 1), "lpips": 1 / level, "retrieval": float(level > 12)}
        scores |= {"psnr_fed": as_fed, "ssim_fed": min(as_fed / 30, 1), "lpips_fed": 1 / as_fed}
        record = Record(
            key=f"scene/{defense}/invertgrad/{control or attacker}/{client}/{example}",
            status="failed" if failed else "ok",
            scenario="scene",
            defense=defense,
            attack="invertgrad",
            attacker=attacker,  # type: ignore[arg-type]
            control=control,  # type: ignore[arg-type]
            client=client,
            example=example,
            seed=0,
            seconds=1.25,
            backend="vmap",
            scores={} if failed else scores | {"retrieval_fed": float(as_fed > 12)},
            loss=noise,
            blank=BLANK,
            flags=("non-finite",) if failed else ("not-better-than-blank",) if level < BLANK else (),
            notes=("sweep cannot run layer <b>pool</b>",) if cell == 1 else (),
            reason=f"loss of {client} is not finite at step 12, see /home/someone/log" if failed else "",
            images=f"cell-{cell}",
        )
        lines.append(encode(of_run(record)))
    return lines


def trial(client: str, level: float | None, **fields: Any) -> Record:
    """One record; no level: it failed. `hit` says whether the picture was identified, None that nobody looked."""
    hit = fields.pop("hit", 0.0)
    scores = {"psnr": level} | ({} if hit is None else {"retrieval": hit})
    plain = {
        "status": "failed" if level is None else "ok",
        "scenario": "s",
        "defense": "none",
        "attack": "a",
        "attacker": "unaware",
        "example": 0,
        "seed": 0,
        "seconds": 2.0,
        "backend": "loop",
        "blank": 10.0,
        "explained": {"reconstruction": 0.9, "truth": 1.0},
        "scores": {} if level is None else scores,
    }
    report = plain | fields
    kind = report.get("control") or report["attacker"]
    place = [report["scenario"], report["defense"], report["attack"], kind, client, str(report["example"])]
    key = "/".join(place)
    return Record(key=key, client=client, **report)


def run_of(*records: Record, **rest: Any) -> Run:
    """A run that was to do what it has done, unless its plan is given."""
    rest["provenance"] = {"plan": plan_of(records)} | rest.get("provenance", {})
    return Run(folder=Path("nowhere"), name="r", records=records, **rest)


def random_run(seed: int, clients: int = 6) -> Run:
    """Any outcome: leaks or none, failures, controls or none, one or two regimes, missing trials, missing settings."""
    rng = np.random.default_rng(seed)
    scenes, outcome = dict(_scenes(rng)), Outcome.drawn(rng)
    records = [record for name, about in scenes.items() for record in _trials(rng, name, about, outcome, clients)]
    records, plan = with_doubled(records), plan_of(records)
    records = records[: len(records) - (3 if rng.random() < 1 / 3 else 0)]
    provenance: dict[str, Any] = {"scenarios": scenes, "plan": plan}
    provenance |= {"gallery": int(rng.choice([0, 99, 2000])), "started": "2026-11-16T05:41:00+00:00"}
    config = {"seed": seed, "scenario": SCENE, "attack": {"a": {"name": "dlg", "steps": 5}, "b": {"name": "other"}}}
    return run_of(*records, config=config if rng.random() < 0.8 else {}, provenance=provenance)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What becomes of a run."""

    level: float  # dB with a defense
    undefended: float
    failing: float
    measured: bool
    adaptive: bool
    controls: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Outcome":
        return cls(
            level=float(rng.choice([5, 5, 30])),
            undefended=float(rng.choice([5, 30, 30, 30])),
            failing=float(rng.choice([0, 0, 0.3])),
            measured=bool(rng.random() < 0.9),
            adaptive=bool(rng.random() < 0.7),
            controls=int(rng.integers(0, 5)),
        )


def _scenes(rng: np.random.Generator) -> Iterator[tuple[str, dict[str, Any]]]:
    batch = int(rng.choice([1, 4]))
    regime = "diagnostic" if batch == 1 else "deployment"
    yield "s", SCENE | {"name": "s", "batch_size": batch, "regime": regime}
    if rng.random() < 0.5:
        changed = {"role": "variation", "labels": "inferred", "regime": "deployment"}
        yield "s-labels", SCENE | {"name": "s-labels"} | changed
    if batch > 1:
        yield "s-diagnostic", SCENE | {"name": "s-diagnostic", "role": "control"}


def _trials(
    rng: np.random.Generator, scene: str, about: dict[str, Any], outcome: Outcome, clients: int
) -> Iterator[Record]:
    for defense in ("none",) if about["role"] == "control" else ("none", "gaussian", "odd"):
        level = outcome.undefended if defense == "none" else outcome.level
        kinds = ("unaware", "adaptive") if defense != "none" and outcome.adaptive else ("unaware",)
        for attack, attacker, client in product(("a", "b"), kinds, range(clients)):
            got = None if rng.random() < outcome.failing else float(level + rng.normal())
            hit = float(got is not None and got > 11) if outcome.measured else None
            report = {"scenario": scene, "defense": defense, "attack": attack, "attacker": attacker, "hit": hit}
            yield trial(f"c{client}", got, reason="" if got else "dead", **report)
    for control, client in product(["prior", "random", "another", "doubled"][: outcome.controls], range(clients)):
        yield trial(f"c{client}", float(8 + rng.normal()), scenario=scene, control=control, loss=1.0)
