"""Options of the command line as the library wants them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any

from gradveil.config.load import from_tables, read_tables, require_attacker
from gradveil.config.schema import AuditConfig
from gradveil.core.check import LONGEST_TEXT, check, show
from gradveil.core.choice import parse_choices, parse_pairs, parse_value
from gradveil.core.compute import Backend, Compute, Precision, pick_device
from gradveil.core.errors import ConfigError, unknown
from gradveil.experiment.parallel.pool import Pool

MOST_WORKERS = 256
SCENARIO = {  # option -> key of [scenario]
    "--model": "model",
    "--weights": "weights",
    "--normalize": "normalize",
    "--data": "data",
    "--capture": "capture",
    "--images": "images",
    "--draw": "draw",
    "--canaries": "canaries",
    "--batch-size": "batch_size",
    "--local-steps": "local_steps",
    "--local-rate": "local_rate",
    "--epochs": "epochs",
    "--local-batch-size": "local_batch_size",
    "--order": "order",
    "--optimizer": "optimizer",
    "--momentum": "momentum",
    "--nesterov": "nesterov",
    "--weight-decay": "weight_decay",
    "--schedule": "schedule",
    "--warmup": "warmup",
    "--clip-gradients": "clip_gradients",
    "--loss": "loss",
    "--label-smoothing": "label_smoothing",
    "--dropout": "dropout",
    "--augment": "augment",
    "--update-precision": "update_precision",
    "--rounds": "rounds",
    "--labels": "labels",
    "--bn": "batchnorm",
    "--attacker": "attacker",
}
TOP = {
    "--seed": "seed",
    "--budget": "budget",
    "--lpips-weights": "lpips_weights",
    "--lpips-vgg-weights": "lpips_vgg_weights",
    "--tagger": "tagger",
    "--gallery": "gallery",
    "--lineup": "lineup",
    "--limit-named": "limit_named",
    "--convergence": "convergence",
    "--tuned-on": "tuned_on",
    "--seconds": "seconds",
}


@dataclass
class Sources:
    """Who gave which key, so that an error names the option or the file and not us."""

    file: Path | None
    options: dict[str, str] = field(default_factory=dict)  # key -> option
    capture: str = ""  # which says the model and the defense that nobody else names

    def where(self, key: str) -> str:
        """`--defense: gaussian.scale` for what an option gave, `audit.toml: seed` for the rest."""
        for known, option in self.options.items():
            if key == known or key.startswith(f"{known}."):
                rest = key[len(known) + 1 :]
                return f"{option}: {rest}" if rest else option
        if self.capture and key.startswith(("scenario.model", "defense")):
            return f"{self.capture}: {key.removeprefix('scenario.')}"
        return f"{self.file}: {key}" if self.file else key


def config_of(file: Path | None, given: Mapping[str, Any]) -> AuditConfig:
    """The config file with the options given over it. What an option names replaces the file's whole entry."""
    raw: dict[str, Any] = _tables(file, given) if file else {}
    sources = Sources(file, capture="" if file else str(given.get("--capture") or ""))
    scenario = raw.get("scenario", {})
    raw = {**raw, "scenario": dict(scenario) if isinstance(scenario, Mapping) else scenario}
    for option, value in given.items():
        if value is None or value == []:
            continue
        key, parsed = _entry(option, value)
        sources.options[key] = option
        table, _, name = key.rpartition(".")
        target = raw[table] if table else raw
        if isinstance(target, dict):
            target[name] = parsed
    if file is None and not {"--model", "--data", "--capture", "--attack", "--budget"} & set(sources.options.values()):
        raw["budget"] = "quick"  # the built-in example is there to be looked at
    config = from_tables(raw, sources.where)
    if file is not None:
        require_attacker(raw, file)
    return config


