"""Which verdicts make a command fail, and the line that says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from gradveil.cli._output import print_to_stderr
from gradveil.core.errors import ConfigError

if TYPE_CHECKING:
    from gradveil.audit.verdict import Verdict
    from gradveil.audit.verdict.judge import Finding

WORDS = {"leaks": "leaks", "inconclusive": "inconclusive", "not-evaluated": "not evaluated"}  # option -> verdict
LINKABLE = "linkable"  # the second question: it fails where the answer is yes, and where there is none
FORM = "WORD,..."
ANY = ",".join(WORDS)
KNOWN = f"{ANY},{LINKABLE}"
FAILED = 1  # exit code


def parse_fail_on(text: str | None, strict: bool = False) -> frozenset[str]:
    """The verdicts on which a command fails; `strict` is short for all of them."""
    words = [word.strip() for word in text.split(",")] if text is not None else []
    known = WORDS | {LINKABLE: LINKABLE}
    if wrong := [word for word in words if word not in known]:
        raise ConfigError(f"must be one or more of {KNOWN}, got {wrong[0]!r}", key="--fail-on")
    return frozenset(known[word] for word in words) | frozenset(WORDS.values() if strict else ())


def exit_if_failed(verdict: Verdict, fail_on: frozenset[str]) -> None:
    """Leave with exit code 1, and one line on stderr, if a defense has one of these verdicts."""
    if line := describe_failures(verdict, fail_on):
        print_to_stderr(line)
        raise typer.Exit(FAILED)


def describe_failures(verdict: Verdict, fail_on: frozenset[str]) -> str:
    """What failed, worst first, and why the worst did; nothing if nothing failed."""
    if not verdict.judged:
        return f"failed: {verdict.word}" if verdict.word in fail_on or LINKABLE in fail_on else ""
    lines = [*_failures(verdict, fail_on), *(_links(verdict) if LINKABLE in fail_on else ())]
    if not lines:
        return ""
    named = "; ".join(f"{name}: {word}" for name, word, _ in lines)
    return f"failed: {named}. {lines[0][2]}".rstrip()


def _failures(verdict: Verdict, fail_on: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Name, word and why of each defense whose verdict fails."""
    for finding in verdict.judged:
        if finding.verdict in fail_on:
            yield name_of(finding), finding.verdict, " ".join(finding.reasons)


def _links(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Each defense that is linkable. One about which nothing is known fails too: silence is no answer."""
    for finding in verdict.judged:
        if finding.linkable != "not linkable":
            word = LINKABLE if finding.linkable == LINKABLE else "linkable not evaluated"
            yield name_of(finding), word, finding.link_sentence


def name_of(finding: Finding) -> str:
    """The defense, and the scenario if it is not the one that was asked about."""
    tally = finding.tally
    return f"{tally.defense} ({tally.scenario})" if tally.is_aside else tally.defense
