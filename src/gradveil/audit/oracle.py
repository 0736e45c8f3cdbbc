"""The oracle: the truth, put through the attacker's own client, must explain the update that came.

If it does not, client and attacker do not speak of the same update, and what the attack failed to see means nothing.
The clients also play once more with new draws: noise that an attack has fitted explains nothing of that update, and an
update that came swapped, zeroed, scaled or late is not like it. Those rounds are played here and not by `observe`, so
that what goes wrong between the client and the server shows.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradveil.audit.own_client import (
    OwnClient,
    share_explained,
    share_matched,
    share_of_zeros,
    share_repeated,
    share_zeroed,
)
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.audit.second_round import Clients, Played, is_another
from gradveil.audit.self_score import share_known
from gradveil.core.attack import Reconstruction
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed, uniform
from gradveil.core.server import as_one_client
from gradveil.core.types import Batch, Update
from gradveil.experiment.plausible import is_number
from gradveil.metrics.align import BLANK

RECONSTRUCTION, TRUTH, ANOTHER, AGAIN = "reconstruction", "truth", "another", "_again"
FOUND = "found"  # as the reconstruction, through the view of the pictures that an attacker who knows it looks through
PLAIN, MATCHED = "plain", "matched"  # what a client without a defense explains; the share of numbers that is matched
REPEATED = "repeated"  # the share of the update that the truth leaves unexplained and that new draws bring again
ZEROED = "zeroed"  # the share of what the attacker's client sends, by squared length, that came as exact zeros
ALIKE = "alike"  # 1 where two clients have sent the same: then the pictures do not matter
WRONG = "wrong"  # 1 where the attacker was given other labels or training, or is scored on other pictures
REPLAY = "replay"  # what the client itself explains, played again by the same draws
KNOWN = "known"  # the share of a client's true pictures that the scores know when they are shown them
ZEROS = 0.1  # a defense sends this share more exact zeros than the client has: flag
MASKED, DRAWN, FLAT, WORSE = "zeros-in-update", "changes-with-each-draw", "no-slope", "truth-explains-less"
CLEARLY = 0.02  # by so much a reconstruction has to explain more than the truth
KEPT_BYTES = 16 * 2**20  # of updates of a second round; larger ones are played again
VIEWS = 64  # looked through
ROUNDS = 32  # rounds that are remembered


class Explained(NamedTuple):
    """By client: what explains how much of the update, and the doubts."""

    numbers: Sequence[Mapping[str, float]] = ()
    flags: Sequence[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()

    def of(self, client: int) -> dict[str, float]:
        numbers = self.numbers[client] if self.numbers else {}
        return {name: value for name, value in numbers.items() if is_number(value)}

    def doubts(self, client: int) -> tuple[str, ...]:
        return self.flags[client] if self.flags else ()

    def add(self, name: str, values: Sequence[float]) -> Explained:
        """One more number of each client."""
        return self._replace(numbers=[{**one, name: value} for one, value in zip(self.numbers, values, strict=True)])


NOTHING = Explained()


def explain(cell: Cell, seen: Observation, truth: Truth, got: Reconstruction, judge: Judge | None = None) -> Explained:
    """Nothing for a control that saw another update. What goes wrong here fails no trial.

    judge: whose scores are tried on the true pictures; None: they are not.
    """
    if cell.control not in ("", "doubled") or _ignores_the_defense(cell):
        return NOTHING
    try:
        found = _explain(cell, seen, truth, got)
        return found if judge is None else found.add(KNOWN, share_known(cell, got, truth, judge).tolist())
    except Exception as error:  # whatever a defense or a model of the user's raises
        return Explained(notes=(f"oracle: {type(error).__name__}: {' '.join(str(error).split())}"[:300],))


def _ignores_the_defense(cell: Cell) -> bool:
    """Whether its client is wrong on purpose: beside it the same attack runs with the defense's surrogate."""
    if cell.attacker == "adaptive" or cell.undefended or not cell.defense.has_adaptive_attacker:
        return False
    return not replace(cell, attacker="adaptive").repeats


