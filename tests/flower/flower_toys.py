"""Flower's messages, contexts and a grid, without a single process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn

from gradveil.flower.arrays import record_of, tensors_of

Call = Callable[[Message, Context], Message]


def identity() -> None:
    """Flower's messages ask who sends them."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


def context(partition: int = 0, node: int = 7) -> Context:
    config = {"partition-id": partition, "num-partitions": 4}
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def train_message(tensors: Mapping[str, Tensor], *, node: int = 7, kind: str = "train", round: int = 1) -> Message:
    identity()
    content = RecordDict({"arrays": record_of(tensors), "config": ConfigRecord({"server-round": round})})
    return Message(content, dst_node_id=node, message_type=kind)


def reply_with(message: Message, tensors: Mapping[str, Tensor], **metrics: float) -> Message:
    records = {"arrays": record_of(tensors), "metrics": MetricRecord({"num-examples": 4, **metrics})}
    return Message(RecordDict(records), reply_to=message)


def small_net() -> nn.Module:
    """With everything that an update does not speak about: statistics, whole numbers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 36, 3))


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in model.state_dict().items()}


def step(message: Message, size: float = 0.1) -> dict[str, Tensor]:
    """A training that moves every number, statistics and counters too."""
    before = tensors_of(message.content["arrays"])  # type: ignore[arg-type]
    return {name: t + (size if t.is_floating_point() else 1) for name, t in before.items()}


class Nodes:
    """A grid whose nodes answer at once: `answers` by node, None for one that never does."""

    def __init__(self, answers: Mapping[int, Callable[[Message], Message | None]]) -> None:
        self.answers = dict(answers)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.answers)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        messages = list(messages)
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"message-{number}"
        replies = [self._answer(message) for message in messages]
        return [reply for reply in replies if reply is not None]

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        try:
            return self.answers[node](message)
        except Exception as error:  # as Flower does: an exception is an error reply
            return Message(Error(code=2, reason=str(error)), reply_to=message)


def arrays_of(result_arrays: ArrayRecord) -> dict[str, Tensor]:
    return tensors_of(result_arrays)
