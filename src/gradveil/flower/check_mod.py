"""A Flower client mod that refuses a round whose model looks planted (`gradveil check-model` as part of a client)."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Context, Message
from torch import Tensor, nn

from gradveil.core.types import Batch
from gradveil.flower.arrays import only_arrays
from gradveil.flower.defense_mod import ClientCall, is_train, load_arrays
from gradveil.inspection import PlantedModelError, inspect
from gradveil.inspection.examine import Reference

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RefusePlanted:
    """Looks at every model that is to be trained on, before the training function sees it."""

    model: nn.Module
    reference: Reference = None
    data: Batch | Tensor | Callable[[Context], Batch | Tensor] | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientCall) -> Message:
        if is_train(message):
            _, sent = only_arrays(message.content, "the message")
            self._check(load_arrays(copy.deepcopy(self.model), sent), context)
        return call_next(message, context)

    def _check(self, model: nn.Module, context: Context) -> None:
        data = self.data(context) if callable(self.data) else self.data
        inspection = inspect(model, data, self.reference)
        if inspection.planted:
            # Flower sends the text of an error to the server: what gave it away stays here
            log.error("%s; %s", inspection.verdict, inspection.findings[0].sentence)
            raise PlantedModelError("model: refused by this client's check, nothing was trained")


def refuse_planted(
    model: nn.Module,
    *,
    reference: Reference = None,
    data: Batch | Tensor | Callable[[Context], Batch | Tensor] | None = None,
) -> RefusePlanted:
    """For `ClientApp(mods=[refuse_planted(model, ...)])`: the architecture, an earlier model, the client's pictures.

    `data` may be a function of the context, for clients that load their own.
    """
    return RefusePlanted(model=model, reference=reference, data=data)
