"""The Pareto front: who is beaten by nobody in accuracy and leakage at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """Of a point: more accuracy is better, more leakage is worse."""

    accuracy: float
    leakage: float

    def beats(self, other: Place) -> bool:
        """Nowhere worse, and somewhere better."""
        return self.accuracy >= other.accuracy and self.leakage <= other.leakage and self != other


def front(places: Mapping[str, Place]) -> tuple[str, ...]:
    """Labels of those whom nobody beats, from little leakage to much.

    >>> front({"a": Place(0.9, 30.0), "b": Place(0.7, 12.0), "c": Place(0.6, 20.0)})
    ('b', 'a')
    """
    kept = [label for label, place in places.items() if not any(other.beats(place) for other in places.values())]
    return tuple(sorted(kept, key=lambda label: (places[label].leakage, label)))
