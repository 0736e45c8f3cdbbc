"""Faults of what is stored: records and provenance of a finished run, changed and judged again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from factory.fault import fault, has
from gradveil.experiment.record import Record

DEFENDED = has("-alone")
ALONE = has("alone")


@dataclass
class Folder:
    """What lies in a run's folder, as far as a verdict reads it."""

    records: list[Record]
    provenance: dict[str, Any]
    config: dict[str, Any]

    def drop(self, which: Callable[[Record], bool]) -> None:
        self.records = [record for record in self.records if not which(record)]

    def change(self, which: Callable[[Record], bool], **fields: Any) -> None:
        self.records = [replace(r, **fields) if which(r) else r for r in self.records]

    def rescore(self, which: Callable[[Record], bool], change: Callable[[dict[str, float]], dict[str, float]]) -> None:
        self.records = [replace(r, scores=change(r.scores)) if which(r) and r.scores else r for r in self.records]


def is_defended(record: Record) -> bool:
    return record.defense == "d"


def is_adaptive(record: Record) -> bool:
    return record.attacker == "adaptive"


def is_leaking(record: Record) -> bool:
    """Of a picture that was found, or nearly."""
    return not record.control and any(v > 0 for name, v in record.scores.items() if name.startswith("retrieval"))


def fail(folder: Folder, which: Callable[[Record], bool]) -> None:
    folder.change(which, status="failed", scores={}, loss=None, reason="RuntimeError: lost")


def blind(folder: Folder, which: Callable[[Record], bool]) -> None:
    """As if the attack had seen nothing there: what leaks must not hide the other fault."""
    folder.rescore(
        lambda r: which(r) and not r.control,
        lambda scores: {n: 0.0 if n.startswith("retrieval") else min(v, 5.0) for n, v in scores.items()},
    )


def one_in(n: int, rng: Random) -> Callable[[Record], bool]:
    """Records by chance, always the same for one record."""
    salt = rng.random()
    return lambda record: Random(f"{salt}{record.key}").random() < 1 / n


def clients(folder: Folder, rng: Random, keep: int) -> set[str]:
    names = sorted({record.client for record in folder.records if record.defense == "d"})
    return set(rng.sample(names, min(keep, len(names))))


@fault("records", "records", "records of the defense are lost by chance", DEFENDED)
def records_lost(folder: Folder, rng: Random) -> None:
    lost = one_in(rng.choice((1, 2, 4)), rng)
    folder.drop(lambda r: (is_defended(r) and lost(r)) or (is_leaking(r) and is_defended(r)))


@fault("records", "records", "just the records that leak are lost")
def leaking_records_lost(folder: Folder, rng: Random) -> None:
    folder.drop(lambda r: is_leaking(r) and (is_defended(r) or rng.random() < 0.9))


@fault("records", "records", "the records that leak are lost, and others are there twice", DEFENDED)
def lost_and_doubled(folder: Folder, rng: Random) -> None:
    before = len(folder.records)
    folder.drop(lambda r: is_leaking(r) and is_defended(r))
    folder.records += [rng.choice(folder.records) for _ in range(before - len(folder.records))]


@fault("records", "records", "records that leak are replaced by lines that hold no picture", DEFENDED)
def replaced_by_others(folder: Folder, rng: Random) -> None:
    gone = [r for r in folder.records if is_leaking(r) and is_defended(r)]
    folder.drop(lambda r: is_leaking(r) and is_defended(r))
    folder.records += [replace(r, key=f"{r.key}{i}", control="prior") for i, r in enumerate(gone)]


