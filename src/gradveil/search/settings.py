"""The settings of a search and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from gradveil.config import AuditConfig, ScenarioConfig, from_tables
from gradveil.config.schema import Scalar
from gradveil.core.check import check
from gradveil.core.errors import ConfigError, unknown
from gradveil.search.policies import space
from gradveil.search.privacy import PRIVACY_SCORES, Against
from gradveil.search.semi_trained import Recipe
from gradveil.search.threshold import parse_threshold
from gradveil.transforms.library import Library, library_of
from gradveil.transforms.policy import Policy

Strategy = Literal["full", "race"]
RANGES = {  # both ends allowed
    "candidates": (1, 1_000_000),
    "length": (1, 10),
    "top": (1, 10_000),
    "hybrid": (1, 10),
    "images": (2, 100_000),
    "rounds": (1, 1_000),
    "confirm": (0, 10_000),
    "confirm_images": (1, 10_000),
    "confirm_steps": (1, 10_000_000),
    "semi_epochs": (1, 10_000),
    "seed": (0, 2**62),
}


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """A search for policies (ATS, algorithm 1). The defaults are a small example; ATS tries 1,500 on 100 pictures.

    >>> SearchSettings(candidates=1500, images=100).to_tables()["search"]["library"]
    'ats-code'
    """

    model: str = "lenet"
    weights: str = ""  # of the semi-trained model; without them it is trained here
    normalize: str = "auto"  # constants in front of the model
    data: str = "photos"
    data_options: Mapping[str, Scalar] = field(default_factory=dict)
    library: str = "ats-code"
    include: tuple[str, ...] = ()  # policies that are tried besides the random ones
    candidates: int = 60
    length: int = 3  # transformations in a policy, at most
    top: int = 5
    hybrid: int = 2  # policies in the hybrid, at most
    images: int = 16
    score: str = "ats-code"
    against: Against = "unaware"
    strategy: Strategy = "full"
    threshold: float | str = ""  # of the accuracy score, per picture, or a share to keep, 90%; see `threshold.py`
    rounds: int = 10  # of the accuracy score
    fsim: float | None = None  # policies below are left out before anything else
    confirm: int = 5  # policies that are attacked for real
    confirm_images: int = 4
    confirm_steps: int = 120
    semi_epochs: int = 50
    semi_share: float = 0.1
    semi_rate: float = 0.1
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        return Recipe(epochs=self.semi_epochs, share=self.semi_share, rate=self.semi_rate)

    def to_tables(self) -> dict[str, Any]:
        """What config.toml says of it; the library is written out, since a file can change."""
        plain = {name: getattr(self, name) for name in get_type_hints(SearchSettings)}
        unsaid = {"data_options"} | ({"normalize"} if self.normalize == "auto" else set())  # as in runs without the key
        plain = {name: value for name, value in plain.items() if value is not None and name not in unsaid}
        entries = [str(entry) for entry in library_of(self.library).entries]
        return {"search": {**plain, "entries": entries, "data_options": dict(self.data_options)}}


def check_settings(settings: SearchSettings) -> tuple[ScenarioConfig, Library]:
    """The scenario and the library that it speaks of; ConfigError if it cannot be done."""
    kinds = get_type_hints(SearchSettings)
    for name, value in ((name, getattr(settings, name)) for name in kinds):
        if value is not None and name not in ("data_options", "model", "weights", "normalize", "data"):
            check(list(value) if isinstance(value, tuple) else value, kinds[name], name)
    for name, (low, high) in RANGES.items():
        if not low <= getattr(settings, name) <= high:
            raise ConfigError(f"must be between {low} and {high:,}, got {getattr(settings, name):,}", key=name)
    if settings.score not in PRIVACY_SCORES:
        raise unknown("score", settings.score, PRIVACY_SCORES)
    _check_numbers(settings)
    library = _library(settings)
    if settings.top > (tried := min(settings.candidates, space(library, settings.length)) + len(settings.include)):
        raise ConfigError(
            f"must be at most {tried} (the candidates), got {settings.top}, or try more `candidates`", key="top"
        )
    for text in settings.include:
        _check_included(text, library)
    return _scenario(settings), library


def _check_numbers(settings: SearchSettings) -> None:
    shares = {"semi_share": settings.semi_share, "fsim": settings.fsim}
    for name, value in shares.items():
        if value is not None and not 0 < value <= 1:
            raise ConfigError(f"must be above 0 and at most 1, got {value}", key=name)
    parse_threshold(settings.threshold)
    if not 0 < settings.semi_rate <= 1000:
        raise ConfigError(f"must be above 0, got {settings.semi_rate}", key="semi_rate")
    if 0 < settings.confirm < 4:
        raise ConfigError(f"must be 0 (none) or at least 4 (for a correlation), got {settings.confirm}", key="confirm")


def _library(settings: SearchSettings) -> Library:
    try:
        return library_of(settings.library)
    except ConfigError as error:
        raise ConfigError(error.message, key="library") from error


def _check_included(text: str, library: Library) -> None:
    try:
        policy = Policy.parse(text, library)
    except ConfigError as error:
        raise ConfigError(error.message, key="include") from error
    if len(policy.alternatives) > 1:
        raise ConfigError(f"{text} is a hybrid, include its parts one by one", key="include")


def _scenario(settings: SearchSettings) -> ScenarioConfig:
    """Model and data, checked against the catalogues."""
    named = {"model": settings.model, "weights": settings.weights, "normalize": settings.normalize}
    tables = {"scenario": {**named, "data": settings.data, "data_options": dict(settings.data_options)}}
    config: AuditConfig = from_tables(tables, lambda key: key.removeprefix("scenario."))
    return config.scenario
