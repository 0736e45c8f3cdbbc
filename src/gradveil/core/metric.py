"""A metric: how much of a private picture a reconstruction shows, and what one must know to read its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, cast, get_args

from torch import Tensor

Column = Literal["worst", "most", "median", "mean"]
Kind = Literal["mean", "rate", "rank"]
Score = Callable[[Tensor, Tensor], Tensor]
FED = "_fed"  # ends the name of a score against the picture as it was fed to the model


@dataclass(frozen=True, kw_only=True)
class Source:
    """The weights that a metric was computed with. The hash is over numbers, so the kind of file does not matter."""

    sha256: str
    known: bool  # whether they are the published ones


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Of a metric that looks for the original in a gallery: it counts among the `top` nearest `by` this."""

    top: int
    by: str  # pixels, symmetry, detail, features


@dataclass(frozen=True, kw_only=True)
class Facts:
    """How to read a metric's numbers: the verdict, the pages, the trade-off and the search ask nobody else.

    name: in configs and journals. label: in tables and plots. unit: after a number, such as dB.
    more_is_leakier: whether a higher value shows more of the picture. kind: "rate" of values that are 0 or 1 (intervals
    by Clopper and Pearson), "mean" (by bootstrap), or "rank" of places from 1 on (by bootstrap). columns: of a table,
    "most" is the 95th percentile of leakage. digits: behind the point. tolerance: how far rounding on another device
    may move a value. exact: from this value on a copy is exact, and plots end. lookup: of metrics that look for the
    original in a gallery. perceptual: whether it follows what people call similar. about: what is compared. as_fed:
    whether reconstructions are also compared with the picture as it was fed to the model.
    """

    name: str
    label: str
    unit: str = ""
    more_is_leakier: bool = True
    kind: Kind = "mean"
    columns: tuple[Column, ...] = ("worst", "mean")
    digits: int = 2
    tolerance: float = 0.01
    exact: float | None = None
    lookup: Lookup | None = None
    perceptual: bool = False
    about: Literal["pictures", "labels"] = "pictures"
    as_fed: bool = True

    @property
    def heading(self) -> str:
        """The label with its unit: "PSNR, dB"."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    def format(self, value: float) -> str:
        """A value with its unit.

        >>> Facts(name="psnr", label="PSNR", unit="dB", digits=1).format(12.34)
        '12.3 dB'
        """
        return f"{value:.{self.digits}f} {self.unit}".rstrip()

    def leakage(self, value: float) -> float:
        """The same value so that more is always worse."""
        return value if self.more_is_leakier else -value

    def worst(self, one: float, other: float) -> float:
        """The one of two values that shows more of the picture."""
        return max(one, other, key=self.leakage)

    def builds(self, builder: Callable[..., Metric]) -> Builder:
        """Decorates the builder of a metric, so that the catalogue knows its facts before it is built."""
        builder.facts = self  # type: ignore[attr-defined]
        return cast("Builder", builder)

    def metric(self, score: Score, source: Source | None = None, **more: Any) -> Metric:
        own = {one.name: getattr(self, one.name) for one in fields(Facts)}
        return Metric(**own, score=score, source=source, **more)

    def to_json(self) -> dict[str, Any]:
        """What a run's folder says of a metric that the catalogue does not have."""
        return {"label": self.label, "unit": self.unit, "more_is_leakier": self.more_is_leakier, "kind": self.kind}

    @classmethod
    def from_json(cls, name: str, table: Any) -> Facts:
        """The facts that a folder states; what it does not state, or states oddly, is as for an unknown metric."""
        stated = table if isinstance(table, Mapping) else {}
        kinds = {"label": str, "unit": str, "more_is_leakier": bool}
        found = {key: stated[key] for key, kind in kinds.items() if isinstance(stated.get(key), kind)}
        kind = {"kind": stated["kind"]} if stated.get("kind") in get_args(Kind) else {}
        return cls(**{"label": name, **found, **kind, "name": name})


@dataclass(frozen=True, kw_only=True)
class Metric(Facts):
    """Facts, and a score of two batches of pictures, or of their labels: one number each, [*client, example].

    score: of what the attack made (first) against the truth. source: the weights it was computed with.
    among: of a metric with a gallery, the same with another gallery. floors: by the name of a score, the value that it
    has for a picture which is as near to the original as the nearest of the gallery is.
    """

    score: Score
    source: Source | None = None
    among: Callable[[Tensor], Metric] | None = None
    floors: Mapping[str, Score] = field(default_factory=dict)


class Builder(Protocol):
    """A row of the catalogue: a metric from keyword arguments, and its facts without any."""

    __name__: str
    facts: Facts

    def __call__(self, **options: Any) -> Metric: ...
