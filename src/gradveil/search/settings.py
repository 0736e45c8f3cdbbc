"""What a search can be asked for, and whether it makes sense."""

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
class Search:
    """A search for policies (ATS, algorithm 1). The defaults are a small example; ATS tries 1,500 on 100 pictures.

    >>> Search(candidates=1500, images=100).settings()["search"]["library"]
    'ats-code'
    """

    model: str = "lenet"
    weights: str = ""  # of the semi-trained model; without them it is trained here
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

    def settings(self) -> dict[str, Any]:
        """What config.toml says of it; the library is written out, since a file can change."""
        plain = {name: getattr(self, name) for name in get_type_hints(Search)}
        plain = {name: value for name, value in plain.items() if value is not None and name != "data_options"}
        entries = [str(entry) for entry in library_of(self.library).entries]
        return {"search": {**plain, "entries": entries, "data_options": dict(self.data_options)}}


def checked(search: Search) -> tuple[ScenarioConfig, Library]:
    """The scenario and the library that it speaks of; ConfigError if it cannot be done."""
    kinds = get_type_hints(Search)
    for name, value in ((name, getattr(search, name)) for name in kinds):
        if value is not None and name not in ("data_options", "model", "weights", "data"):
            check(list(value) if isinstance(value, tuple) else value, kinds[name], _option(name))
    for name, (low, high) in RANGES.items():
        if not low <= getattr(search, name) <= high:
            raise ConfigError(f"{_option(name)}: must be between {low} and {high:,}, got {getattr(search, name):,}")
    if search.score not in PRIVACY_SCORES:
        raise unknown("score", search.score, PRIVACY_SCORES, "--score")
    _check_numbers(search)
    library = _library(search)
    if search.top > (tried := min(search.candidates, space(library, search.length)) + len(search.include)):
        raise ConfigError(f"--top: {search.top} of {tried} candidates, ask for fewer or try more with --candidates")
    for text in search.include:
        _check_included(text, library)
    return _scenario(search), library


def _check_numbers(search: Search) -> None:
    shares = {"semi_share": search.semi_share, "fsim": search.fsim}
    for name, value in shares.items():
        if value is not None and not 0 < value <= 1:
            raise ConfigError(f"{_option(name)}: must be above 0 and at most 1, got {value}")
    parse_threshold(search.threshold)
    if not 0 < search.semi_rate <= 1000:
        raise ConfigError(f"--semi-rate: must be above 0, got {search.semi_rate}")
    if 0 < search.confirm < 4:
        raise ConfigError(f"--confirm: a correlation needs 4 policies or more, got {search.confirm}; 0 leaves it out")


def _library(search: Search) -> Library:
    try:
        return library_of(search.library)
    except ConfigError as error:
        raise ConfigError(f"--library: {error}") from error


def _check_included(text: str, library: Library) -> None:
    try:
        policy = Policy.parse(text, library)
    except ConfigError as error:
        raise ConfigError(f"--include: {error}") from error
    if len(policy.alternatives) > 1:
        raise ConfigError(f"--include: {text} is a hybrid, include its parts one by one")


def _scenario(search: Search) -> ScenarioConfig:
    """Model and data, checked against the catalogues."""
    named = {"model": search.model, "weights": search.weights, "data": search.data}
    tables = {"scenario": {**named, "data_options": dict(search.data_options)}}

    def where(key: str) -> str:
        last = key.removeprefix("scenario.")
        return (
            "--data-option" + last.removeprefix("data_options").replace(".", ": ") if "options" in last else f"--{last}"
        )

    config: AuditConfig = from_tables(tables, where)
    return config.scenario


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