def _explain(cell: Cell, seen: Observation, truth: Truth, got: Reconstruction) -> Explained:
    own, known, clients = OwnClient.of(seen, cell.scenario), remember(cell, seen, truth), _clients(cell, seen)
    numbers = [dict(one) for one in known.numbers]
    for client, found in enumerate(numbers):
        update = _of(seen.update, client)
        trained = _retrace(own, seen, truth, got, client)
        if trained is None:
            continue
        found[RECONSTRUCTION] = own.explain(trained, update)
        if views := list(_through_views(own, seen, got, client, trained)):
            found[FOUND] = max(own.explain(view, update) for view in views)
        if known.redrawn:
            fresh = known.fresh.get(client) or clients.play(client, "again").update
            found[RECONSTRUCTION + AGAIN] = own.explain(trained, fresh)
    worse = [not cell.undefended and _is_worse(found) for found in numbers]
    flags = [(*flags, WORSE) if is_worse else flags for flags, is_worse in zip(known.flags, worse, strict=True)]
    return Explained(numbers, flags)


def _is_worse(found: Mapping[str, float]) -> bool:
    suffix = AGAIN if TRUTH + AGAIN in found else ""
    return found.get(RECONSTRUCTION + suffix, -math.inf) > found.get(TRUTH + suffix, math.inf) + CLEARLY


def _retrace(own: OwnClient, seen: Observation, truth: Truth, got: Reconstruction, client: int) -> Update | None:
    """What the client trains on the reconstruction; None where that is no batch that a client could have."""
    copies, count, update = seen.knowledge.copies, got.images.shape[1], _of(seen.update, client)
    like = next(iter(update.values()))
    batch = Batch(_blank_unfound(got, client).to(like), got.labels[client].detach().to(like))
    if not (batch.images.isfinite().all() and batch.labels.isfinite().all()):
        return None
    if count == seen.examples:
        return own.train(batch, update)
    if count == copies * seen.examples:  # an attack that reads off whatever was fed, copies too
        return own.train_as_fed(_batch(truth.private, client), update, own.in_steps(batch, copies))
    return None


def _blank_unfound(got: Reconstruction, client: int) -> Tensor:
    """What is scored: gray stands in for a picture that the attack says it has not found."""
    images, found = got.images[client].detach(), got.found[client]
    return torch.where(found.view(-1, 1, 1, 1).to(images.device), images, BLANK)


def _through_views(
    own: OwnClient, seen: Observation, got: Reconstruction, client: int, trained: Update
) -> Iterator[Update]:
    """What the search has matched; nothing for a batch of which nobody says through which view each picture went."""
    views, update = seen.knowledge.views, _of(seen.update, client)
    if not views or got.images.shape[1] == 1:
        yield trained
    like, labels = next(iter(update.values())), got.labels[client].detach()
    if got.fed is not None:
        yield own.train(Batch(got.fed[client].detach().to(like), labels.to(like)), update)
    for view in views[:VIEWS] if got.images.shape[1] == 1 else ():
        yield own.train(Batch(view.apply(_blank_unfound(got, client).to(like)), labels.to(like)), update)


@dataclass(frozen=True, kw_only=True)
class KnownRound:
    """What can be said of a round whatever attacks it."""

    parts: tuple[Any, ...]  # the objects that it was computed from
    marks: tuple[Any, ...]  # of the updates and the pictures
    numbers: Sequence[Mapping[str, float]]
    flags: Sequence[tuple[str, ...]]
    redrawn: bool  # whether the second round's updates are others
    fresh: Mapping[int, Update] = field(repr=False)  # those of them that were kept


_rounds: OrderedDict[tuple[Any, ...], KnownRound] = OrderedDict()
_lock = Lock()


