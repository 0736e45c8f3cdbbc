"""An honest-but-curious server: any Flower strategy, and a capture of all that it saw.

Flower's own differential-privacy strategies wrap another strategy in the same way. Outside of them this one records
what the clients sent, inside of them what is left of it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from gradveil.capture import save
from gradveil.core.errors import ConfigError, GradveilError
from gradveil.core.files import private_files
from gradveil.flower.arrays import only_arrays, tensors_of
from gradveil.flower.round_capture import Protocol, captures_of, client_name, count_left_out, sent_another_model
from gradveil.flower.server_files import append_line, read_lines
from gradveil.flower.validate_replies import ValidatedReplies, validate_replies

ROUNDS = "rounds.jsonl"


class MissingNodesError(GradveilError):
    """A federation in which too few nodes are connected."""


class CuriousServer(Strategy):
    """Wraps a strategy and never changes what it does with sound replies; others do not reach it.

    A round with fewer than `min_replies` sound replies is void: the model stays as it was. `rounds` names those to
    capture (None: all). After a restart `done` rounds are behind us: Flower counts from 1 again, we and the inner
    strategy go on.
    """

    def __init__(
        self,
        inner: Strategy,
        folder: str | Path,
        protocol: Protocol,
        *,
        rounds: Iterable[int] | None = None,
        min_replies: int = 1,
        wait: float = 600.0,
        largest: float = 1e6,
        done: int = 0,
    ) -> None:
        self.inner, self.folder, self.protocol = inner, Path(folder), protocol
        self.rounds = None if rounds is None else frozenset(rounds)
        self.min_replies, self.wait, self.largest, self.done = min_replies, wait, largest, done
        self._sent: dict[int, dict[str, Tensor]] = {}  # between asking and averaging: node -> the model it was sent
        self._messages: list[Message] = []  # they get their ids when they are sent
        self.last: dict[str, Any] = {}  # the journal's last line
        with private_files():
            self.folder.mkdir(parents=True, exist_ok=True)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the inner strategy offers, such as `weighted_by_key`."""
        if "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["inner"], name)

    def summary(self) -> None:
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._wait_for_nodes(grid)
        messages = list(self.inner.configure_train(server_round + self.done, arrays, config, grid))
        self._sent, self._messages = _models_sent(messages), messages
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        weight = str(getattr(self.inner, "weighted_by_key", "num-examples"))
        number, asked = (
            server_round + self.done,
            {m.metadata.message_id: m.metadata.dst_node_id for m in self._messages},
        )
        found = validate_replies(replies, self._sent, asked, weight=weight, largest=self.largest)
        notes = self._capture(number, found) if self.rounds is None or number in self.rounds else {}
        void = len(found.sound) < self.min_replies
        answer = (None, None) if void else self.inner.aggregate_train(number, found.passed)
        self.last = self._line(number, found, notes | {"void": answer[0] is None, "metrics": _numbers(answer[1])})
        append_line(self.folder / ROUNDS, self.last)
        return answer

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.inner.configure_evaluate(server_round + self.done, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.inner.aggregate_evaluate(server_round + self.done, replies)

    def _wait_for_nodes(self, grid: Grid) -> None:
        """Flower itself waits for ever."""
        needed, end = int(getattr(self.inner, "min_available_nodes", 0)), time.monotonic() + self.wait
        while len(nodes := sorted(grid.get_node_ids())) < needed:
            if time.monotonic() > end:
                names = ", ".join(map(str, nodes)) or "none"
                raise MissingNodesError(
                    f"flower: {len(nodes)} of {needed} nodes are connected after {self.wait:g} s ({names}), "
                    "start the others or lower min_available_nodes"
                )
            time.sleep(0.2)

    def _capture(self, server_round: int, found: ValidatedReplies) -> dict[str, Any]:
        """Files written, and what is missing in them: the federation goes on all the same."""
        notes: dict[str, Any] = {"captures": []}
        if others := sent_another_model(self._sent):
            notes["sent_another_model"] = sorted(map(client_name, others))
        if many := count_left_out(found.sound):
            notes["metrics_left_out"] = many
        try:
            for number, one in enumerate(captures_of(server_round, self._sent, found, self.protocol), 1):
                name = f"round-{server_round:04d}{f'.{number}' if number > 1 else ''}.safetensors"
                save(self.folder / name, one)
                notes["captures"].append(name)
                if one.declared:
                    notes["batchnorm"] = {"declared": one.declared["batchnorm"], "seen": one.training.batchnorm}
        except ConfigError as error:
            notes["not_captured"] = str(error).replace(f"{self.folder}{os.sep}", "")
        return notes

    def _line(self, number: int, found: ValidatedReplies, notes: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "round": number,
            "asked": sorted(map(client_name, self._sent)),
            "kept": sorted(map(client_name, found.sound)),
            "left_out": {client_name(node): why for node, why in sorted(found.left_out.items())},
            **notes,
        }


def read_rounds(folder: str | Path) -> list[dict[str, Any]]:
    """The journal of a curious server."""
    return read_lines(Path(folder) / ROUNDS)


def _models_sent(messages: Iterable[Message]) -> dict[int, dict[str, Tensor]]:
    """By node. A strategy mostly sends one record to all, which is read once."""
    read: dict[int, dict[str, Tensor]] = {}
    sent = {}
    for message in messages:
        _, record = only_arrays(message.content, "the message")
        if id(record) not in read:
            read[id(record)] = tensors_of(record)
        sent[message.metadata.dst_node_id] = read[id(record)]
    return sent


def _numbers(metrics: MetricRecord | None) -> dict[str, float]:
    """What JSON can hold of the strategy's own means."""
    plain = {} if metrics is None else {k: float(v) for k, v in metrics.items() if not isinstance(v, list)}
    return {key: value for key, value in plain.items() if math.isfinite(value)}
