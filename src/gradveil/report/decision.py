"""The first screen of a page: one sentence on who can see what, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, Verdict
from gradveil.audit.verdict.tally import Tally
from gradveil.core.percent import percent

WHO = {
    "eavesdropper": "whoever reads the updates on their way",
    "curious": "whoever runs the server",
    "malicious": "whoever runs the server and changes the model",
}
HIDES_MOST = "no leak found", "bounded"
NAMED = 3  # defenses that a sentence names


def state_result(run: Run, verdict: Verdict) -> str:
    """Who can see how many of whose pictures, under the defenses that were asked about."""
    who, judged = name_attacker(run), verdict.judged
    if verdict.word == "leaks":
        return capitalize(f"{who} {_tell_leaks(judged)}.")
    if verdict.word == "inconclusive":
        return f"It is not known whether {who.replace('whoever', 'anyone who')} can see the pictures."
    if not judged or verdict.word == "not evaluated":
        return "Nothing was measured, so nothing is known."
    if verdict.word == "bounded" and (at_most := _largest_bound(judged)) is not None:
        return capitalize(
            f"{who} can name at most {percent(at_most, up=True)} of such pictures among their candidates."
        )
    return f"These attacks found no leak in {judged[0].tally.scored} pictures; stronger attacks may."


def name_attacker(run: Run) -> str:
    return WHO.get(str(run.scenario.get("attacker", "")), "whoever receives the updates")


def capitalize(text: str) -> str:
    """The first letter alone, unlike `str.capitalize`."""
    return text[:1].upper() + text[1:]


def _tell_leaks(judged: Sequence[Finding]) -> str:
    """What follows the attacker's name."""
    leaking = [one.tally for one in judged if one.verdict == "leaks"]
    worst = max(leaking, key=_share)
    if worst.undefended:
        return f"can {_tell(worst)}"
    names = list(dict.fromkeys(tally.defense for tally in leaking))
    if len(leaking) < len(judged) or len(names) == 1:
        return f"can {_tell(worst)} despite {_list(names)}"
    which = "either of these defenses" if len(names) == 2 else f"each of these {len(names)} defenses"
    return f"can {_tell(worst, min(leaking, key=_share))} under {which}"


def _share(tally: Tally) -> float:
    return tally.exposed / max(tally.scored, 1)


def _tell(most: Tally, least: Tally | None = None) -> str:
    verb = "see" if most.leaked == most.exposed else "see or identify" if most.leaked else "identify"
    count = f"{most.exposed} of {most.scored}"
    if least is not None and _share(least) < _share(most):
        count = f"at least {least.exposed} and up to {count}"
    return f"{verb} {count} pictures"


def _largest_bound(judged: Sequence[Finding]) -> float | None:
    found = [one.at_most for one in judged]
    return None if any(one is None for one in found) else max(one for one in found if one is not None)


def _list(names: Sequence[str]) -> str:
    """
    >>> _list(["a", "b", "c"]), _list(list("abcde"))
    ('a, b and c', 'a, b, c and 2 more')
    """
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def advise(verdict: Verdict) -> list[str]:
    """What to do now, the most urgent first. Commands stand between backticks."""
    found, gaps = [*_about_defenses(verdict.judged), *_about_links(verdict.judged)], [*_about_gaps(verdict)]
    return found + gaps if verdict.word == "leaks" else gaps + found


def _about_defenses(judged: Sequence[Finding]) -> Iterator[str]:
    leaking = [one.tally for one in judged if one.verdict == "leaks"]
    open_ones = {one.tally.defense for one in judged if one.verdict not in HIDES_MOST}  # here or in a variation
    quiet = [one for one in judged if one.tally.defense not in open_ones]
    if any(tally.undefended for tally in leaking):
        yield "Do not send these updates as they are."
    elif leaking:
        yield f"Do not rely on {_list(list(dict.fromkeys(map(_name, leaking))))} at this strength."
    if quiet:
        best = min(quiet, key=lambda one: (one.verdict != "bounded", 1.0 if one.at_most is None else one.at_most))
        yield _choose(best)
    elif leaking:
        yield "Find a defense that suffices: `gradveil recommend` says which, and what it costs in accuracy."


def _choose(best: Finding) -> str:
    """Without a promise: what the word rests on, in a sentence."""
    name = "these updates" if best.tally.undefended else _name(best.tally)
    if best.verdict == "bounded":
        return (
            f"Of what was tried, choose {name}: its bound holds for any attack, as far as the assumptions below hold."
        )
    return f"Of what was tried, choose {name} if you must: nothing was found, which stronger attacks may change."


def _name(tally: Tally) -> str:
    """What stands between backticks is drawn as a command, and a label may hold some."""
    return tally.defense.replace("`", "'")


def _about_links(judged: Sequence[Finding]) -> Iterator[str]:
    linked = [one.tally for one in judged if one.linkable == "linkable"]
    if linked and len(linked) == len(judged):
        yield (
            "Where it is a secret that someone took part, use differential privacy (`dpsgd`): "
            "who has a picture can confirm that it was used."
        )


def _about_gaps(verdict: Verdict) -> Iterator[str]:
    if verdict.word in ("inconclusive", "not evaluated"):
        yield "Do not read this as protection: mend what the reasons below name and run it again."
    elif verdict.word in HIDES_MOST:
        yield "Before you sign, read what was assumed and what was not tested."
    if verdict.missing:
        yield f"Give the same command again: {verdict.missing:,} trials are missing."
