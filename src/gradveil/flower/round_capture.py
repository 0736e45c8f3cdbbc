"""A round of Flower as captures: the model as sent and what every node sent back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flwr.app import Message
from torch import Tensor

from gradveil.capture import Capture
from gradveil.core.scenario import LocalTraining
from gradveil.core.target import Target
from gradveil.flower.arrays import Trainable, parameter_names
from gradveil.flower.validate_replies import ValidatedReplies

STATISTICS = ("running_mean", "running_var")
TrainingOf = Callable[[int, int], LocalTraining]  # of a round and a number of examples
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
        groups.setdefault(protocol.training_of(round, _examples(found.sound[node])), []).append(node)
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
    parameters = parameter_names(model, protocol.trainable)
    shared = [n for n in model if n.rpartition(".")[2] in STATISTICS] if training.batchnorm == "batch-shared" else []
    clients = {client_name(node): node for node in nodes}
    return Capture(
        weights=model,
        updates={c: {p: model[p] - found.tensors[n][p] for p in parameters} for c, n in clients.items()},
        statistics={c: {s: found.tensors[n][s] for s in shared} for c, n in clients.items()} if shared else {},
        round=round,
        training=training,
        examples={c: _examples(found.sound[n]) for c, n in clients.items()},
        shape=protocol.shape,
        classes=protocol.classes,
        normalization=protocol.normalization,
        model=protocol.model,
        defense=protocol.defense,
        metrics={c: _metrics(found.sound[n]) for c, n in clients.items()},
        producer="flower",
        target=protocol.target,
    )


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one is other or (set(one) == set(other) and all(t.equal(other[name]) for name, t in one.items()))


def _metrics(reply: Message) -> dict[str, float]:
    """All single numbers that came with a reply: they are part of what the server sees."""
    records = reply.content.metric_records.values()
    pairs = [(key, value) for record in records for key, value in record.items()]
    numbers = {key: float(value) for key, value in pairs if not isinstance(value, list)}
    return {key: value for key, value in numbers.items() if abs(value) < float("inf")}


def _examples(reply: Message) -> int:
    return max(0, int(_metrics(reply).get("num-examples", 0)))
