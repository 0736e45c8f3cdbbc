"""What came from the clients of a real round, stacked: in a scenario it stands where simulated clients would train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gradveil.core.types import Labels, Update

Replayed = Literal["reproduced", "alike", "not reproduced"]


@dataclass(frozen=True, kw_only=True)
class Received:
    """Updates of clients alike, each [client, *parameter]."""

    update: Update
    statistics: Mapping[str, Tensor] | None = None  # running statistics, each [client, channel]
    labels: Labels | None = None  # as far as the server was told
    has_truth: bool = False  # whether the scenario's private pictures are the clients' own
    replayed: tuple[Replayed, ...] = ()  # of each client, where they are

    def take(self, some: slice | list[int]) -> Received:
        """Some of the clients. A slice is a view: every attack has its shards, and one copy of the data is enough."""
        places = range(len(next(iter(self.update.values()))))[some] if isinstance(some, slice) else some

        def of(x: Tensor) -> Tensor:
            return x[some] if isinstance(some, slice) else x[torch.as_tensor(some, dtype=torch.long, device=x.device)]

        return replace(
            self,
            update={name: of(u) for name, u in self.update.items()},
            statistics=None if self.statistics is None else {k: of(v) for k, v in self.statistics.items()},
            labels=None if self.labels is None else of(self.labels),
            replayed=tuple(self.replayed[place] for place in places) if self.replayed else (),
        )

    def __getstate__(self) -> dict[str, Any]:
        """To other machines: a view would take everything along that it is a view of."""
        return vars(self.take(list(range(len(next(iter(self.update.values())))))))

    def to(self, device: str, dtype: torch.dtype) -> Received:
        def moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, dtype) for name, tensor in tensors.items()}

        return replace(
            self,
            update=moved(self.update),
            statistics=None if self.statistics is None else moved(self.statistics),
            labels=None if self.labels is None else self.labels.to(device, dtype),
        )


def stack_by_name(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}
