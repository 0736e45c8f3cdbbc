"""`veil`: a defense as a Flower client mod, and `defense_of(context)`: its stages for the training function.

What the mod cannot defend, it does not send.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType
from torch import Tensor, nn

from gradveil.core import client
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn
from gradveil.defenses import parse_defense
from gradveil.dp.allowance import allowance_of
from gradveil.dp.budget import DELTA
from gradveil.flower.arrays import Trainable, only_arrays, parameter_names, record_of, tensors_like, tensors_of
from gradveil.flower.privacy_guard import Limit, Spending, VeilError
from gradveil.recommend.deploy import PREFIX, read_deployed

ClientCall = Callable[[Message, Context], Message]
COUNT = "gradveil"  # the record of a client's state that counts its rounds
STAGES = ("model", "data", "batch", "gradient")  # those that a mod cannot reach by itself
_PLACE = "_gradveil_round"  # an attribute and no record: the state of a context is kept, and random numbers must not be


@dataclass(frozen=True, kw_only=True)
class Veil:
    """The defense around a training function. Frozen: what a round needs lives for that round alone.

    An app-wide mod sees every message; only answers to `train` may hold arrays.
    """

    defense: Defense
    trainable: Trainable = None
    seed: int | None = None
    public: Batch | None = None
    limit: Limit | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientCall) -> Message:
        if not is_train(message):
            return _without_arrays(call_next(message, context))
        _, sent = only_arrays(message.content, "the message")
        before = tensors_of(sent)  # read before the app can touch it
        names = () if self.limit is None else parameter_names(before, self.trainable)
        spending = None if self.limit is None else self.limit.begin(self.defense, names, context)
        round_ = DefendedRound(self.defense, self._seed(context), self.public, spending)
        outer = swap_round(context, round_)
        try:
            reply = call_next(message, context)
        finally:
            swap_round(context, outer)
        if reply.has_error():
            return reply
        defended = self._defend_reply(before, reply, round_)
        if spending is not None:
            spending.keep(context)
        return defended

    def _defend_reply(self, before: dict[str, Tensor], reply: Message, round_: DefendedRound) -> Message:
        key, record = only_arrays(reply.content, "the reply")
        after = tensors_like(record, before)
        if self.limit is not None:
            _refuse_statistics(before, after, parameter_names(before, self.trainable))
        if round_.unused_stages:
            raise VeilError(
                f"veil: the training function did not use stage {', '.join(round_.unused_stages)} of the defense, "
                "nothing is sent; call gradveil.flower.local_update or gradveil.flower.defense_of(context)"
            )
        if round_.answer is not None:
            _require_same(after, round_.answer)
        elif round_.defense.acts_at("update"):
            reply.content[key] = record_of({**after, **self._apply_update_stage(before, after, round_)})
        return reply

    def _apply_update_stage(
        self, before: dict[str, Tensor], after: dict[str, Tensor], round_: DefendedRound
    ) -> dict[str, Tensor]:
        names = parameter_names(before, self.trainable)
        update = round_.update({name: before[name] - after[name] for name in names})
        if missing := set(names) - set(update):
            raise VeilError(f"veil: the defense left out {', '.join(sorted(missing)[:3])}, nothing is sent")
        return {name: (before[name] - update[name]).to(before[name].dtype) for name in names}

    def _seed(self, context: Context) -> Seed:
        """Fresh numbers for every call, whatever the server repeats: noise that is used twice can be subtracted."""
        if self.seed is None:
            return Seed(int.from_bytes(os.urandom(32), "big"))
        done = context.state.config_records.get(COUNT, ConfigRecord({"rounds": 0}))["rounds"]
        context.state[COUNT] = ConfigRecord({"rounds": int(done) + 1})  # type: ignore[arg-type]
        return Seed(self.seed).at("veil", str(context.node_config.get("partition-id", context.node_id)), int(done))  # type: ignore[arg-type]


def veil(
    defense: str | Defense,
    *,
    trainable: Trainable = None,
    seed: int | None = None,
    public: Batch | None = None,
    epsilon_at_most: float | None = None,
    delta: float = DELTA,
) -> Veil:
    """A defense as on the command line (`"prune:ratio=0.9"`, `"ats:policy.json"`) for `ClientApp(mods=[veil(...)])`.

    `"recommended:RUN"` is the one that the recommendation in folder RUN names. It is read here, once.
    `trainable`: the model or the names of its parameters, where buffers are not torch's running statistics. `seed` is
    for tests; left out, the random numbers come from the operating system anew in every round. `epsilon_at_most` is a
    privacy budget at `delta`, for this run: a round that would exceed it is refused, and nothing is sent.
    """
    built = _read(defense) if isinstance(defense, str) else defense
    limit = None if epsilon_at_most is None else Limit(epsilon_at_most=epsilon_at_most, delta=delta)
    if limit is not None:
        allowance_of(built, 1, limit.epsilon_at_most, limit.delta)  # a defense without an epsilon is refused here
    return Veil(defense=built, trainable=trainable, seed=seed, public=public, limit=limit)


def _read(text: str) -> Defense:
    recommended = text.removeprefix(PREFIX)
    return parse_defense(text if recommended == text else read_deployed(recommended), "veil")


def is_train(message: Message) -> bool:
    return message.metadata.message_type.split(".")[0] == MessageType.TRAIN


def _without_arrays(reply: Message) -> Message:
    if reply.has_content() and reply.content.array_records:
        raise VeilError(
            f"veil: the answer to a {reply.metadata.message_type} message holds arrays, nothing is sent; "
            "only answers to train messages can be defended"
        )
    return reply


def _refuse_statistics(before: dict[str, Tensor], after: dict[str, Tensor], names: Sequence[str]) -> None:
    """What is no parameter leaves without noise, and no budget covers it."""
    beside = [name for name in before if name not in names and before[name].is_floating_point()]
    if changed := [name for name in beside if not after[name].equal(before[name])]:
        raise VeilError(
            f"veil: {changed[0]} leaves without noise, which `epsilon_at_most` does not cover, nothing is sent; "
            "train with BatchNorm in evaluation mode, or keep the statistics at the client"
        )


def _require_same(after: dict[str, Tensor], answer: dict[str, Tensor]) -> None:
    """The training function may not go on training after `local_update`, outside of the defense."""
    changed = [name for name, t in after.items() if not t.equal(answer[name].to(t))]
    if changed:
        raise VeilError(f"veil: {changed[0]} is not what local_update returned, nothing is sent")


class DefendedRound:
    """For a training loop of the user's own: every stage of the defense, to be called where it belongs."""

    def __init__(
        self, defense: Defense, seed: Seed, public: Batch | None = None, spending: Spending | None = None
    ) -> None:
        self.defense, self.public, self.spending = defense, public, spending
        self.used: set[str] = set()
        self.answer: dict[str, Tensor] | None = None  # of `local_update`, with all stages behind it
        self._data_rng, self._rng = seed.at("data").rng(), seed.at("client").rng()

    @property
    def unused_stages(self) -> tuple[str, ...]:
        return tuple(stage for stage in STAGES if self.defense.acts_at(stage) and stage not in self.used)

    def model(self, model: nn.Module) -> nn.Module:
        """Once, before the weights are load_arrays. The server has to send the same architecture."""
        self.used.add("model")
        return self.defense.model(model)

    def data(self, data: Batch) -> Batch:
        """Once a round, on the client's data."""
        self.used.add("data")
        self.defense = bind_defense(self.defense, data, self.public)
        return self.defense.data(data, self._data_rng)

    def batch(self, batch: Batch) -> Batch:
        """Every step. Labels are soft: [example, class]."""
        self.used.add("batch")
        return self.defense.batch(batch, self._rng)

    def gradient(self, compute: GradientFn, model: nn.Module) -> GradientFn:
        """Around the gradient of the mean loss."""
        self.used.add("gradient")
        noisy = self.defense.gradient(compute, model, self._rng)
        return noisy if self.spending is None else self.spending.count_calls(noisy)

    def update(self, update: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Last, on what is sent; the mod calls it."""
        return self.defense.update(update, self._rng)

    def local_update(self, model: nn.Module, sent: ArrayRecord, data: Batch, training: LocalTraining) -> ArrayRecord:
        """The round of `gradveil.core.client.local_update` from the weights as sent: the weights to send back."""
        if self.spending is not None:
            self.spending.spend_training(training, len(data.images))
        model, data = load_arrays(self.model(model), sent), self.data(data)
        params, inner = client.parameters_of(model), client.in_client_mode(model, training)
        update = client.local_update(inner, params, data, training, self.defense, self._rng)
        self.used.update(STAGES)
        after = {name: params[name] - step for name, step in update.items()}
        self.answer = {**{n: t.detach() for n, t in model.state_dict().items()}, **after}
        return record_of({name: self.answer[name] for name in sent})


def bind_defense(defense: Defense, data: Batch, public: Batch | None) -> Defense:
    """As an audit binds it: public pictures for those who mix with them, and too few pictures refused."""
    private = Batch(data.images[None], data.labels[None])
    return defense.bind(Scenario(name="flower", model=nn.Identity(), private=private, names=("client",), public=public))


def load_arrays(model: nn.Module, sent: ArrayRecord) -> nn.Module:
    try:
        model.load_state_dict(tensors_of(sent))
    except RuntimeError as error:
        raise ConfigError(
            "model: the server's arrays do not fit it; where the defense changes the model, the server has to start "
            "from Defense.model(model) too"
        ) from error
    return model


def defense_of(context: Context) -> DefendedRound:
    """The defense of this round; without a mod none, so that the same training function runs with and without."""
    found: Any = getattr(context, _PLACE, None)
    return DefendedRound(Defense(), Seed()) if found is None else found


def swap_round(context: Context, round_: DefendedRound | None) -> DefendedRound | None:
    """Put a round where `defense_of` finds it; returns the round that was there before."""
    before = getattr(context, _PLACE, None)
    if round_ is None:
        vars(context).pop(_PLACE, None)
    else:
        setattr(context, _PLACE, round_)
    return before


def local_update(
    model: nn.Module, message: Message, data: Batch, context: Context, training: LocalTraining | None = None
) -> ArrayRecord:
    """One client's round with every stage of the mod's defense: `RecordDict({"arrays": local_update(...), ...})`."""
    _, sent = only_arrays(message.content, "the message")
    return defense_of(context).local_update(model, sent, data, training or LocalTraining())
