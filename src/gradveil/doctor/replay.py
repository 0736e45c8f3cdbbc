"""Whether the pictures lead to the updates and, if they do not, why: causes ranked by what they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import get_args

from torch import Tensor

from gradveil import data
from gradveil.capture.causes.explain import Explanation, explain
from gradveil.capture.causes.story import Evidence, Story
from gradveil.capture.decoys import share_of_better
from gradveil.capture.format import Capture
from gradveil.capture.preflight import check_capture, pattern
from gradveil.capture.replay import Replay, compare, evidence_of
from gradveil.capture.truth import Found, find
from gradveil.config.captured_audit import group_clients
from gradveil.core.check import options_of
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Replayed
from gradveil.core.types import Batch
from gradveil.data import DATASETS, loader_of
from gradveil.defenses import DEFENSES
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

CLIENTS = 4  # that are played
SHOWN, LOOKED_AT = 3, 8  # causes
WORTH = 0.5  # of the squared difference: what a cause must explain to be named as likely
FILTERS = ("lanczos", "bicubic", "bilinear", "box", "nearest")
CROPS = ("center", "none", "resize-first")
MOST_RELOADED = 2000  # pictures
BY_CHANCE = 0.05  # of other pictures: how many may explain an update better than those that made it
WHY = "an audit of updates that these pictures do not lead to can only end inconclusive"


def look_at_replay(subject: Subject) -> Iterator[Finding]:
    capture = subject.capture
    if capture is None:
        return
    try:
        for note in check_capture(capture, subject.model, subject.config.scenario.capture):
            yield Finding(topic="capture", level="note", what=note)
    except ConfigError as error:
        yield Finding(topic="capture", level="problem", what=str(error), why="the audit refuses such a capture")
    if subject.dataset is None:
        return
    found = find(
        capture,
        subject.model,
        group_clients(capture, subject.config),
        subject.dataset,
        subject.config.scenario.pictures,
    )
    defenses = [DEFENSES[one.name](**one.options) for one in subject.config.defense.values()]
    stated = next((defense for defense in defenses if not defense.is_none), None)
    replays = {
        client: compare(capture, subject.model, client, found.batches[client], stated, found.decoys)
        for client in list(found.batches)[:CLIENTS]
    }
    worst = max(replays, key=lambda client: (get_args(Replayed).index(replays[client].status), replays[client].error))
    if replays[worst].status == "not reproduced":
        yield from _explain(subject, capture, worst, found, replays[worst].error)
        return
    yield _describe_success(capture, replays)


def _describe_success(capture: Capture, replays: Mapping[str, Replay]) -> Finding:
    names = ", ".join(replays)
    if all(one.status == "reproduced" for one in replays.values()):
        error = max(one.error for one in replays.values())
        what = f"the pictures reproduce the updates of {names} (largest relative error {error:.1e})"
        return Finding(topic="replay", level="ok", what=what)
    what = f"the pictures explain the updates of {names} better than other pictures do"
    left = next((one.pattern for one in replays.values() if one.pattern), "")
    if left:
        do = "name the defense that the client runs with `defense`"
        return Finding(topic="replay", level="note", what=f"{what}, but these were changed: {left}", do=do)
    what = f"{what}; more cannot be seen, since nobody knows what the clients drew ({capture.training.secrets})"
    return Finding(topic="replay", level="ok", what=what)


def _declared(subject: Subject, capture: Capture, batch: Batch) -> Story:
    return Story(model=subject.model, batch=batch, training=capture.training.for_examples(len(batch.images)))


def _explain(subject: Subject, capture: Capture, client: str, found: Found, error: float) -> Iterator[Finding]:
    assert subject.dataset is not None
    batch = found.batches[client]
    constants = tuple(subject.dataset.mean), tuple(subject.dataset.std)
    evidence = evidence_of(capture, subject.model, client, batch, constants)
    evidence = replace(evidence, until=subject.until, views=_list_views(subject, batch))
    ranked = explain(_declared(subject, capture, batch), evidence)
    what = f"{client}'s pictures do not lead to its update: relative error {error:.2g}"
    if evidence.is_late:
        do = "give more `seconds`, so that causes are tried together"
        yield Finding(topic="replay", level="note", what="the search for causes was cut off by its time", do=do)
    exact = bool(ranked) and ranked[0].error <= evidence.tolerance
    if not exact:
        yield from _note_state(capture)
    good = [one for one in ranked if one.share >= WORTH or one.is_like_a_draw][:LOOKED_AT]
    likely = list(islice((one for one in good if not _fits_others_too(one, evidence, found.decoys)), SHOWN))
    if not likely:
        left = pattern(evidence.update)
        reason = f"a defense may have been at work: {left}" if left else "nothing that was tried explains it"
        do = "check that these are the client's own pictures, in its order; name their rows with `pictures`"
        yield Finding(topic="replay", level="problem", what=f"{what}; {reason}", why=WHY, do=do)
        return
    best, *others = likely
    what = f"{what}. {'It fits if' if exact else 'Most likely'}: {best.name} ({describe(best)})"
    do = ", and ".join(one for one in dict.fromkeys(best.do) if one)
    yield Finding(topic="replay", level="problem", what=what, why=WHY, do=do)
    for one in () if exact else others:
        yield Finding(
            topic="replay",
            level="note",
            what=f"less likely: {one.name} ({describe(one)})",
            do=", and ".join(part for part in dict.fromkeys(one.do) if part),
        )


def _note_state(capture: Capture) -> Iterator[Finding]:
    """The state of an optimizer is in no update."""
    training = capture.training
    if capture.round > 0 and (training.optimizer != "sgd" or training.momentum):
        name = training.optimizer if training.optimizer != "sgd" else "momentum"
        yield Finding(
            topic="replay",
            level="note",
            what=f"a client that keeps the state of {name} from round to round cannot be replayed: round "
            f"{capture.round} is played with a new optimizer",
            do="make a new optimizer in every round, or capture the first round",
        )


def _fits_others_too(one: Explanation, evidence: Evidence, decoys: Batch | None) -> bool:
    """Draws can explain much: then other pictures would do as well as these."""
    if not one.story.training.draws or decoys is None:
        return False
    better = share_of_better(one.story, evidence.received(one.story.form), decoys)
    return better is not None and better > BY_CHANCE


def describe(one: Explanation) -> str:
    """What is left, and how much is explained."""
    if one.is_like_a_draw:
        return "the update lies among rounds with draws of our own; which ones the client had nobody knows"
    return f"relative error {one.error:.2g} is left, {one.share:.0%} of the difference is explained"


def _list_views(subject: Subject, batch: Batch) -> Callable[[], Iterable[tuple[str, Tensor]]]:
    """The client's pictures under other resizes and crops, where the data is made from files of another size."""
    scenario, dataset = subject.config.scenario, subject.dataset
    assert dataset is not None
    options = dict(scenario.data_options)
    rows = [int((dataset.images == one).flatten(1).all(1).nonzero()[0]) for one in batch.images]
    if not options.get("size") or len(dataset) > MOST_RELOADED or not _can_resize(scenario.data):
        return tuple

    @cache
    def views() -> tuple[tuple[str, Tensor], ...]:
        found = []
        for crop in sorted(CROPS, key=lambda crop: crop != options.get("crop", "center")):
            for one in FILTERS:
                if (one, crop) == (options.get("resize", "lanczos"), options.get("crop", "center")):
                    continue
                other = data.load(scenario.data, **{**options, "resize": one, "crop": crop})
                found.append((f"resize={one}, crop={crop}", other.images[rows]))
        return tuple(found)

    return views


def _can_resize(spec: str) -> bool:
    return {"resize", "crop"} <= set(options_of(DATASETS[loader_of(spec)]))