def _tables(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line names is not looked for in the file."""
    named = {f"{kind}_given": given.get(f"--{kind}") is not None for kind in ("model", "tagger", "loss")}
    return read_tables(file, **named)


def _entry(option: str, value: Any) -> tuple[str, Any]:
    """The key that an option sets, and its value as TOML would give it."""
    if option in SCENARIO:
        return f"scenario.{SCENARIO[option]}", value
    if option == "--lineup":
        return "lineup", _parse_lineup(value)
    if option == "--also":
        return "also", {key: _parse_list(given) for key, given in parse_pairs(value, option, texts=True).items()}
    if option in ("--pictures", "--class-weights"):
        return f"scenario.{option[2:].replace('-', '_')}", _parse_list(value)
    if option == "--data-option":
        return "scenario.data_options", parse_pairs(value, option)
    if option == "--metric":
        return "metrics", value
    if option in ("--defense", "--attack"):
        choices = parse_choices(value, option, _catalogue(option))
        return option[2:], {label: {"name": c.name, **c.options} for label, c in choices.items()}
    return TOP[option], value


def _parse_lineup(text: str) -> int | str:
    """A number of candidates; `off` is none."""
    if text in ("auto", "off"):
        return 0 if text == "off" else text
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ConfigError(f"must be a number of candidates, auto or off, got {show(text)}", key="--lineup")
    return int(text)


def _catalogue(option: str) -> Mapping[str, object]:
    from gradveil.attacks import ATTACKS  # not when the module is imported: `--help` needs no torch
    from gradveil.defenses import DEFENSES

    return DEFENSES if option == "--defense" else ATTACKS


def _parse_list(text: str) -> list[Any]:
    """`1,4` as values; a list in brackets is one already."""
    value = parse_value(text)
    return value if isinstance(value, list) else [parse_value(part) for part in text.split(",")]


def check_claim(claim: float | None) -> None:
    if claim is not None and not 0 < claim < 1:
        raise ConfigError(f"--claim: must be a share between 0 and 1, got {claim}")


def check_training(low: Mapping[str, tuple[float | None, float]], positive: Mapping[str, float | None]) -> None:
    """Numbers of a training command, by option: `low` at least so much, `positive` above 0 and finite."""
    for option, (value, least) in low.items():
        if value is not None and not least <= value < 2**63:
            raise ConfigError(f"{option}: {value} is out of range, give {least} or more")
    for option, value in positive.items():
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"{option}: {value} is not possible, give a number above 0")


def check_out(folder: Path | None) -> None:
    """A name that means what it seems to mean, and nothing in the folder that would have us write elsewhere."""
    if folder is None:
        return
    if not str(folder).isprintable() or len(str(folder)) > LONGEST_TEXT:
        raise ConfigError(f"--out: {show(str(folder))}: expected a path on one line, choose another")
    if ".." in dropwhile("..".__eq__, folder.parts):
        raise ConfigError(f"--out: {folder}: '..' may only stand at the beginning, write the path without it")
    there = next((one for one in (folder, *folder.parents) if one.exists()), Path())
    if not there.is_dir():
        problem = "not a folder" if there == folder else f"cannot be made, {there} is a file"
        raise ConfigError(f"--out: {folder}: {problem}, choose another")
    inside = [*folder.glob("*"), *folder.glob("images/*")] if folder.is_dir() else []
    for path in inside:
        if path.is_symlink():
            raise ConfigError(f"--out: {path} is a link and would have us write elsewhere, choose another folder")


def compute_of(
    device: str,
    precision: str,
    backend: str,
    chunk: int | None,
    workers: int = 0,
    limit: float | None = None,
    ray: str = "",
) -> Compute:
    """Where and how to compute, checked against this machine."""
    if device != "auto" and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise unknown("device", device, ("auto", "cpu", "cuda"), "--device")
    check(precision, Precision, "--precision")
    check(backend, Backend, "--backend")
    if chunk is not None and chunk < 1:
        raise ConfigError(f"--chunk: must be at least 1, got {chunk}")
    if not 0 <= workers <= MOST_WORKERS:
        raise ConfigError(f"--workers: must be between 0 and {MOST_WORKERS}, got {workers}")
    if limit is not None and not (limit > 0 and workers):
        raise ConfigError(f"--limit: must be above 0 and needs --workers, got {limit}")
    _check_cuda(device)
    where = "cpu" if workers and device == "auto" else pick_device(device)
    settings: Any = {"precision": precision, "backend": backend, "chunk": chunk, "workers": workers, "limit": limit}
    if ray:
        Pool(workers=workers, ray=ray).check(where)
    return Compute(device=where, ray=ray, **settings)


def _check_cuda(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= count:
            raise ConfigError(f"--device: {device} is not here, torch sees {count} CUDA devices, use --device auto")


def compute_on_all_cores(device: str, precision: str, workers: int | None, ray: str) -> Compute:
    """On a CPU one process per core where `workers` is not given."""
    import torch

    compute = compute_of(device, precision, "auto", None, workers or 0, None, ray)
    if workers is None and not ray and compute.device == "cpu":
        return compute_of("cpu", precision, "auto", None, torch.get_num_threads())
    return compute


def drop_missing(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, lists as tuples."""
    values = {name: value for name, value in given.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
