"""Which attacks have something to work on, which not and why, and which line-ups are held."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.audit.audit import Audit
from gradveil.audit.lineup_plan import auto_size
from gradveil.core.law import Round
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject


def look_at_reach(subject: Subject) -> Iterator[Finding]:
    audit = subject.audit
    left_out = subject.left_out
    applies = [label for label in audit.attacks if label not in left_out]
    level = "ok" if applies else "problem"
    why = "" if applies else "an audit without attacks has no verdict but that of the line-up"
    yield Finding(topic="attacks", level=level, what=f"apply: {', '.join(applies) or 'none'}", why=why)
    for label, reason in left_out.items():
        plain = reason.removeprefix(f"{label}: ").partition(", choose ")[0]
        yield Finding(topic="attacks", level="ok", what=f"{label} does not apply: {plain}")
    yield from _look_at_lineup(audit)


def _look_at_lineup(audit: Audit) -> Iterator[Finding]:
    if audit.gallery is None or audit.lineup == 0 or not audit.scenario.has_truth:
        yield Finding(
            topic="line-up",
            level="note",
            what="none is held: there are no other pictures to stand beside",
            why="it is the best possible guess, and bounds what any attack can identify",
            do="give the clients' pictures and others of the same kind",
        )
        return
    for label, defense in audit.defenses.items():
        scenario = audit.scenario
        asked = auto_size(scenario, defense) if audit.lineup == "auto" else audit.lineup
        size = min(asked, len(audit.gallery) + 1)
        examples = scenario.private.images.shape[1] // scenario.aggregate
        law = defense.bind(scenario).law(
            Round(training=scenario.training, examples=examples, members=scenario.aggregate)
        )
        kind = (
            "none: no likelihood is known of what it draws"
            if law is None
            else (f"{size:,} candidates, {'exact' if law.exact and not scenario.training.draws else 'estimated'}")
        )
        yield Finding(topic="line-up", level="note" if law is None else "ok", what=f"under {label}: {kind}")