def remember(cell: Cell, seen: Observation, truth: Truth) -> KnownRound:
    """All attacks on a round share it; a model that an attack has changed is its own."""
    planted = cell.attack if "malicious" in cell.method.requires else ""
    key = cell.observed, cell.scenario.names, cell.attacker, planted
    parts, marks = (cell.defense, cell.scenario.model), fingerprint(seen.update, truth.private)
    with _lock:
        found = _rounds.get(key)
    if found is None or found.marks != marks or any(x is not y for x, y in zip(found.parts, parts, strict=True)):
        found = look_at_round(cell, seen, truth, parts, marks)
        with _lock:
            _rounds[key] = found
            while len(_rounds) > ROUNDS:
                _rounds.popitem(last=False)
    return found


def fingerprint(update: Update, private: Batch) -> tuple[Any, ...]:
    """Sums: a round is too large to be kept for a comparison."""
    tensors = (*update.values(), *private)
    return tuple((x.double().sum().item(), tuple(x.double().flatten(1).square().sum(1).tolist())) for x in tensors)


def look_at_round(
    cell: Cell, seen: Observation, truth: Truth, parts: tuple[Any, ...], marks: tuple[Any, ...]
) -> KnownRound:
    """The round of every client, and a second one, explained by its pictures and by another client's."""
    own, clients = OwnClient.of(seen, cell.scenario), _clients(cell, seen)
    looks = [_look_at_client(cell, clients, own, seen, truth, client) for client in range(len(seen.names))]
    redrawn = any(look.redrawn for look in looks)
    for client, look in enumerate(looks):
        if len(looks) > 1:
            other = _of(seen.update, client - 1)
            look.numbers |= {ALIKE: 1.0} if _is_same(_of(seen.update, client), other) else {}
            look.numbers[ANOTHER] = own.explain(looks[client - 1].trained, _of(seen.update, client))
        if not redrawn:
            look.numbers.pop(TRUTH + AGAIN, None)
    flat = cell.scenario.received is None and _is_flat(own, seen, truth, looks[0])
    flags = [(*look.flags, *((FLAT,) if flat else ())) for look in looks] if not cell.undefended else [()] * len(looks)
    fresh = {client: look.fresh for client, look in enumerate(looks) if look.fresh} if redrawn else {}
    size = sum(u.numel() * u.element_size() for update in fresh.values() for u in update.values())
    return KnownRound(parts=parts, marks=marks, numbers=[look.numbers for look in looks], flags=flags,
                      redrawn=redrawn, fresh=fresh if size <= KEPT_BYTES else {})  # fmt: skip


@dataclass
class Look:
    """One client's two rounds."""

    numbers: dict[str, float]
    flags: tuple[str, ...]
    redrawn: bool
    fresh: Update
    trained: Update  # on the private pictures, by the attacker's client


def _look_at_client(cell: Cell, clients: Clients, own: OwnClient, seen: Observation, truth: Truth, client: int) -> Look:
    update, private = _of(seen.update, client), _in_order(_batch(truth.private, client), cell.scenario)
    trained = own.train(private, update)
    if cell.scenario.received is not None:  # nobody can play real clients again
        return Look({TRUTH: own.explain(trained, update)}, (), False, {}, trained)
    first = clients.play(client)
    second = first if cell.undefended else clients.play(client, "again")
    if not (right := _is_right(cell, own, seen, truth, client)):
        own = replace(own, training=as_one_client(cell.scenario.training.as_attacked(), cell.scenario))
        private = _in_order(_batch(cell.scenario.private, client), cell.scenario)
        trained = own.train(private, update)
    ways = list(_ways(own, update, private, trained, first))
    again = ways if second is first else list(_ways(own, second.update, private, trained, second))
    best, best_again = _best(own, ways, update), _best(own, again, second.update)
    numbers = {
        TRUTH: share_explained(update, best),
        TRUTH + AGAIN: share_explained(second.update, best_again),
        REPEATED: share_repeated(update, best, second.update, best_again),
        ZEROED: share_zeroed(update, best),
        PLAIN: _explain_plainly(own, update, private, ways, first),
        MATCHED: share_matched(update, own.send(ways[-1], update)),
        **({} if right else {WRONG: 1.0}),
    }
    if not is_another(first.update, update) or not is_another(first.update, clients.play(client).update):
        numbers[REPLAY] = share_explained(update, first.update)
    masked = not _is_finite(update) or share_of_zeros(update) > share_of_zeros(ways[-1]) + ZEROS
    redrawn = is_another(first.update, second.update)
    raised = {MASKED: masked, DRAWN: redrawn}
    flags = tuple(name for name, is_raised in raised.items() if is_raised)
    return Look(numbers, flags, redrawn, second.update, trained)


