"""`veil`: a defense as a Flower client mod. What it cannot defend, it does not send."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Message, MessageType
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import GradveilError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.from_text import defense_from
from gradveil.flower.arrays import Trainable, only_arrays, parameter_names, record_of, tensors_like, tensors_of
from gradveil.flower.defended_round import VeiledRound, place

ClientCall = Callable[[Message, Context], Message]
COUNT = "gradveil"  # the record of a client's state that counts its rounds


class VeilError(GradveilError):
    """An update that would have left the client without the defense. Flower tells the server this text."""


@dataclass(frozen=True, kw_only=True)
class Veil:
    """The defense around a training function. Frozen: what a round needs lives for that round alone.

    An app-wide mod sees every message; only answers to `train` may hold arrays.
    """

    defense: Defense
    trainable: Trainable = None
    seed: int | None = None
    public: Batch | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientCall) -> Message:
        if not is_train(message):
            return _without_arrays(call_next(message, context))
        _, sent = only_arrays(message.content, "the message")
        before = tensors_of(sent)  # read before the app can touch it
        round_ = VeiledRound(self.defense, self._seed(context), self.public)
        outer = place(context, round_)
        try:
            reply = call_next(message, context)
        finally:
            place(context, outer)
        return reply if reply.has_error() else self._veiled(before, reply, round_)

    def _veiled(self, before: dict[str, Tensor], reply: Message, round_: VeiledRound) -> Message:
        key, record = only_arrays(reply.content, "the reply")
        after = tensors_like(record, before)
        if round_.unused:
            raise VeilError(
                f"veil: the training function did not use stage {', '.join(round_.unused)} of the defense, nothing is "
                "sent; call gradveil.flower.local_update or gradveil.flower.veiled(context)"
            )
        if round_.answer is not None:
            _require_same(after, round_.answer)
        elif round_.defense.acts_at("update"):
            reply.content[key] = record_of({**after, **self._defended(before, after, round_)})
        return reply

    def _defended(self, before: dict[str, Tensor], after: dict[str, Tensor], round_: VeiledRound) -> dict[str, Tensor]:
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
    defense: str | Defense, *, trainable: Trainable = None, seed: int | None = None, public: Batch | None = None
) -> Veil:
    """A defense as on the command line (`"prune:ratio=0.9"`, `"ats:policy.json"`) for `ClientApp(mods=[veil(...)])`.

    `trainable`: the model or the names of its parameters, where buffers are not torch's running statistics. `seed` is
    for tests; left out, the random numbers come from the operating system anew in every round.
    """
    built = defense_from(defense, "veil") if isinstance(defense, str) else defense
    return Veil(defense=built, trainable=trainable, seed=seed, public=public)


def is_train(message: Message) -> bool:
    return message.metadata.message_type.split(".")[0] == MessageType.TRAIN


def _without_arrays(reply: Message) -> Message:
    if reply.has_content() and reply.content.array_records:
        raise VeilError(
            f"veil: the answer to a {reply.metadata.message_type} message holds arrays, nothing is sent; "
            "only answers to train messages can be defended"
        )
    return reply


def _require_same(after: dict[str, Tensor], answer: dict[str, Tensor]) -> None:
    """The training function may not go on training after `local_update`, outside of the defense."""
    changed = [name for name, t in after.items() if not t.equal(answer[name].to(t))]
    if changed:
        raise VeilError(f"veil: {changed[0]} is not what local_update returned, nothing is sent")
