"""A ready Flower client: its pictures, a federation's training, a defense."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from gradveil.core.client import in_client_mode, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.flower.arrays import ArraysError, only_arrays, record_of, tensors_of
from gradveil.flower.defense_mod import bind_defense, load_arrays
from gradveil.flower.privacy_guard import VeilError
from gradveil.flower.strategy import CLIENT, EXAMPLES, LOSS, ROUND
from gradveil.train.client import Reply, as_buffers, client_reply, running_of
from gradveil.train.settings import Federation

MakeModel = Callable[[], nn.Module]
DataOf = Callable[[str], Batch]  # of a client's name, `client-3`
RESIDUAL = "gradveil-residual"  # what error feedback remembers, in the client's own state


@dataclass(frozen=True, kw_only=True)
class FlowerClient:
    """One client's side of a round. Small and plain, since a simulation sends it to a worker with every message."""

    model: MakeModel
    data: DataOf
    federation: Federation
    defense: Defense
    seed: int | None
    public: Batch | None = None
    last: int | None = None

    def train(self, message: Message, context: Context) -> Message:
        round = _round_of(message)
        if self.last is not None and round > self.last:
            raise VeilError(f"client: round {round} is above the last one that the privacy budget allows, {self.last}")
        _, sent = only_arrays(message.content, "the message")
        before = tensors_of(sent)
        model = load_arrays(self.defense.model(self.model()), sent)
        reply = self.reply(model, round, context)
        params = parameters_of(model)
        after = {name: params[name] - step for name, step in reply.update.items()}
        arrays = {**before, **after, **as_buffers(reply.statistics)}
        metrics = {EXAMPLES: reply.examples, LOSS: reply.loss.item(), CLIENT: number_of(context)}
        content = {"arrays": record_of({name: arrays[name] for name in sent}), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    def reply(self, model: nn.Module, round: int, context: Context) -> Reply:
        """By `client_reply`, as in every engine."""
        federation, name = self._federation(), f"client-{number_of(context)}"
        data = self.data(name)
        reply = client_reply(
            in_client_mode(model, federation.local_training(len(data.images), 0.0)),
            parameters_of(model),
            data,
            federation,
            bind_defense(self.defense, data, self.public),
            client=name,
            round=round,
            progress=federation.progress(round),
            running=running_of(model),
            residual=_residual(context),
        )
        if reply.residual is not None:
            context.state[RESIDUAL] = record_of(reply.residual)
        return reply

    def answer_query(self, message: Message, context: Context) -> Message:
        """Which client this node is, for a server that draws clients."""
        return Message(RecordDict({"metrics": MetricRecord({CLIENT: number_of(context)})}), reply_to=message)

    def _federation(self) -> Federation:
        """With random numbers that nobody else can know, unless a seed was given."""
        seed = int.from_bytes(os.urandom(32), "big") if self.seed is None else self.seed
        return replace(self.federation, seed=seed)


def client_app(
    model: MakeModel,
    data: DataOf,
    federation: Federation,
    defense: str | Defense = "none",
    *,
    seed: int | None = None,
    public: Batch | None = None,
    mods: Sequence[Any] = (),
    last: int | None = None,
) -> ClientApp:
    """A client that trains as `gradveil.train.federated` does. The node's `partition-id` is the number of the client.

    `seed` is for simulations, which give the local engine's numbers with the federation's own; left out, the random
    numbers come from the operating system anew in every round. `last` is the last round that a privacy budget allows:
    later ones are refused.
    """
    built = parse_defense(defense, "client_app") if isinstance(defense, str) else defense
    client = FlowerClient(
        model=model, data=data, federation=federation, defense=built, seed=seed, public=public, last=last
    )
    app = ClientApp(mods=list(mods))
    app.train()(client.train)
    app.query()(client.answer_query)
    return app


def number_of(context: Context) -> int:
    try:
        return int(context.node_config["partition-id"])
    except (KeyError, ValueError) as error:
        raise ArraysError('node-config: partition-id is missing, start the node with "partition-id=0"') from error


def _round_of(message: Message) -> int:
    """As the server counts. With fresh seeds a number that comes twice repeats nothing."""
    for config in message.content.config_records.values():
        if isinstance(found := config.get(ROUND), int) and found > 0:
            return found
    raise ArraysError(f"{ROUND}: the server does not say which round it is")


def _residual(context: Context) -> dict[str, Tensor] | None:
    residual: ArrayRecord | None = context.state.array_records.get(RESIDUAL)
    return None if residual is None else tensors_of(residual)
