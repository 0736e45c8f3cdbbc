"""The settings of a calibration, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from gradveil.calibrate.family import Family, parse_family
from gradveil.config import AuditConfig, from_tables
from gradveil.config.schema import Scalar
from gradveil.core.check import check
from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_most
from gradveil.core.scenario import BatchNorm

FREE = ("defense", "data_options")  # checked by those who read them
SCENARIO = ("model", "weights", "data", "data_options", "images", "batch_size", "local_steps", "local_rate",
            "batchnorm")  # fmt: skip
CANDIDATES = 1001  # the true one included
LEAST, MOST = 2, 1_000_000  # candidates
MOST_STANDINS = 10_000


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """Which defense, how few pictures it may let the line-up name, and for which model, data and training."""

    defense: str  # NAME[:k=v,...] without the option that is its strength
    named_at_most: float = 0.05
    lineup: int | None = None  # candidates, the true one included; None: 1,001, fewer where each strength takes long
    standins: int | None = None  # gallery pictures in a victim's place, for each class among the victims; None: enough
    model: str = "lenet"
    weights: str = ""
    data: str = "photos"
    data_options: Mapping[str, Scalar] = field(default_factory=dict)
    images: int = 8  # clients
    batch_size: int = 1
    local_steps: int = 1
    local_rate: float = 1.0
    batchnorm: BatchNorm = "eval"
    seed: int = 0

    def to_tables(self) -> dict[str, Any]:
        """What config.toml says of it."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {name: value for name, value in plain.items() if value is not None}
        return {"calibrate": {**plain, "data_options": dict(self.data_options)}}

    def audit_config(self) -> AuditConfig:
        """The clients as an audit of the undefended model has them."""
        scenario = {name: getattr(self, name) for name in SCENARIO} | {"data_options": dict(self.data_options)}
        gallery = (self.lineup or CANDIDATES) - 1
        plain = {"seed": self.seed, "gallery": gallery, "budget": "quick", "scenario": scenario}
        tables = plain | {"defense": {"none": {"name": "none"}}}
        return from_tables(tables, lambda key: key.removeprefix("scenario."))


def check_settings(settings: CalibrationSettings) -> tuple[Family, AuditConfig]:
    """The family and the clients; ConfigError if it cannot be done. Loads nothing."""
    kinds = get_type_hints(CalibrationSettings)
    for name, value in ((name, getattr(settings, name)) for name in kinds if name not in FREE):
        if value is not None:
            check(value, kinds[name], name)
    if settings.lineup is not None and not LEAST <= settings.lineup <= MOST:
        raise ConfigError(f"must be between {LEAST} and {MOST:,}, got {settings.lineup:,}", key="lineup")
    if settings.standins is not None and not 0 <= settings.standins <= MOST_STANDINS:
        raise ConfigError(f"must be between 0 and {MOST_STANDINS:,}, got {settings.standins:,}", key="standins")
    check_limit(settings.named_at_most, settings.lineup or CANDIDATES)
    return parse_family(settings.defense), settings.audit_config()


def check_limit(limit: float, candidates: int) -> None:
    """A share that guessing at random does not exceed."""
    if not 0 < limit < 1:
        raise ConfigError(f"must be a share between 0 and 1, got {limit}", key="named_at_most")
    if limit <= 1 / candidates:
        raise ConfigError(
            f"must be above {1 / candidates:.3g} (random guessing among {candidates:,} candidates), got {limit:g}; "
            f"use `lineup = {int(2 / limit) + 1}` or more",
            key="named_at_most",
        )


def check_pictures(limit: float, pictures: int) -> None:
    """Enough of them that a bound as low as the limit can be shown."""
    if at_most(0, pictures) > limit:
        raise ConfigError(
            f"{pictures} pictures can show no bound below {at_most(0, pictures):.1%}, use more `images` or `standins`, "
            f"or allow more",
            key="named_at_most",
        )
