"""What a search found, and the policy.json that says so. Times and machines are no part of it: one search, one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gradveil.core.files import private_files, write_whole
from gradveil.search.correlation import Correlation
from gradveil.transforms.library import Library
from gradveil.transforms.policy_file import SCHEMA

NOT_VALIDATED = "proxy not validated here"
COUNTS = ("candidates", "distinct", "distorted", "passed", "failed", "scored")


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """What an attack saw of one policy's pictures: dB, mean with interval, and pictures that it gave away."""

    attacker: str
    pictures: int
    failed: int
    psnr: float  # against the private picture
    low: float | None
    high: float | None
    psnr_fed: float  # against the picture as fed
    blank: float | None = None  # of the mean public picture against the private one
    identified: int
    leaked: int


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One policy. A low privacy score is good, a high accuracy score is good."""

    policy: str
    functions: tuple[str, ...]
    privacy: float
    low: float
    high: float
    area: float  # mean over pictures, before the variance and the scale of the score
    in_top: float  # how often it is among the best when other pictures of the same kind are scored
    accuracy: float
    fsim: float | None = None
    confirmed: tuple[Confirmed, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Whether policies with a higher score gave away better pictures."""

    attacker: str
    against: str  # "private" or "fed": a PSNR; or "identified"
    policies: int
    pearson: Correlation | None
    spearman: Correlation | None

    @property
    def measure(self) -> str:
        return "pictures identified" if self.against == "identified" else f"PSNR of the {self.against} picture"

    @property
    def holds(self) -> bool:
        return self.pearson is not None and self.pearson.is_positive

    @property
    def conclusion(self) -> str:
        return "the score predicts what this attack sees" if self.holds else NOT_VALIDATED


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The policy set of ATS's algorithm 1, the hybrid of its best, and how far to believe the scores."""

    library: Library
    hybrid: str
    policies: tuple[Scored, ...]  # the best, in order
    candidates: int
    distinct: int  # of them, by what they do
    distorted: int  # of these, left out by FSIM
    passed: int  # of the rest, by the accuracy score
    threshold: float  # the least accuracy score that passed
    untransformed: float  # the accuracy score of the pictures as they are
    rule: str  # where the threshold comes from
    failed: int  # without a finite score
    scored: int  # of those that passed, on every picture; a race leaves some behind
    others: tuple[Scored, ...] = ()  # confirmed beside the best, over the range of scores
    hybrid_confirmed: tuple[Confirmed, ...] = ()
    undefended: tuple[Confirmed, ...] = ()
    validation: tuple[Validation, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)  # similarity on the way, for plots only

    @property
    def control(self) -> str:
        """Whether the attack works at all where nothing hinders it."""
        if not self.undefended:
            return "no policy was attacked: scores are a proxy, confirm them with `confirm = 10`"
        leaked, pictures = (sum(getattr(one, name) for one in self.undefended) for name in ("leaked", "pictures"))
        weak = "" if leaked else ": an attack that fails here confirms nothing, use more `confirm_steps`"
        return f"control: {leaked} of {pictures} undefended pictures leaked{weak}"

    def to_json(self) -> dict[str, Any]:
        """The content of policy.json."""
        entries = [[entry.operation, entry.magnitude] for entry in self.library.entries]
        counts = {name: getattr(self, name) for name in COUNTS}
        return {
            "schema": SCHEMA,
            "library": {"name": self.library.name, "entries": entries},
            "hybrid": self.hybrid,
            "hybrid_confirmed": _by_attacker(self.hybrid_confirmed),
            "policies": [_row(one) for one in self.policies],
            **counts,
            "threshold": {"value": self.threshold, "untransformed": self.untransformed, "rule": self.rule},
            "others": [_row(one) for one in self.others],
            "undefended": _by_attacker(self.undefended),
            "control": self.control,
            "correlation": {f"{v.attacker}-{v.against}": _validation_row(v) for v in self.validation},
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
        }

    def write(self, path: Path) -> None:
        content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        with private_files():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content.encode())


def _row(one: Scored) -> dict[str, Any]:
    return {**asdict(one), "functions": list(one.functions), "confirmed": _by_attacker(one.confirmed)}


def _by_attacker(each: Sequence[Confirmed]) -> dict[str, dict[str, Any]]:
    return {one.attacker: {k: v for k, v in asdict(one).items() if k != "attacker"} for one in each}


def _validation_row(found: Validation) -> dict[str, Any]:
    return {**asdict(found), "said": found.conclusion}
