"""What the unaware attacker of a shard has found, for the one who knows the defense and may ignore what it knows."""

from __future__ import annotations

from collections.abc import Sequence

from gradveil.audit.plan import Cell
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.informed import Informed


class Memory:
    """The reconstructions of one attack, by the clients that it was run on."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Reconstruction] = {}

    def recall(self, names: Sequence[str]) -> Reconstruction | None:
        return self._found.get(tuple(names))

    def reconstruct(self, cell: Cell, seen: Observation, seed: Seed, compute: Compute) -> Reconstruction:
        """By the cell's own attacker: the unaware one is remembered, the one who knows may ignore what it knows."""
        if cell.attacker == "adaptive":
            return Informed(inner=cell.method, recall=self.recall).reconstruct(seen, seed, compute)
        got = cell.method.reconstruct(seen, seed, compute)
        if not cell.control:
            self._found[seen.names] = got
        return got
