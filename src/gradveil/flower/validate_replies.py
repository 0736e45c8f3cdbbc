"""Which replies of a round may be averaged: those of the nodes that were asked, whole, finite and of one form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from torch import Tensor

from gradveil.flower.arrays import ArraysError, only_arrays, tensors_like

LONGEST_REASON = 1_000_000  # characters; a longer one is no reason, and it would fill the disk of the server


@dataclass(frozen=True, kw_only=True)
class ValidatedReplies:
    """A round's replies. `passed` are for the strategy: the sound ones, and the errors, which it counts by itself."""

    passed: list[Message] = field(default_factory=list)
    sound: dict[int, Message] = field(default_factory=dict)  # by node
    tensors: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)  # node -> why
    weight: str = "num-examples"  # the metric that a strategy takes for the number of examples

    @property
    def examples(self) -> dict[int, int]:
        """By node, what it says; 0: it does not."""
        return {node: _count(reply, self.weight) for node, reply in self.sound.items()}


def validate_replies(
    replies: Iterable[Message],
    sent: Mapping[int, Mapping[str, Tensor]],
    messages: Mapping[str, int],
    *,
    weight: str,
    largest: float,
) -> ValidatedReplies:
    """Every reply in its place; a node that was sent a model and is in none of them has not answered in time.

    `messages` tells by its id which node a message went to: for one that is gone the SuperLink answers itself.
    """
    found = ValidatedReplies(weight=weight)
    for reply in replies:
        _file_reply(found, reply, _node(reply, sent, messages), sent, weight, largest)
    _leave_out_odd_forms(found)
    for node in sent:
        if node not in found.sound and node not in found.left_out:
            found.left_out[node] = "no reply in time"
    return found


def _node(reply: Message, sent: Mapping[int, Mapping[str, Tensor]], messages: Mapping[str, int]) -> int:
    """Who replied. Only an error may come from somebody else than the node that was asked."""
    source = reply.metadata.src_node_id
    return (
        messages.get(reply.metadata.reply_to_message_id, source) if source not in sent and reply.has_error() else source
    )


def _file_reply(
    found: ValidatedReplies,
    reply: Message,
    node: int,
    sent: Mapping[int, Mapping[str, Tensor]],
    weight: str,
    largest: float,
) -> None:
    if node not in sent:
        found.left_out[node] = "was not asked"
    elif node in found.sound:
        return  # the first reply counts
    elif reply.has_error():
        found.left_out[node] = _whole(f"error {reply.error.code}: {str(reply.error.reason).strip()}")
        found.passed.append(reply)
    else:
        try:
            found.tensors[node] = _sound_tensors(reply, sent[node], weight, largest)
        except ArraysError as error:
            found.left_out[node] = _whole(str(error))
        else:
            found.sound[node] = reply
            found.passed.append(reply)


def _sound_tensors(reply: Message, sent: Mapping[str, Tensor], weight: str, largest: float) -> dict[str, Tensor]:
    _, record = only_arrays(reply.content, "the reply")
    tensors = tensors_like(record, sent)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ArraysError(f"{name}: numbers that are not finite")
        if tensor.is_floating_point() and bool((tensor.double() - sent[name].double()).abs().gt(largest).any()):
            raise ArraysError(f"{name}: a step of more than {largest:g}")
    _check_weight(reply, weight)
    return tensors


def _whole(reason: str) -> str:
    """Uncut, unless it is out of all bounds, which is then said."""
    if len(reason) <= LONGEST_REASON:
        return reason
    return f"{reason[:LONGEST_REASON]} (the first {LONGEST_REASON:,} of {len(reason):,} characters)"


def _count(reply: Message, key: str) -> int:
    given = [record[key] for record in reply.content.metric_records.values() if key in record]
    return int(given[0]) if given and not isinstance(given[0], list) else 0


def _check_weight(reply: Message, key: str) -> None:
    """One NaN as the number of examples would be in every average."""
    for metrics in reply.content.metric_records.values():
        value = metrics.get(key, 1)
        if isinstance(value, list) or not (math.isfinite(value) and value > 0):
            raise ArraysError(f"{key}: not a number above 0")


def _leave_out_odd_forms(found: ValidatedReplies) -> None:
    """Flower refuses to average a round at all if one reply has other keys than the first."""
    forms = {node: _form(reply) for node, reply in found.sound.items()}
    if len(set(forms.values())) < 2:
        return
    usual = Counter(forms.values()).most_common(1)[0][0]
    for node, form in forms.items():
        if form != usual:
            found.passed.remove(found.sound.pop(node))
            found.tensors.pop(node)
            found.left_out[node] = "records of another form than the other replies"


def _form(reply: Message) -> tuple:
    metrics = {key: tuple(sorted(record)) for key, record in reply.content.metric_records.items()}
    return tuple(reply.content.array_records), tuple(sorted(metrics.items()))
