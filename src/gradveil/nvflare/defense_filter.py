"""`DefenseFilter`: a defense as a filter of NVFlare, for `task_result_filters` of a client.

What the filter cannot defend, it does not send: it raises, and NVFlare reports an error in the place of the result.
"""

from __future__ import annotations

import os
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable  # pyright: ignore[reportMissingImports]
from nvflare.apis.dxo_filter import DXOFilter  # pyright: ignore[reportMissingImports]
from nvflare.apis.event_type import EventType  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_constant import ReturnCode  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
from nvflare.apis.shareable import Shareable  # pyright: ignore[reportMissingImports]

from gradveil.core.seeds import Seed
from gradveil.defenses import parse_defense
from gradveil.dp.allowance import Allowance, allowance_of
from gradveil.dp.budget import DELTA
from gradveil.models.buffers import is_statistic
from gradveil.nvflare.difference import FilterError, check_reach, defend_difference

DEFENDED = [DataKind.WEIGHT_DIFF, DataKind.WEIGHTS, DataKind.FL_MODEL, DataKind.APP_DEFINED]


class DefenseFilter(DXOFilter):
    def __init__(
        self,
        defense: str,
        trainable: list[str] | None = None,
        epsilon_at_most: float | None = None,
        delta: float = DELTA,
        seed: int | None = None,
    ) -> None:
        """Args:
        defense: A defense that acts on the update, as on the command line: `prune:ratio=0.9`.
        trainable: Names of the parameters (default: all floating-point arrays but running statistics).
        epsilon_at_most: Privacy budget of this run; the result that would exceed it is refused (default: none).
        delta: Delta of the budget (default 1e-5).
        seed: For tests; left out, random numbers come from the operating system anew for every result.
        """
        super().__init__(supported_data_kinds=DEFENDED, data_kinds_to_filter=DEFENDED)
        self.defense = check_reach(parse_defense(defense, "DefenseFilter"))
        self.trainable, self.seed, self.sent = trainable, seed, 0
        self.allowance: Allowance | None = None
        if epsilon_at_most is not None:
            self.allowance = allowance_of(self.defense, 1, epsilon_at_most, delta)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            self.sent = 0

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """A result of another form would pass the class above as it is."""
        if shareable.get_return_code() == ReturnCode.OK:
            try:
                from_shareable(shareable)
            except Exception as error:
                raise FilterError("filter: the result is no DXO, nothing is sent") from error
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        if dxo.data_kind != DataKind.WEIGHT_DIFF:
            raise FilterError(
                f"filter: the result is of kind {dxo.data_kind}, nothing is sent; a defense acts on what the training "
                "changed, so let the client send differences (params_transfer_type DIFF)"
            )
        if self.allowance is not None:
            self._check_allowance(self.allowance, dxo.data)
        dxo.data = defend_difference(self.defense, dxo.data, self._draw_seed(), self.trainable)
        self.sent += 1
        return dxo

    def _check_allowance(self, allowance: Allowance, data: dict[str, Any]) -> None:
        if self.sent + 1 > allowance.releases:
            raise FilterError(f"filter: this result {allowance.refusal(self.sent + 1)}, nothing is sent")
        if beside := [n for n in data if is_statistic(n) or (self.trainable is not None and n not in self.trainable)]:
            raise FilterError(
                f"filter: {beside[0]} leaves without noise, which epsilon_at_most does not cover, nothing is sent; "
                "leave it out with NVFlare's ExcludeVars"
            )

    def _draw_seed(self) -> Seed:
        if self.seed is None:
            return Seed(int.from_bytes(os.urandom(32), "big"))
        return Seed(self.seed).at("filter", self.sent)