@fault("records", "records", "records are in another order, and some are there twice")
def records_reordered(folder: Folder, rng: Random) -> None:
    rng.shuffle(folder.records)
    folder.records += rng.sample(folder.records, len(folder.records) // rng.choice((2, 5)))


@fault("records", "records", "a whole cell is lost", DEFENDED)
def cell_lost(folder: Folder, rng: Random) -> None:
    cell = rng.choice(sorted({(r.defense, r.attack, r.attacker, r.control) for r in folder.records}))
    folder.drop(lambda r: (r.defense, r.attack, r.attacker, r.control) == cell or (is_leaking(r) and is_defended(r)))


@fault("records", "records", "the informed attacker's records are lost", DEFENDED)
def adaptive_lost(folder: Folder, rng: Random) -> None:
    folder.drop(is_adaptive)
    blind(folder, is_defended)


@fault("records", "records", "the informed attacker has attacked only some pictures", DEFENDED)
def adaptive_on_some(folder: Folder, rng: Random) -> None:
    kept = clients(folder, rng, rng.choice((1, 2, 4)))
    folder.drop(lambda r: is_adaptive(r) and r.client not in kept)
    folder.provenance["trials"] = len([r for r in folder.records if r.control != "another"])
    blind(folder, is_defended)


@fault("records", "records", "every trial of the informed attacker has failed", DEFENDED)
def adaptive_failed(folder: Folder, rng: Random) -> None:
    blind(folder, is_defended)
    fail(folder, is_adaptive)


@fault("records", "records", "the informed attacker has failed, among very many trials that have not", DEFENDED)
def adaptive_failed_among_many(folder: Folder, rng: Random) -> None:
    blind(folder, is_defended)
    fail(folder, is_adaptive)
    plain = [r for r in folder.records if not is_adaptive(r) and not r.control]
    for number in range(60):
        name = f"more{number}"
        folder.records += [replace(r, attack=name, key=r.key.replace(f"/{r.attack}/", f"/{name}/")) for r in plain]
    folder.provenance["trials"] = len([r for r in folder.records if r.control != "another"])


@fault("records", "records", "trials of the informed attacker have failed where it would have seen something", DEFENDED)
def adaptive_failed_where_it_leaks(folder: Folder, rng: Random) -> None:
    fail(folder, lambda r: is_defended(r) and is_leaking(r))


@fault("records", "records", "trials that leak are said to have failed")
def leaking_failed(folder: Folder, rng: Random) -> None:
    everywhere = rng.random() < 0.5
    fail(
        folder, lambda r: is_leaking(r) and (everywhere or is_defended(r) or not any(map(is_defended, folder.records)))
    )


@fault("records", "records", "scores are missing on some pictures")
def scores_missing(folder: Folder, rng: Random) -> None:
    folder.rescore(lambda r: is_leaking(r) and (is_defended(r) or rng.random() < 0.9), lambda scores: {})


@fault("records", "records", "the squared error is missing on the pictures that leak", DEFENDED)
def psnr_missing(folder: Folder, rng: Random) -> None:
    def without(scores: dict[str, float]) -> dict[str, float]:
        return {name: v for name, v in scores.items() if not name.startswith("psnr")}

    folder.rescore(lambda r: is_defended(r) and is_leaking(r), without)


@fault("records", "records", "the search in the gallery is missing on the pictures that leak", DEFENDED)
def retrieval_missing(folder: Folder, rng: Random) -> None:
    def without(scores: dict[str, float]) -> dict[str, float]:
        return {name: v for name, v in scores.items() if not name.startswith("retrieval")}

    folder.rescore(lambda r: is_defended(r) and is_leaking(r), without)


@fault("records", "records", "one score alone is left, on all pictures")
def one_score_left(folder: Folder, rng: Random) -> None:
    left = rng.choice(("psnr", "retrieval", "labels"))
    folder.rescore(lambda r: True, lambda scores: {n: v for n, v in scores.items() if n == left})


@fault("records", "records", "the positive control's records are lost", DEFENDED)
def control_lost(folder: Folder, rng: Random) -> None:
    blind(folder, is_defended)
    kept = clients(folder, rng, rng.choice((0, 1, 3)))
    folder.drop(lambda r: not is_defended(r) and not r.control and r.client not in kept)


@fault("records", "records", "the positive control's trials have failed", DEFENDED)
def control_failed(folder: Folder, rng: Random) -> None:
    kept = clients(folder, rng, rng.choice((0, 1, 3)))
    fail(folder, lambda r: not r.control and r.client not in kept and (not is_defended(r) or is_leaking(r)))


@fault("records", "records", "negative controls hold what the audit found")
def controls_identified(folder: Folder, rng: Random) -> None:
    found = {(r.scenario, r.attack, r.client, r.example): r.scores for r in folder.records if is_leaking(r)}
    kind = rng.choice(("prior", "another"))
    folder.records = [
        replace(r, scores=found.get((r.scenario, r.attack, r.client, r.example), r.scores)) if r.control == kind else r
        for r in folder.records
    ]


@fault("records", "records", "the blank picture is said to be as near as the reconstruction")
def blank_too_good(folder: Folder, rng: Random) -> None:
    folder.change(lambda r: True, blank=rng.choice((40.0, 100.0, 200.0)))


@fault("records", "records", "names of clients are mixed up", DEFENDED)
def clients_renamed(folder: Folder, rng: Random) -> None:
    names = sorted({r.client for r in folder.records})
    other = dict(zip(names, [*names[1:], names[0]], strict=True))
    one = rng.random() < 0.5
    folder.records = [
        replace(r, client=names[0] if one else other[r.client]) if is_defended(r) else r for r in folder.records
    ]


@fault("records", "records", "records say another defense than their keys", DEFENDED)
def defenses_relabeled(folder: Folder, rng: Random) -> None:
    to = rng.choice(("none", "e"))
    folder.change(lambda r: is_defended(r) and is_leaking(r), defense=to)


@fault("records", "records", "the journal ends early")
def journal_torn(folder: Folder, rng: Random) -> None:
    folder.records = folder.records[: rng.randrange(1, len(folder.records))]


@fault("provenance", "records", "the folder does not say how many trials were planned", DEFENDED)
def planned_unknown(folder: Folder, rng: Random) -> None:
    folder.provenance.pop("trials", None)
    folder.drop(lambda r: is_leaking(r) and is_defended(r))


@fault("provenance", "records", "the folder says that fewer trials were planned", DEFENDED)
def planned_too_few(folder: Folder, rng: Random) -> None:
    folder.drop(lambda r: is_leaking(r) and is_defended(r))
    folder.provenance["trials"] = rng.choice((0, len([r for r in folder.records if r.control != "another"])))


@fault("provenance", "records", "the folder does not say what the scenarios are", DEFENDED)
def scenarios_unknown(folder: Folder, rng: Random) -> None:
    folder.provenance.pop("scenarios", None)
    blind(folder, is_defended)


@fault("provenance", "records", "the folder says another size of the gallery")
def gallery_size_wrong(folder: Folder, rng: Random) -> None:
    folder.provenance["gallery"] = rng.choice((None, 0, 1, 10**6))
    folder.rescore(lambda r: rng.random() < 0.5, lambda scores: {n: v for n, v in scores.items() if n != "psnr"})


@fault(
    "provenance", "records", "the folder says that attacks came in an order, so that records may be left out", DEFENDED
)
def order_made_up(folder: Folder, rng: Random) -> None:
    attacks = sorted({r.attack for r in folder.records})
    folder.provenance["order"] = [*attacks, "c"]
    folder.drop(lambda r: is_leaking(r) and is_defended(r))


@fault("provenance", "records", "the settings say that the defense is none", DEFENDED)
def defense_said_to_be_none(folder: Folder, rng: Random) -> None:
    folder.config["defense"]["d"] = {"name": "none"}
    folder.drop(lambda r: is_leaking(r) and rng.random() < 0.5)


@fault("records", "records", "the undefended model has not leaked", DEFENDED)
def undefended_holds(folder: Folder, rng: Random) -> None:
    blind(folder, lambda r: True)


@fault("records", "records", "hardly any search has converged, and the records say so", has("search", "-alone"))
def not_converged(folder: Folder, rng: Random) -> None:
    spared = one_in(rng.choice((5, 10, 10**9)), rng)
    keys = {r.key for r in folder.records if r.control != "doubled" and not spared(r)}
    folder.records = [replace(r, flags=(*r.flags, "did-not-converge")) if r.key in keys else r for r in folder.records]
    blind(folder, is_defended)
