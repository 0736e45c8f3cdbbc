"""Controls inside a run: what is added, what it sees, and what a verdict makes of attacks that are broken."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from toys import CLASSES, Noise, audit, pictures, scenario

from gradveil.attacks.dlg import dlg
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.linear import FirstLinear, linear
from gradveil.audit.audit import run_audit
from gradveil.audit.controls import blind
from gradveil.audit.results import read_run
from gradveil.audit.schedule import plan, roles
from gradveil.audit.verdict import Verdict, judge
from gradveil.cli import main
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.prune import Prune
from gradveil.experiment import journal

MUCH_NOISE = {"none": Defense(), "gaussian": Gaussian(scale=1e3)}


def verdict_of(folder: Path, **parts) -> Verdict:
    run_audit(audit(controls=True, **parts), folder)
    return judge(read_run(folder))


def kinds(folder: Path) -> Counter:
    return Counter((r.attack, r.control) for r in journal.read(folder / "journal.jsonl"))


class Informed(FirstLinear):
    """As it is, and said to take account of a known defense."""

    @property
    def uses(self):
        return frozenset({"surrogate"})


@pytest.mark.parametrize(("attack", "word"), [(Informed(), "no leak found"), (linear(), "inconclusive")])
def test_an_attack_that_works_passes_its_control_and_noise_stops_it(tmp_path: Path, attack, word: str) -> None:
    """One that takes no account of a defense is no test of it."""
    verdict = verdict_of(tmp_path / "run", attacks={"linear": attack}, defenses=MUCH_NOISE, clients=20)
    assert verdict.positive is not None
    assert (verdict.positive.hits, verdict.positive.passed) == (20, True)
    assert {f.tally.defense: f.verdict for f in verdict.findings} == {"none": "leaks", "gaussian": word}
    assert all(check is not None and check.passed for check in (verdict.prior, verdict.another))


def test_which_controls_are_run(tmp_path: Path) -> None:
    both = {"linear": linear(), "dlg": dlg(steps=3, restarts=1)}
    run_audit(replace(audit(both, controls=True), convergence=True), tmp_path / "run")
    found = kinds(tmp_path / "run")
    assert set(found) == {
        *((attack, control) for attack in both for control in ("", "another", "prior")),
        ("dlg", "random"),  # a closed form has no prior of its own: noise for an update says it all
        ("dlg", "doubled"),
    }
    run_audit(audit(both), tmp_path / "bare")
    assert set(kinds(tmp_path / "bare")) == {("linear", ""), ("dlg", "")}


def test_a_control_sees_an_update_of_the_same_size_and_none_of_its_content(tmp_path: Path) -> None:
    noise = Noise()
    run_audit(audit({"a": noise}, {"none": Defense()}, controls=True), tmp_path / "run")
    own, control = noise.seen
    for name, update in own.update.items():
        sizes, blind = update.flatten(1).norm(dim=1), control.update[name].flatten(1)
        assert torch.allclose(blind.norm(dim=1), sizes, rtol=1e-4)
        if update[0].numel() > 100:  # in few dimensions chance may well point the same way
            assert ((blind * update.flatten(1)).sum(1).abs() < 0.3 * sizes**2).all()
    assert torch.equal(own.labels, control.labels)  # what it knows otherwise, it still knows


def test_noise_for_an_update_does_not_depend_on_the_others() -> None:
    from scenes import one_picture, seen_in

    seen = seen_in(one_picture(clients=3))
    alone = blind(seen.take([2]), Seed(1))
    for name, update in blind(seen, Seed(1)).update.items():
        assert torch.equal(update[2], alone.update[name][0])


def test_the_prior_alone_never_looks_at_the_update() -> None:
    from scenes import one_picture, seen_in, smooth

    seen = seen_in(one_picture(model=smooth()))
    attack = invertgrad(steps=30).prior_only()
    blind = replace(seen, update={name: torch.zeros_like(u) for name, u in seen.update.items()})
    one, other = (attack.reconstruct(s, Seed(0)) for s in (seen, blind))
    assert torch.equal(one.images, other.images)
    assert one.backend == "priors"


@dataclass(frozen=True, kw_only=True)
class Believes(Attack):
    """Returns what it has always believed, whatever the update says."""

    belief: torch.Tensor

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        clients = len(seen.names)
        return Reconstruction(
            images=self.belief[:clients, None],
            labels=torch.zeros(clients, seen.examples, seen.classes),
            found=torch.ones(clients, seen.examples, dtype=torch.bool),
            loss=torch.ones(clients),
        )


def test_an_attack_that_only_returns_its_prior_shows_no_excess_leakage(tmp_path: Path) -> None:
    """Even one that knew the private pictures before: the update told it nothing."""
    knew = Believes(belief=pictures(20, 0))
    verdict = verdict_of(tmp_path / "run", attacks={"knew": knew}, clients=20)
    assert {f.tally.leaked for f in verdict.findings} == {0}
    assert verdict.word == "inconclusive"
    assert "control-identified" in verdict.flags


def test_an_attack_that_is_broken_on_purpose_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    options = "--images 3 --attack invertgrad:rate=0,steps=20 --defense gaussian:scale=10 --lineup off --strict --json"
    with pytest.raises(SystemExit) as left:
        main(["audit", *options.split(), "--quiet", "--out", str(tmp_path / "run")])
    assert left.value.code == 1
    assert "failed: gaussian: inconclusive. " in capsys.readouterr().err
    content = json.loads((tmp_path / "run/verdict.json").read_text())
    assert content["verdict"] == "inconclusive"
    assert content["controls"]["positive"]["passed"] is False
    assert "no leak found" not in (tmp_path / "run/report.html").read_text().lower()


def test_three_percent_of_failed_trials_are_inconclusive_with_their_count(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Shaky(Attack):
        """The closed form, except that three clients in a hundred of a defended cell come out as NaN."""

        def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
            got = linear().reconstruct(seen, seed)
            defended = bool(got.loss.max() > 0.5)
            bad = torch.tensor([defended and int(name[1:]) % 100 < 3 for name in seen.names])
            return replace(got, loss=got.loss.masked_fill(bad, torch.nan))

    verdict = verdict_of(tmp_path / "run", attacks={"a": Shaky()}, defenses=MUCH_NOISE, clients=100)
    (finding,) = (f for f in verdict.findings if f.tally.defense == "gaussian")
    assert finding.verdict == "inconclusive"
    assert "6 of 200 trials failed" in " ".join(finding.reasons)


class Unstudied(Defense):
    """Its author names no adaptive attacker."""

    def update(self, update, rng):
        return {name: 0 * u for name, u in update.items()}


def test_a_defense_that_names_no_adaptive_attacker_is_not_evaluated(tmp_path: Path) -> None:
    defenses = {"none": Defense(), "new": Unstudied()}
    verdict = verdict_of(tmp_path / "run", attacks={"linear": linear()}, defenses=defenses, clients=20)
    assert {f.tally.defense: f.verdict for f in verdict.findings}["new"] == "not evaluated"
    assert not any(c.attacker == "adaptive" for c in verdict.cells)


def test_a_harder_scenario_brings_its_diagnostic_one() -> None:
    hard = audit({"a": Noise()}, clients=3, examples=4, controls=True, training=LocalTraining(steps=2),
                 threat=ThreatModel(knows_labels=False))  # fmt: skip
    content = roles(hard, Compute())
    assert {name: (about["role"], about["regime"]) for name, about in content.items()} == {
        "toy": ("audited", "deployment"),
        "toy-diagnostic": ("control", "diagnostic"),
    }
    (easy,) = (g[0] for g in plan(hard, Compute()) if g[0].scenario.name == "toy-diagnostic" and not g[0].control)
    assert easy.undefended
    assert len(easy.scenario.names) == len(set(easy.scenario.names)) == 12
    assert torch.equal(easy.scenario.private.images.flatten(0, 1), hard.scenario.private.images.flatten(0, 1))


def test_an_easy_scenario_is_its_own_control_if_the_undefended_model_is_in_it() -> None:
    assert set(roles(audit({"a": Noise()}, controls=True), Compute())) == {"toy"}
    without = audit({"a": Noise()}, {"prune": Prune()}, controls=True)
    assert set(roles(without, Compute())) == {"toy", "toy-diagnostic"}


def test_a_trained_model_is_controlled_by_its_early_self() -> None:
    early = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, CLASSES))
    trained = replace(audit({"a": Noise()}, controls=True), early=early, scenario=scenario(3, trained=True))
    cells = [group[0] for group in plan(trained, Compute())]
    models = {c.scenario.name: c.scenario.model for c in cells}
    assert torch.equal(models["toy-diagnostic"][1].weight, early[1].weight)  # type: ignore[index]
    assert roles(trained, Compute())["toy-diagnostic"]["regime"] == "diagnostic"


def test_the_best_restart_is_chosen_without_the_original() -> None:
    """Another truth behind the same update: the same reconstruction, to the last bit."""
    from scenes import one_picture, seen_in, smooth

    seen = seen_in(one_picture(model=smooth()))
    other = replace(seen, public=Batch(torch.rand(1, 3, 8, 8).double(), torch.eye(5)[:1].double()))
    one, two = (invertgrad(steps=20, restarts=3).reconstruct(s, Seed(0)) for s in (seen, other))
    assert torch.equal(one.images, two.images)