def _best(own: OwnClient, ways: Sequence[Update], update: Update) -> Update:
    """What is sent in the way that explains the update best."""
    return max((own.send(way, update) for way in ways), key=lambda sent: share_explained(update, sent))


def _explain_plainly(own: OwnClient, update: Update, private: Batch, ways: Sequence[Update], played: Played) -> float:
    """By a client without a defense."""
    surrogate, plain = own.surrogate(update), replace(own, defense=None)
    if any(surrogate.acts_at(stage) for stage in ("data", "batch", "gradient")):
        ways = list(_ways(plain, update, private, plain.train(private, update), played))
    return max(plain.explain(way, update) for way in ways)


def _clients(cell: Cell, seen: Observation) -> Clients:
    return Clients.of(cell.scenario, cell.defense, seen.model, cell.observed)


def _ways(own: OwnClient, update: Update, private: Batch, trained: Update, played: Played) -> Iterator[Update]:
    """What the truth may mean: the private pictures and, where others were fed, those."""
    yield trained
    raw = own.training.batches(private)
    if any(not _equal(batch, fed) for batch, fed in zip(raw, played.fed, strict=True)):
        yield own.train_as_fed(private, update, played.fed)


def _equal(one: Batch, other: Batch) -> bool:
    return all(x.shape == y.shape and torch.equal(x, y) for x, y in zip(one, other, strict=True))


def _is_right(cell: Cell, own: OwnClient, seen: Observation, truth: Truth, client: int) -> bool:
    """Whether the attacker has the true training and the labels that were fed, and is scored on what was trained on."""
    given = None if seen.labels is None else seen.labels[client]
    return (
        (given is None or torch.equal(given, truth.fed.labels[client][:: seen.knowledge.copies]))
        and torch.equal(truth.private.images[client], cell.scenario.private.images[client])
        and own.training == as_one_client(cell.scenario.training.as_attacked(), cell.scenario)
    )


def _is_flat(own: OwnClient, seen: Observation, truth: Truth, look: Look) -> bool:
    """Whether the attacker's match differs between the truth and noise, and has no usable slope; for the first client.

    At the truth alone it may be flat: there it is a maximum.
    """
    update, private = _of(seen.update, 0), _batch(truth.private, 0)
    noise = uniform(private.images.shape, Seed().at("oracle", "start").rng(), private.images)
    start = Batch(noise, private.labels)
    slopes = [own.slope(pictures, update) for pictures in (private, start)]
    if not all(slope.isfinite().all() for slope in slopes):
        return True
    values = [own.explain(trained, update) for trained in (look.trained, own.train(start, update))]
    return not slopes[1].any() and abs(values[0] - values[1]) > 0


def _in_order(batch: Batch, scenario: Scenario) -> Batch:
    """A group's pictures as one client would hold them that takes the minibatches of all members at once."""
    size, count = scenario.training.batch_size, scenario.aggregate
    if size is None or count == 1:
        return batch
    pieces = [x.unflatten(0, (count, -1)).split(size, 1) for x in batch]
    return Batch(*(torch.cat([piece.flatten(0, 1) for piece in of_one]) for of_one in pieces))


def _batch(batch: Batch, client: int) -> Batch:
    return Batch(batch.images[client], batch.labels[client])


def _of(update: Update, client: int) -> Update:
    return {name: u[client] for name, u in update.items()}


def _is_same(one: Update, other: Update) -> bool:
    """To the last bit: whatever differs may be what tells the pictures apart."""
    return all(torch.equal(u, other[name]) for name, u in one.items())


def _is_finite(update: Update) -> bool:
    return all(bool(u.isfinite().all()) for u in update.values())
