"""A search as a page: what was found, how far to believe it, and the plots of ATS (figures 3, 4, 6, 15 and 17)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from markupsafe import Markup

from gradveil.core.files import private_files, write_whole
from gradveil.core.interval import mean_interval
from gradveil.experiment.record import Record
from gradveil.report.charts import Bars, Chart, Series
from gradveil.report.page import render_template
from gradveil.search.confirm import ATTACKERS
from gradveil.search.correlation import Correlation
from gradveil.search.outcome import Confirmed, Scored, SearchOutcome

COLUMNS = (
    "policy",
    "transformations",
    "S_pri",
    "95 % CI",
    "in top",
    "S_acc",
    "FSIM",
    "PSNR unaware",
    "adaptive",
    "blank",
    "leaked",
)


def rows(outcome: SearchOutcome) -> list[list[str]]:
    """The best, what else was confirmed, the hybrid, and no defense."""
    found = [_score_cells(one) for one in (*outcome.policies, *outcome.others)]
    for label, seen in ((f"hybrid {outcome.hybrid}", outcome.hybrid_confirmed), ("undefended", outcome.undefended)):
        if seen:
            found.append([label, *["-"] * 6, *_confirmed_cells(seen)])
    return found


def _score_cells(one: Scored) -> list[str]:
    between = f"{one.low:.3f} to {one.high:.3f}"
    like = "-" if one.fsim is None else f"{one.fsim:.2f}"
    texts = [f"{one.privacy:.3f}", between, f"{one.in_top:.0%}", f"{one.accuracy:.2f}", like]
    return [one.policy, " ".join(one.functions), *texts, *_confirmed_cells(one.confirmed)]


def _confirmed_cells(seen: Iterable[Confirmed]) -> list[str]:
    by = {one.attacker: one for one in seen}
    if not by:
        return ["-"] * 4
    decibels = [f"{by[who].psnr:.1f}" if who in by else "-" for who in ATTACKERS]
    worst = max(by.values(), key=lambda one: one.leaked)
    blank = "-" if worst.blank is None else f"{worst.blank:.1f}"
    return [*decibels, blank, f"{worst.leaked} of {worst.pictures}"]


def sentences(outcome: SearchOutcome) -> Iterator[str]:
    """What the table does not say."""
    left_out = f", {outcome.distorted} too unlike the picture" if outcome.distorted else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    yield (
        f"{outcome.candidates} candidates, {outcome.distinct} of them different{left_out}; {outcome.passed} passed the "
        f"accuracy score, {outcome.scored} were scored on every picture{failed}"
    )
    yield (
        f"least accuracy score: {outcome.threshold:.2f} per picture ({outcome.rule}); pictures as they are score "
        f"{outcome.untransformed:.2f}"
    )
    yield outcome.control
    for found in outcome.validation:
        yield (
            f"score against {found.measure}, {found.attacker} attacker, {found.policies} policies: "
            f"Pearson {_describe(found.pearson)}, Spearman {_describe(found.spearman)}: {found.conclusion}"
        )
    yield f"hybrid: {outcome.hybrid or 'none, no policy passed: use a lower `threshold`'}"


def _describe(one: Correlation | None) -> str:
    return "unknown" if one is None else f"{one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})"


FEWEST_BARS = 5  # policies of one transformation that are worth a plot of their own
MOST_BARS = 60


def write_search_page(path: Path, outcome: SearchOutcome, records: Sequence[Record]) -> Path:
    """One file without scripts or links, as private as the journal."""
    content = {
        "outcome": outcome,
        "columns": COLUMNS,
        "rows": rows(outcome),
        "sentences": list(sentences(outcome)),
        # texts in a plot are escaped where it is drawn
        "charts": [(Markup(chart.svg()), isinstance(chart, Bars)) for chart in charts(outcome, records)],
    }
    with private_files():
        write_whole(path, render_template("search.html.j2", content).encode())
    return path


def charts(outcome: SearchOutcome, records: Sequence[Record]) -> Iterator[Chart | Bars]:
    areas, accuracies = means(records, "privacy-score"), means(records, "accuracy-score")
    yield scatter(outcome, areas, accuracies)
    single = {policy: values for policy, values in areas.items() if policy.isdigit()}
    if len(single) >= FEWEST_BARS:
        yield bars(outcome, single)
    if outcome.curves:
        yield way(outcome.curves, "straight", "From noise to the picture", "share of the way")
        yield way(outcome.curves, "attack", "Along a real attack", "steps")
        yield from by_layer(outcome.curves)


def means(records: Sequence[Record], score: str) -> dict[str, list[float]]:
    """All numbers of one score, by policy."""
    found: dict[str, list[float]] = {}
    for record in records:
        if record.attack == score and record.scores:
            found.setdefault(record.defense, []).extend(record.scores.values())
    return found


def scatter(outcome: SearchOutcome, areas: Mapping[str, list[float]], accuracies: Mapping[str, list[float]]) -> Chart:
    """Every policy by both scores; those that were chosen apart from the rest."""
    chosen = {one.policy for one in outcome.policies}
    most = max((len(values) for values in areas.values()), default=0)
    both = {p: (mean(areas[p]), mean(accuracies[p])) for p in areas if p in accuracies and len(areas[p]) == most}
    groups = {
        "scored": [policy for policy in both if policy not in chosen],
        "chosen": [policy for policy in both if policy in chosen],
    }
    series = [
        Series(name=name, points=[both[policy] for policy in group], titles=group) for name, group in groups.items()
    ]
    return Chart(
        title="Both scores of every policy",
        x="area under the similarity (low is private)",
        y="accuracy score",
        series=series,
        horizontals=[outcome.threshold],
    )


def bars(outcome: SearchOutcome, single: Mapping[str, list[float]]) -> Bars:
    entries = outcome.library.entries
    order = sorted(single, key=lambda policy: mean(single[policy]))[:MOST_BARS]
    between = [mean_interval(single[policy]) for policy in order]
    names = [f"{policy} {entries[int(policy)]}" for policy in order]
    return Bars(
        title="One transformation at a time",
        y="area under the similarity",
        names=names,
        values=[mean(single[policy]) for policy in order],
        between=[(b.low, b.high) if b else (0.0, 0.0) for b in between],
        marked=names[:5],
    )


def way(curves: Mapping[str, Any], kind: str, title: str, x: str) -> Chart:
    series = []
    for label, one in curves.items():
        points = [(row[0], row[1]) for row in one[kind]]
        between = [(row[2], row[3]) for row in one[kind] if row[2] is not None]
        name = label if one["policy"] == label else f"{label} {one['policy']}"
        series.append(Series(name=name, kind="line", points=points, between=between))
    return Chart(title=title, x=x, y="similarity of gradients", series=series)


def by_layer(curves: Mapping[str, Any]) -> Iterator[Chart]:
    layers = list(next(iter(curves.values()))["layers"])
    for place, layer in enumerate(layers):
        depth = "shallow" if place < len(layers) / 2 else "deep"
        series = [
            Series(name=label, kind="line", points=list(zip(one["steps"], one["layers"][layer], strict=True)))
            for label, one in curves.items()
        ]
        yield Chart(title=f"Along the attack, {layer} ({depth})", x="steps", y="similarity", series=series, height=280)
