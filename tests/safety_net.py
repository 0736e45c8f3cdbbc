"""Eight small runs whose tables and verdicts must not move while the code is only rearranged.

    python tests/safety_net.py make FOLDER      # with the code before: writes what came out
    python tests/safety_net.py compare FOLDER   # with the code after: runs again, names every file that differs

What depends on the machine or the day (provenance, seconds, paths) is left out; the rest is compared byte by byte.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PHOTOS = ["--data", "photos", "--data-option", "size=16"]
CPU = ["--device", "cpu", "--quiet"]
BRIEF = ["--attack", "dlg:steps=12,restarts=1", "--budget", "quick", *CPU]
RUNS = {
    "audit": [
        "audit", *PHOTOS, "--data-option", "count=40", "--images", "2", "--defense", "none", "--defense",
        "prune:ratio=0.5", "--defense", "ats:3-1-7", "--attack", "invertgrad:steps=10", *BRIEF, "--out", "out",
        "--claim", "0.5", "--metric", "psnr", "--metric", "ssim", "--metric", "retrieval", "--metric", "fsim",
    ],
    "audit-capture": ["audit", "--capture", "CAPTURE", *PHOTOS, "--data-option", "count=30", *BRIEF, "--out", "out"],
    "audit-active": [
        "audit", *PHOTOS, "--data-option", "count=40", "--images", "1", "--batch-size", "4", "--attacker", "malicious",
        "--attack", "rtf:neurons=64", "--defense", "none", "--defense", "oasis", "--budget", "quick", *CPU,
        "--out", "out",
    ],
    "audit-fedavg": [
        "audit", *PHOTOS, "--data-option", "count=40", "--images", "1", "--batch-size", "2", "--local-steps", "2",
        "--local-rate", "0.1", "--defense", "none", "--defense",
        'stack:of=[{name="prune",ratio=0.3},{name="gaussian",scale=1e-4}]',
        *BRIEF, "--out", "out",
    ],
    "search": [
        "search", "--data-option", "count=64", "--data-option", "size=16", "--candidates", "8", "--top", "3",
        "--images", "8", "--rounds", "1", "--semi-epochs", "1", "--threshold", "100%", "--confirm", "4",
        "--confirm-steps", "6", "--confirm-images", "2", "--workers", "0", *CPU, "--folder", "out",
        "--out", "policy.json",
    ],
    "train": [
        "train", "--data-option", "limit=64", "--rounds", "4", "--clients", "4", "--batch-size", "8", "--defense",
        "dpsgd:clip=1,noise=0.1", "--device", "cpu", "--json", "--out", "out",
    ],
    "tradeoff": [
        "tradeoff", "--data-option", "count=60", "--data-option", "size=8", "--model", "mlp", "--rounds", "2",
        "--clients", "4", "--per-round", "2", "--split", "iid", "--rate", "0.1", "--seeds", "1", "--images", "2",
        "--stage", "1", "--attack", "linear", "--noise", "0.1", "--random-policies", "0", "--defense",
        "prune:ratio=0.5", "--match", "0", "--workers", "0", *CPU, "--out", "out",
    ],
    "protect": [
        "protect", "photos", "--data-option", "count=12", "--data-option", "size=16", "--defense",
        "loda:extractor=lenet:untrained,layers=all,c=1,steps=4", *CPU, "--out", "out",
    ],
}  # fmt: skip
LEFT_OUT = {"provenance", "seconds", "started", "finished", "command", "folder", "out", "versions", "made", "when"}
MAKE_CAPTURE = """
import sys
from gradveil.capture import save, simulate
save(sys.argv[1], simulate(options={"size": 16}, labels=True))
"""


def timeless(value: Any) -> Any:
    """Without what depends on the machine or the day."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def results(folder: Path, printed: str) -> dict[str, str]:
    """What a run says: its JSON files, its table where it has records, and the bytes of an archive."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.json")):
        if path.name not in ("provenance.json", "seal.json"):
            content = json.dumps(timeless(json.loads(path.read_text())), indent=1)
            found[path.name] = content.replace(str(folder), "FOLDER")
    for path in sorted(folder.rglob("*.npz")):
        found[f"{path.name}.sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    if printed.startswith("{"):
        found["printed.json"] = json.dumps(timeless(json.loads(printed)), indent=1).replace(str(folder), "FOLDER")
    journal = folder / "out" / "journal.jsonl"
    if journal.exists():
        found["table.csv"] = run("table", str(folder / "out"), cwd=folder)
    return found


def run(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cwd / "cache")}
    command = [sys.executable, "-m", "gradveil", *arguments]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def outcome(name: str, capture: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as place:
        arguments = [str(capture) if part == "CAPTURE" else part for part in RUNS[name]]
        return results(Path(place), run(*arguments, cwd=Path(place)))


def make(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    capture = (folder / "c.safetensors").resolve()
    if not capture.exists():
        subprocess.run([sys.executable, "-c", MAKE_CAPTURE, str(capture)], check=True)
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        for file, content in outcome(name, capture).items():
            (folder / name / file).write_text(content)
        print(f"{name}: {len(list((folder / name).iterdir()))} files", flush=True)


def compare(folder: Path, names: list[str]) -> int:
    differing = 0
    for name in names:
        there = {path.name: path.read_text() for path in (folder / name).iterdir()}
        here = outcome(name, (folder / "c.safetensors").resolve())
        for file in sorted({*there, *here}):
            if there.get(file) != here.get(file):
                differing += 1
                print(f"{name}/{file} differs")
                lines = difflib.unified_diff(there.get(file, "").splitlines(), here.get(file, "").splitlines(), n=0)
                print("\n".join(f"    {line[:200]}" for line in list(lines)[:20]))
        print(f"{name}: compared", flush=True)
    return differing


if __name__ == "__main__":
    action, place, *chosen = sys.argv[1:]
    if action == "make":
        make(Path(place), chosen or list(RUNS))
    else:
        sys.exit(bool(compare(Path(place), chosen or list(RUNS))))
