"""Configs: either one line that names the file, or a config that is written and read back the same. Nothing else."""

from __future__ import annotations

import math
import random
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from driver import main, must, mutated

from gradveil.attacks import ATTACKS
from gradveil.config import AuditConfig, dumps, from_tables, load
from gradveil.config.resolve import resolve
from gradveil.config.schema import ScenarioConfig
from gradveil.core import toml
from gradveil.core.check import options_of
from gradveil.core.errors import ConfigError
from gradveil.data import DATASETS
from gradveil.defenses import DEFENSES
from gradveil.metrics import METRICS
from gradveil.models import MODELS

SECONDS, LONGEST = 5, 10_000
FOLDER = tempfile.TemporaryDirectory(prefix="gradveil-fuzz-")
PATH = Path(FOLDER.name) / "a.toml"
VALID = dumps(resolve(AuditConfig()))
SHORT = "budget = 'quick'\n[scenario]\nattacker = 'curious'\nimages = 4\n[defense.none]\n[attack.dlg]\nsteps = 9\n"
NAMES = [
    *ATTACKS,
    *DEFENSES,
    *METRICS,
    *MODELS,
    *DATASETS,
    "known",
    "inferred",
    "curious",
    "malicious",
    "eval",
    "batch",
]
KEYS = [
    *AuditConfig.__dataclass_fields__,
    *ScenarioConfig.__dataclass_fields__,
    *(key for table in (ATTACKS, DEFENSES, DATASETS) for factory in table.values() for key in options_of(factory)),
    "name", "x", "", "a b", "\n", "__proto__", "\u202e", "a" * 300,
]  # fmt: skip
SCALARS = [
    0, 1, 1, 2, 2, 7, -1, 10**6, 10**12, 2**63, -(2**63) - 1, 10**400, 0.0, 0.5, 0.5, 1.0, -0.0, 1e-300, 1e300,
    math.inf, math.nan, True, False, "", "x", "\x00", "\u00e9", "/etc/passwd", "x.py:f", "os.system", "a" * 300,
    "../x", "\ud7ff",
]  # fmt: skip


def one(rng: random.Random) -> None:
    """One config, mutated or made up, through the loader."""
    content = rng.choice((altered, made_up, made_up))(rng)
    PATH.write_bytes(content)
    start = time.monotonic()
    try:
        config = load(PATH)
    except ConfigError as error:
        must(str(error).startswith(f"{PATH}: "), f"the file is not named: {error}")
        must(len(str(error)) < LONGEST, "the line is too long to be read")
        return
    finally:
        must(time.monotonic() - start < SECONDS, "too slow")
    written = dumps(config)
    again = from_tables(tomllib.loads(written))
    must(again == config, "what is read back is another config")
    must(dumps(again) == written, "what is read back is written otherwise")


def altered(rng: random.Random) -> bytes:
    """A sound config with some bytes changed, or with its lines shuffled."""
    text = rng.choice((VALID, SHORT, SHORT))
    if rng.random() < 0.2:
        lines = text.splitlines(keepends=True)
        return "".join(rng.sample(lines, rng.randrange(len(lines) + 1))).encode()
    return mutated(text.encode(), rng)


def made_up(rng: random.Random) -> bytes:
    """A sound config with other values here and there, and methods with any options."""
    tables = tomllib.loads(rng.choice((VALID, SHORT)))
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.choice((tables, tables["scenario"], tables["scenario"].setdefault("data_options", {})))
        key = rng.choice(KEYS) if rng.random() < 0.1 or not place else rng.choice(list(place))
        place[key] = like(rng, place.get(key))
        if not isinstance(tables.get("scenario"), dict) or not isinstance(tables["scenario"].get("data_options"), dict):
            break
    for kind, catalogue in (("defense", DEFENSES), ("attack", ATTACKS)):
        if rng.random() < 0.5:
            chosen = rng.sample(list(catalogue), rng.randrange(3))
            tables[kind] = {name: method(rng, catalogue[name]) for name in chosen}
    return toml.dump(tables).encode("utf-8", "surrogatepass")


def method(rng: random.Random, factory: Any) -> Any:
    if rng.random() < 0.05:
        return value(rng)
    known = list(options_of(factory)) or ["x"]
    chosen = [rng.choice(KEYS if rng.random() < 0.1 else known) for _ in range(rng.randrange(3))]
    return {key: like(rng, options_of(factory)[key].default if key in options_of(factory) else None) for key in chosen}


def like(rng: random.Random, old: Any) -> Any:
    """A value of the same type as the old one, more often than not."""
    same = [new for new in (*SCALARS, *NAMES) if type(new) is type(old)]
    return rng.choice(same) if same and rng.random() < 0.7 else value(rng)


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NAMES)
    if kind < 0.85 or depth > 20:
        return rng.choice(SCALARS)
    if kind < 0.95:
        return [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 5)))]
    return {rng.choice(KEYS): value(rng, depth + 1) for _ in range(rng.randrange(4))}


if __name__ == "__main__":
    main(one, "fuzz_config")
