"""Flags of a run as a whole. Those of single trials are raised where the trial is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import Convergence, by_picture, check_negative
from gradveil.audit.verdict.estimate import scores_of
from gradveil.audit.verdict.identify import FIRST
from gradveil.audit.verdict.leak import CLOSENESS, NEGATIVE
from gradveil.audit.verdict.masking import searches_are_stuck
from gradveil.audit.verdict.tally import Tally
from gradveil.core.interval import mean_interval
from gradveil.core.preset import fact_of
from gradveil.defenses import DEFENSES
from gradveil.experiment.record import Record

LARGE_GALLERY = 1000
ATTACK_SEEDS, MODEL_SEEDS = 3, 2  # that a claim about more than this run needs
SURE = 0.99  # that knowing hurts: at 95 % chance alone says so of one defense in twenty that hides everything
ENOUGH = 100  # pictures; below, intervals of means are too narrow (gradveil.core.interval says by how much)


def find_run_flags(run: Run, tallies: Sequence[Tally], longer: Sequence[Convergence]) -> tuple[str, ...]:
    """Their names, sorted; `gradveil.audit.flags` explains each."""
    regimes, drawn = {t.regime for t in tallies}, [t for t in tallies if t.is_sample]
    raised = {
        "no-diagnostic": "diagnostic" not in regimes,
        "single-stage": not _is_varied(run, "trained") and not _is_varied(run, "weights"),
        "single-batch-size": not _is_varied(run, "batch_size"),
        "single-local-steps": not _is_varied(run, "local_steps"),
        "no-ablation": not (_is_varied(run, "labels") and _is_varied(run, "batchnorm")),
        "unknown-weights": _unknown_weights(run),
        "small-gallery": run.gallery is None or run.gallery < LARGE_GALLERY,
        "few-seeds": _count_values(run, "attack_seed") < ATTACK_SEEDS or _count_models(run) < MODEL_SEEDS,
        "chosen-pictures": run.scenario.get("draw") == "first",
        "tuned-less": _is_tuned_less(run),
        "few-pictures": any(t.scored < ENOUGH for t in drawn),
        "convergence-not-checked": not longer,
        "not-converged": any(not one.converged for one in longer),
        "adaptive-weaker": any(map(_adaptive_is_weaker, tallies)),
        "gradient-attack-weaker": searches_are_stuck(run, tallies),
        "not-monotone": any(_more_leaks_more(run, tallies)),
        "undefended-holds": any(map(_holds_undefended, drawn)),
        "several-versions": bool(run.provenance.get("versions")),
        "sealed-again": bool(run.provenance.get("sealed_again")),
        "control-identified": _is_control_identified(run, tallies),
    }
    return tuple(sorted(name for name, is_raised in raised.items() if is_raised))


def doubts_about(run: Run, tally: Tally, tallies: Sequence[Tally]) -> Iterator[str]:
    """The serious doubts about one defense in one scenario: with one of them nothing can be ruled out."""
    if tally.undefended and not tally.as_sent:
        yield "Nothing leaked without a defense either, so these attacks cannot show what is hidden here."
    if _adaptive_is_weaker(tally):
        yield "The attacker who knows the defense sees less than the one who does not: an error of gradveil."
    if _is_control_identified(run, tallies):
        yield "Attacks identify pictures whose update they have not seen, so identification says nothing here."
    if any(other.interval.low > tally.interval.high for other in tallies if _is_harder(run, tally, other)):
        yield "A stronger setting, a larger batch or less knowledge leaks more than this: the attacks fail here."


def _is_control_identified(run: Run, tallies: Sequence[Tally]) -> bool:
    checks = (check_negative(run, kind) for kind in NEGATIVE)
    found = any(check is not None and not check.passed for check in checks)
    return found or any(not search.believed for one in tallies for search in one.searches if search.metric != FIRST)


def _holds_undefended(tally: Tally) -> bool:
    return tally.undefended and tally.has_truth and not (tally.leaked or tally.beats_chance)


def _unknown_weights(run: Run) -> bool:
    """Whether a metric was computed with other weights than everybody uses."""
    sources = run.provenance.get("metric_weights")
    found = sources.values() if isinstance(sources, Mapping) else ()
    return any(isinstance(source, Mapping) and not source.get("known") for source in found)


def _count_values(run: Run, key: str) -> int:
    """How many values of a key of the scenario were audited."""
    others = run.choices("also").get(key, ())
    return len({str(value) for value in (run.scenario.get(key), *others)})


def _count_models(run: Run) -> int:
    """Models drawn anew, or weights of other trainings."""
    return max(_count_values(run, "model_seed"), _count_values(run, "weights"))


def _is_tuned_less(run: Run) -> bool:
    """Whether fewer settings of attacks were tried on a defense than on the undefended model."""
    tuning = run.provenance.get("tuning")
    tried = tuning.get("settings", {}) if isinstance(tuning, Mapping) else {}
    plain = [count for label, count in tried.items() if run.undefended(label)]
    return bool(plain) and min(tried.values()) < max(plain)


def _is_varied(run: Run, key: str) -> bool:
    """Whether the audited scenarios differ in it."""
    audited = [about for about in run.scenarios.values() if about.get("role") != "control"]
    return len({str(about.get(key)) for about in audited}) > 1


def _adaptive_is_weaker(tally: Tally) -> bool:
    """Knowing the defense should not hurt: it does, or a picture leaks only to one who does not know it."""
    differences = []
    for of_one in by_picture(tally.records).values():
        best = {kind: _best([r for r in of_one if r.attacker == kind]) for kind in ("adaptive", "unaware")}
        if None not in best.values():
            differences.append(best["adaptive"] - best["unaware"])  # type: ignore[operator]
    between = mean_interval(differences, SURE)
    return between is not None and between.high < 0


def _best(records: Sequence[Record]) -> float | None:
    values = scores_of(records).get(CLOSENESS.name)
    return max(values) if values else None


def _more_leaks_more(run: Run, tallies: Sequence[Tally]) -> Iterator[bool]:
    """Every pair of which one must be harder than the other: is the harder one clearly easier?"""
    for easy in tallies:
        for hard in tallies:
            if easy is not hard and _is_harder(run, easy, hard):
                yield hard.interval.low > easy.interval.high


def _is_harder(run: Run, easy: Tally, hard: Tally) -> bool:
    if easy is hard:
        return False
    if easy.scenario == hard.scenario:
        return _is_stronger(run.choices("defense").get(easy.defense), run.choices("defense").get(hard.defense))
    if easy.defense != hard.defense:
        return False
    one, other = run.scenarios.get(easy.scenario, {}), run.scenarios.get(hard.scenario, {})
    same = {key for key in one.keys() & other.keys() if one[key] == other[key]}
    changed = (one.keys() | other.keys()) - same - {"name", "images", "role", "regime"}
    if changed == {"batch_size"}:
        return one["batch_size"] < other["batch_size"]
    return changed == {"labels"} and one["labels"] == "known"


def _is_stronger(easy: Any, hard: Any) -> bool:
    """The same defense with more of the one option that makes it stronger."""
    if not (isinstance(easy, Mapping) and isinstance(hard, Mapping)) or easy.get("name") != hard.get("name"):
        return False
    changed = [key for key in easy.keys() | hard.keys() if easy.get(key) != hard.get(key)]
    growing = fact_of(DEFENSES.get(str(easy.get("name"))), "stronger", ())
    return len(changed) == 1 and changed[0] in growing and easy[changed[0]] < hard[changed[0]]
