"""A federation's own rounds as a Flower strategy: who takes part, and the server's step of the local engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor, nn

from gradveil.flower.arrays import only_arrays, parameter_names, record_of, tensors_of
from gradveil.models.buffers import RUNNING
from gradveil.train.clients import draw_clients
from gradveil.train.server_rounds import is_finite, server_step, weighted_mean, zero_velocity
from gradveil.train.settings import Federation

EXAMPLES, LOSS, CLIENT = "num-examples", "loss", "client"  # metrics of a reply
ROUND = "server-round"


class FederationStrategy(Strategy):
    """The rounds of `gradveil.train.server_rounds`, up to float32 on the wire: replies are weights, not updates."""

    weighted_by_key = EXAMPLES

    def __init__(
        self,
        federation: Federation,
        model: nn.Module,
        velocity: Mapping[str, Tensor] | None = None,
        patience: float = 60,
    ) -> None:
        self.federation, self.patience = federation, patience
        params = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = tuple(params)
        self.velocity = dict(velocity) if velocity else zero_velocity(params, federation)
        self.min_available_nodes = federation.clients  # to begin with; later rounds go on with those who are left
        self._sent: dict[str, Tensor] = {}
        self._clients: dict[int, int] = {}  # node -> number of the client, as it says

    def summary(self) -> None:
        """Nothing: the folder says it all."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._sent, self.min_available_nodes = tensors_of(arrays), 1
        config[ROUND] = server_round
        content = RecordDict({"arrays": arrays, "config": config})
        nodes = self._draw_nodes(server_round, grid)
        return [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        good = sorted((reply for reply in replies if not reply.has_error()), key=_order)
        if not good:
            return None, None
        each = [tensors_of(only_arrays(reply.content, "the reply")[1]) for reply in good]
        weights = [_metric(reply, EXAMPLES) for reply in good]
        loss = weighted_mean([{LOSS: torch.tensor(_metric(r, LOSS), dtype=torch.float64)} for r in good], weights)
        new = self._next_model(each, weights, self.federation.progress(server_round))
        return (None, None) if new is None else (record_of(new), MetricRecord({LOSS: loss[LOSS].item()}))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def _next_model(
        self, each: list[dict[str, Tensor]], weights: list[float], progress: float
    ) -> dict[str, Tensor] | None:
        """The model after the round; None where its numbers would not be finite."""
        sent, names = self._sent, parameter_names(self._sent, self.parameters)
        update = weighted_mean([{n: sent[n] - one[n] for n in names} for one in each], weights)
        params, velocity = server_step({n: sent[n] for n in names}, self.velocity, update, self.federation, progress)
        shared = self.federation.batchnorm == "batch-shared"
        running = [n for n in sent if n.rpartition(".")[2] in RUNNING] if shared else []
        statistics = weighted_mean([{n: one[n] for n in running} for one in each], weights)
        if not is_finite(params, velocity, statistics):
            return None
        self.velocity = velocity
        return {**sent, **params, **statistics}

    def _draw_nodes(self, server_round: int, grid: Grid) -> list[int]:
        nodes = sorted(grid.get_node_ids())
        who = draw_clients(self.federation, server_round)
        if len(who) == self.federation.clients:
            return nodes
        self._ask_who(set(nodes) - set(self._clients), grid)
        return [node for node in nodes if self._clients.get(node) in who]

    def _ask_who(self, nodes: set[int], grid: Grid) -> None:
        """Which client a node is, since the draw is of clients."""
        asked = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in sorted(nodes)]
        for reply in grid.send_and_receive(asked, timeout=self.patience) if asked else []:
            if not reply.has_error():
                self._clients[reply.metadata.src_node_id] = int(_metric(reply, CLIENT))


def _order(reply: Message) -> tuple[float, int]:
    """By client, since sums of floats depend on their order and node ids are new in every run."""
    return _metric(reply, CLIENT), reply.metadata.src_node_id


def _metric(reply: Message, key: str) -> float:
    records = list(reply.content.metric_records.values())
    value = records[0].get(key, 0.0) if records else 0.0
    return 0.0 if isinstance(value, list) else float(value)
