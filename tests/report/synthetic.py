"""A run's folder as an audit would leave it, made of random pictures."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from gradveil.journal import encode
from gradveil.record import Record

HOSTILE = "<script>alert(1)</script>"
CONFIG = """
seed = 7
metrics = ["psnr", "ssim", "retrieval"]

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

[defense."<img src=x onerror=alert(2)>"]
name = "gaussian"
scale = 0.01

[attack.invertgrad]
name = "invertgrad"
steps = 4800
"""
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
}
CELLS = (  # defense, attacker, noise that the attack leaves, whether the model was fed something else
    ("none", "unaware", 0.06, False),
    ("oasis", "unaware", 0.25, True),
    ("<img src=x onerror=alert(2)>", "adaptive", 0.45, False),
)


def smooth(rng: np.random.Generator, count: int, side: int = 32) -> np.ndarray:
    """Random pictures with shapes in them: coarse noise, enlarged."""
    coarse = rng.random((count, 3, side // 4, side // 4), dtype=np.float32)
    return coarse.repeat(4, axis=2).repeat(4, axis=3)


def psnr(got: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(((got - truth) ** 2).mean()))


def write_run(folder: Path, clients: int = 8) -> Path:
    """Three cells; in the first the last client's trial has failed."""
    (folder / "images").mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    rng = np.random.default_rng(3)
    original = smooth(rng, clients)
    lines = [line for cell in range(len(CELLS)) for line in cell_lines(folder, rng, original, cell)]
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
    return folder


def cell_lines(folder: Path, rng: np.random.Generator, original: np.ndarray, cell: int) -> list[bytes]:
    defense, attacker, noise, fed_differs = CELLS[cell]
    fed = np.rot90(original, axes=(2, 3)).copy() if fed_differs else original
    spread = noise * np.linspace(0.3, 1.6, len(original), dtype=np.float32).reshape(-1, 1, 1, 1)
    got = (original + spread * rng.standard_normal(original.shape, dtype=np.float32)).clip(0, 1)
    save_file({"original": original, "fed": fed, "reconstructed": got}, folder / "images" / f"cell-{cell}.safetensors")
    lines = []
    for example in range(len(original)):
        client = HOSTILE if example == 0 else f"ward-{example}"
        failed = cell == 0 and example == len(original) - 1
        level = psnr(got[example], original[example])
        scores = {"psnr": level, "psnr_fed": psnr(got[example], fed[example]), "ssim": min(level / 30, 1)}
        record = Record(
            key=f"scene/{defense}/invertgrad/{attacker}/{client}/{example}",
            status="failed" if failed else "ok",
            scenario="scene",
            defense=defense,
            attack="invertgrad",
            attacker=attacker,  # type: ignore[arg-type]
            client=client,
            example=example,
            seed=7,
            seconds=1.25,
            backend="vmap",
            scores={} if failed else scores | {"retrieval": float(level > 12)},
            flags=("non-finite",) if failed else ("not-better-than-blank",) if level < 9 else (),
            notes=("sweep cannot run layer <b>pool</b>",) if cell == 1 else (),
            reason=f"loss of {client} is not finite at step 12, see /home/someone/log" if failed else "",
            images=f"cell-{cell}",
        )
        lines.append(encode(record))
    return lines
