"""What nobody tried, and until when the rest may be quoted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict import Verdict
from gradveil.audit.verdict.leak import IDENTIFICATION

LEARNED = {  # what a kind of attack is, by parts of the names of those that are of it
    "Attacks with a learned picture of the world (GAN, diffusion).": ("rogs", "gan", "diffusion"),
    "Networks trained to invert updates of this model and defense (`learned-inverter`).": ("learned-inverter",),
}
VALID = timedelta(days=365)


def date_of(run: Run) -> str:
    """The day of the run, or nothing."""
    day = str(run.provenance.get("finished") or run.provenance.get("started") or "")[:10]
    try:
        return datetime.fromisoformat(day).date().isoformat()
    except ValueError:
        return ""


def expiry_of(run: Run) -> str:
    """One year after the run, or nothing if nobody knows when it was."""
    day = date_of(run)
    return (datetime.fromisoformat(day) + VALID).date().isoformat() if day else ""


def list_not_tested(run: Run, verdict: Verdict) -> list[str]:
    """What the settings and the records leave open. Never empty: no audit tries everything."""
    return [*_later(run), *_missing(run, verdict), *_training(run), *_attackers(run, verdict), *_pictures(run, verdict)]


def _later(run: Run) -> Iterator[str]:
    day = date_of(run)
    since = f"after the day of this run ({day})" if day else "after this run, whose date is not recorded"
    yield f"Attacks published {since}. New ones appear every year."


def _missing(run: Run, verdict: Verdict) -> Iterator[str]:
    if verdict.missing:
        yield f"{verdict.missing} planned trials that the run has not come to."
    left_out = run.provenance.get("left_out")
    for label, why in left_out.items() if isinstance(left_out, Mapping) else ():
        yield f"{label}, which has nothing to work on here ({why})."
    if run.provenance.get("order"):
        yield "Pictures that leaked to one attack, by the attacks after it: they might show them even better."
    tallies = [finding.tally for finding in verdict.findings]
    if not any(tally.undefended for tally in tallies):
        yield "The undefended model in the audited scenario."
    if blind := sorted({t.defense for t in tallies if not t.undefended and not t.has_adaptive}):
        yield f"Adaptive attackers against {', '.join(blind)}. An attacker who knows the defense may see more."
    if failed := sum(tally.failed for tally in tallies):
        trials = sum(tally.attempted for tally in tallies)
        yield f"What the {failed} failed of {trials} trials would have shown."


def values(run: Run, key: str) -> list[Any]:
    """Of a setting in all audited scenarios; controls do not count."""
    audited = [about for about in run.scenarios.values() if about.get("role") != "control"] or [run.scenario]
    found = [about.get(key, run.scenario.get(key)) for about in audited]
    return sorted({value for value in found if value is not None}, key=str)


def _training(run: Run) -> Iterator[str]:
    stages = set(values(run, "trained")) or {bool(w) for w in values(run, "weights")}
    if stages == {False}:
        yield "Trained models. The weights are untrained; leakage changes in the course of training."
    else:
        yield "Other stages of training than those audited. Early ones usually leak more."
    sizes = values(run, "batch_size")
    yield f"Batch sizes other than {_list(sizes)}." + ("" if 1 in sizes else " Smaller batches usually leak more.")
    steps = values(run, "local_steps")
    yield f"Other numbers of local steps than {_list(steps)}" + (" (FedAvg)." if steps == [1] else ".")
    modes = values(run, "batchnorm")
    if not {"batch", "batch-shared"} & set(modes):
        yield "Clients that normalize by their own batch (training mode)."
    if modes and "eval" not in modes:
        yield "Clients that normalize by running statistics (evaluation mode), which is easier to invert."


def _list(found: list[Any]) -> str:
    return ", ".join(map(str, found)) or "the one used"


def _attackers(run: Run, verdict: Verdict) -> Iterator[str]:
    if run.scenario.get("attacker") != "malicious":
        yield "A malicious server that changes the model before it sends it."
    if (known := values(run, "labels")) and "known" not in known:
        yield "An attacker who knows the labels."
    if run.scenario.get("rounds", 1) == 1:
        yield "An attacker who joins up several rounds of one client."
    if not any(finding.lineup for finding in verdict.findings):
        yield "How many pictures the updates name among candidates, whatever attacks see of them (`lineup`)."
    attacks = sorted({cell.attack for cell in verdict.cells if not cell.control})
    for kind, parts in LEARNED.items():
        if not any(part in attack for part in parts for attack in attacks):
            yield kind
    yield f"Any attack other than {', '.join(attacks)}."
    if "tuning" not in run.provenance:
        yield "Settings of these attacks that were chosen for this model, data and defense; see `tuned_on`."
    summed = values(run, "aggregate")
    if not any(count > 1 for count in summed):
        yield "Aggregated updates, where the server sees only the sum over several clients."
    elif 1 not in summed:
        yield "Updates of single clients, which tell more than sums."


def _pictures(run: Run, verdict: Verdict) -> Iterator[str]:
    records = [record for finding in verdict.findings for record in finding.tally.records]
    pictures = {(r.client, r.example) for r in records}
    yield f"Other pictures than the {len(pictures)} audited; rare or unusual ones can leak more than these."
    if all(finding.tally.is_sample for finding in verdict.findings):
        yield "Outliers and pictures of rare classes, chosen on purpose (`canaries`)."
    measured = {run.facts(name) for r in records for name in r.scores}
    if not any(one.perceptual for one in measured):
        yield "Perceptual similarity (LPIPS). PSNR and SSIM can miss what a person would recognize."
    kinds = {one.lookup.by for one in measured if one.lookup}
    if IDENTIFICATION not in measured:
        yield "Identification in a gallery."
    elif "features" not in kinds:
        yield "Identification by what a network or a person sees; here by squared error alone."
    yield f"Random seeds other than {run.config.get('seed', 'the one used')}."
