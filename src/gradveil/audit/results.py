"""A run's folder, read back."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gradveil.audit.plan import attack_seed
from gradveil.audit.update_match import MATCH
from gradveil.core.errors import ConfigError
from gradveil.core.metric import FED, Facts
from gradveil.core.seeds import Seed
from gradveil.experiment import journal
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS, facts_of

KINDS = ("original", "fed", "reconstructed")


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """One private picture, as it was fed to the model, and as the attack rebuilt it: each channel x height x width.

    Of a captured round without the originals there is the last alone.
    """

    original: np.ndarray | None
    fed: np.ndarray | None
    reconstructed: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that a report is made of."""

    folder: Path
    name: str
    records: tuple[Record, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    redacted: bool = False

    @property
    def scenario(self) -> Mapping[str, Any]:
        found = self.config.get("scenario", {})
        return found if isinstance(found, Mapping) else {}

    @property
    def scenarios(self) -> Mapping[str, Mapping[str, Any]]:
        """Every scenario by name, with its role (audited, variation, control) and regime; none in an older run."""
        found = self.provenance.get("scenarios", {})
        return found if isinstance(found, Mapping) else {}

    @property
    def plan(self) -> Mapping[str, Any]:
        """What a finished run must hold, as `gradveil.audit.schedule.planned` makes it; nothing in an older run."""
        found = self.provenance.get("plan", {})
        return found if isinstance(found, Mapping) else {}

    def clients(self, scenario: str) -> Sequence[str]:
        """The clients of a scenario in their order, as planned."""
        return self.plan.get("clients", {}).get(scenario, ())

    @property
    def captured(self) -> Mapping[str, Any]:
        """Of a run on what real clients sent: where that comes from, what struck, and what a replay gave."""
        found = self.provenance.get("capture", {})
        return found if isinstance(found, Mapping) else {}

    def choices(self, kind: str) -> Mapping[str, Any]:
        """The configured defenses or attacks by label."""
        found = self.config.get(kind, {})
        return found if isinstance(found, Mapping) else {}

    @property
    def gallery(self) -> int | None:
        """Pictures that a reconstruction was compared with, the original included."""
        size = self.provenance.get("gallery")
        return size + 1 if isinstance(size, int) and size > 0 else None

    def facts(self, score: str) -> Facts:
        """How to read a score: as the catalogue says, else as the folder does, else as of an unknown metric."""
        name = score.removesuffix(FED)
        if name == MATCH.name:
            return MATCH
        stated = self.provenance.get("metrics")
        own = stated.get(name) if isinstance(stated, Mapping) else None
        return Facts.from_json(name, own) if own is not None and name not in METRICS else facts_of(name)

    def update_bytes(self, scenario: str, defense: str) -> int | None:
        """What a client sends; None in an older run."""
        sizes = self.provenance.get("update_bytes")
        of_scenario = sizes.get(scenario) if isinstance(sizes, Mapping) else None
        found = of_scenario.get(defense) if isinstance(of_scenario, Mapping) else None
        return found if isinstance(found, int) else None

    def privacy(self, scenario: str, defense: str) -> Mapping[str, str]:
        """What the noise of the audited round is worth; nothing where it cannot be accounted for."""
        table = self.provenance.get("privacy")
        of_scenario = table.get(scenario) if isinstance(table, Mapping) else None
        found = of_scenario.get(defense) if isinstance(of_scenario, Mapping) else None
        return found if isinstance(found, Mapping) and {"said", "of"} <= found.keys() else {}

    def undefended(self, defense: str) -> bool:
        choice = self.choices("defense").get(defense, {})
        return (choice.get("name", defense) if isinstance(choice, Mapping) else defense) == "none"

    def pictures(self, record: Record) -> Pictures | None:
        """The pictures of a scored trial; None if the run kept none or the report must not show them."""
        if self.redacted or record.status != "ok" or not record.images:
            return None
        path = _below(self.folder / "images", record.images)
        return _load(path, record.example) if path.is_file() else None


def read_run(folder: Path) -> Run:
    """The journal is the truth and must be there; settings and provenance are shown if they are."""
    records = journal.read(folder / "journal.jsonl")
    provenance = _read_mapping(folder / "provenance.json", json.loads)
    if not records and "piece" not in provenance:  # in too short a time nothing is finished
        raise ConfigError(f"{folder}: no finished trial in journal.jsonl, give the folder of a run")
    config = _read_mapping(folder / "config.toml", tomllib.loads)
    _check_origin(records, config.get("seed"), folder)
    return Run(
        folder=folder,
        name=folder.resolve().name,
        records=tuple(_validate_scores(record, folder) for record in records),
        config=config,
        provenance=_check_provenance(provenance, folder / "provenance.json"),
    )


def _check_origin(records: Sequence[Record], seed: Any, folder: Path) -> None:
    """Every trial draws from the seed of its run: lines of another run, or under other names, are not this one's."""
    if not isinstance(seed, int):
        return
    for record in records:
        own = attack_seed(Seed(seed), record.scenario, record.defense, record.attack).at(record.client).number()
        if record.seed != own:
            where = f"{folder / 'journal.jsonl'}: {record.key}"
            raise ConfigError(f"{where}: is not a trial of this run, whose `seed` is {seed}, restore the file")


def _check_provenance(provenance: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """What a verdict computes with is of its type."""
    scenarios = provenance.get("scenarios", {})
    numbers = [provenance[key] for key in ("trials", "gallery") if provenance.get(key) is not None]
    sound = isinstance(scenarios, Mapping) and all(isinstance(about, Mapping) for about in scenarios.values())
    sound = sound and _is_plan(provenance.get("plan", {}))
    if not sound or not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ConfigError(f"{path}: scenarios, plan, trials or gallery are not what a run writes, restore the file")
    return provenance


def _is_plan(plan: Any) -> bool:
    """Clients by scenario; of each cell four names and a number."""
    if not isinstance(plan, Mapping):
        return False
    clients, cells = plan.get("clients", {}), plan.get("cells", [])
    listed = isinstance(clients, Mapping) and all(isinstance(names, list) for names in clients.values())
    return listed and isinstance(cells, list) and all(_is_cell(cell) for cell in cells)


def _is_cell(cell: Any) -> bool:
    if not (isinstance(cell, list) and len(cell) == 5):
        return False
    return all(isinstance(name, str) for name in cell[:4]) and isinstance(cell[4], int) and cell[4] >= 0


def _validate_scores(record: Record, folder: Path) -> Record:
    """A failed trial has no score, and a trial without a finite score has failed."""
    finite = {name: float(value) for name, value in record.scores.items() if math.isfinite(value)}
    for name, value in finite.items():
        if not 0 <= value <= 1 and facts_of(name.removesuffix(FED)).kind == "rate":
            where = f"{folder / 'journal.jsonl'}: {record.key}"
            raise ConfigError(f"{where}: {name} must be between 0 and 1, got {value:g}, restore the file")
        if value < 1 and facts_of(name.removesuffix(FED)).kind == "rank":
            where = f"{folder / 'journal.jsonl'}: {record.key}"
            raise ConfigError(f"{where}: {name} must be 1 or more, got {value:g}, restore the file")
    if record.status == "ok" and (finite or record.ranks):  # a line-up has ranks and no score
        return replace(record, scores=finite)
    return replace(record, status="failed", scores={}, reason=record.reason or "no finite score")


def _read_mapping(path: Path, parse: Any) -> Mapping[str, Any]:
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read, {error}, restore the file") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected a table of keys, got {type(found).__name__}, restore the file")
    return found


def _below(folder: Path, name: str) -> Path:
    path = folder / (name if name.endswith(".safetensors") else f"{name}.safetensors")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{folder.parent / 'journal.jsonl'}: images: {name!r} leaves the folder, restore the file")
    return path


def _load(path: Path, example: int) -> Pictures:
    """Only the pictures asked for are read."""
    try:
        with safe_open(path, framework="np") as file:
            kinds = KINDS if "original" in file.keys() else KINDS[-1:]  # noqa: SIM118, no mapping
            stored = {kind: file.get_slice(kind) for kind in kinds}
            if "fed" in stored and stored["fed"].get_shape() != stored["original"].get_shape():
                stored["fed"] = stored["original"]  # a defense that enlarges the batch: no one picture is "as fed"
            found = {kind: part[example].astype(np.float32) for kind, part in stored.items()}
    except (SafetensorError, IndexError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as pictures, {error}, restore or remove the file") from error
    return Pictures(original=found.get("original"), fed=found.get("fed"), reconstructed=found["reconstructed"])
