"""A round of Flower as captures: the model as sent and what every node sent back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from flwr.app import Message
from torch import Tensor

from gradveil.capture import Capture
from gradveil.capture.mode import list_moved
from gradveil.core.scenario import LocalTraining
from gradveil.core.target import Target
from gradveil.flower.arrays import Trainable, parameter_names
from gradveil.flower.validate_replies import ValidatedReplies
from gradveil.models.buffers import is_statistic

TrainingOf = Callable[[int, int], LocalTraining]  # of a round and a number of examples
NUMBER = bool | int | float
MOST_NUMBERS, LONGEST_NAME = 10_000, 50  # that a capture keeps beside its tensors, of all clients together
Models = Mapping[int, Mapping[str, Tensor]]  # node -> the model it was sent


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What the server knows of the federation it serves, and an audit needs."""

    training: LocalTraining | TrainingOf
    shape: tuple[int, int, int]
    classes: int
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    model: str = ""
    defense: str = ""  # as the clients say; nobody takes it as proof
    trainable: Trainable = None
    target: Target | None = None  # of masks and numbers; None: one of the classes, or several

    def training_of(self, round: int, examples: int) -> LocalTraining:
        return self.training if isinstance(self.training, LocalTraining) else self.training(round, examples)


def captures_of(round: int, sent: Models, found: ValidatedReplies, protocol: Protocol) -> list[Capture]:
    """One for all nodes that trained alike, which mostly are all. Nodes are named, since replies come in any order."""
    groups: dict[LocalTraining, list[int]] = {}
    others = sent_another_model(sent)
    for node in sorted(set(found.sound) - others):
        groups.setdefault(protocol.training_of(round, found.examples[node]), []).append(node)
    return [_capture(round, sent, found, protocol, training, nodes) for training, nodes in groups.items()]


def sent_another_model(sent: Models) -> set[int]:
    """A capture holds one model: nodes that were sent another than the first are not in it."""
    first = next(iter(sent.values()), {})
    return {node for node, model in sent.items() if not _same(model, first)}


def client_name(node: int) -> str:
    return f"node-{node}"


def _capture(
    round: int, sent: Models, found: ValidatedReplies, protocol: Protocol, training: LocalTraining, nodes: list[int]
) -> Capture:
    model = sent[nodes[0]]
    parameters, buffers = parameter_names(model, protocol.trainable), [name for name in model if is_statistic(name)]
    clients = {client_name(node): node for node in nodes}
    back = {c: {name: found.tensors[n][name] for name in buffers} for c, n in clients.items()} if buffers else {}
    seen = as_seen(training, model, back)
    return Capture(
        weights=model,
        updates={c: {p: model[p] - found.tensors[n][p] for p in parameters} for c, n in clients.items()},
        statistics=back,
        round=round,
        training=seen,
        examples={c: found.examples[n] for c, n in clients.items()},
        shape=protocol.shape,
        classes=protocol.classes,
        normalization=protocol.normalization,
        model=protocol.model,
        defense=protocol.defense,
        metrics={c: numbers_of(found.sound[n], MOST_NUMBERS // len(found.sound)) for c, n in clients.items()},
        producer="flower",
        target=protocol.target,
        declared={} if seen == training else {"batchnorm": training.batchnorm},
    )


def as_seen(
    training: LocalTraining, model: Mapping[str, Tensor], back: Mapping[str, Mapping[str, Tensor]]
) -> LocalTraining:
    """Clients whose running statistics came back changed normalized by their batches, and shared what they saw."""
    moved = any(list_moved(model, statistics) for statistics in back.values())
    return replace(training, batchnorm="batch-shared") if moved else training


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one is other or (set(one) == set(other) and all(t.equal(other[name]) for name, t in one.items()))


def numbers_of(reply: Message, most: int = MOST_NUMBERS) -> dict[str, float]:
    """The numbers that came with a reply: they are part of what the server sees. Those of a list are NAME.0, NAME.1."""
    return dict(islice(_all_numbers(reply), most))


def count_left_out(replies: Mapping[int, Message]) -> dict[str, int]:
    """By client, how many numbers are more than a capture keeps, or have a name that it does not take."""
    most = MOST_NUMBERS // max(1, len(replies))
    each = {node: _count_numbers(reply) for node, reply in replies.items()}
    kept = {node: len(numbers_of(reply, most)) for node, reply in replies.items()}
    return {client_name(node): count - kept[node] for node, count in each.items() if count > kept[node]}


def _all_numbers(reply: Message) -> Iterator[tuple[str, float]]:
    for key, value in _values(reply):
        if len(key) > LONGEST_NAME or not key.isprintable():
            continue
        if isinstance(value, list):
            yield from ((f"{key}.{at}", float(one)) for at, one in enumerate(value) if isinstance(one, NUMBER))
        elif isinstance(value, NUMBER):
            yield key, float(value)


def _count_numbers(reply: Message) -> int:
    each = (value if isinstance(value, list) else [value] for _, value in _values(reply))
    return sum(isinstance(one, NUMBER) for values in each for one in values)


def _values(reply: Message) -> Iterator[tuple[str, Any]]:
    for record in (*reply.content.metric_records.values(), *reply.content.config_records.values()):
        yield from record.items()
