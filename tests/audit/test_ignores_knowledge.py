"""In an audit the attacker who knows the defense is given what the unaware one has found, and may keep it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from toys import audit

from gradveil.audit.audit import judge_of, run_audit
from gradveil.audit.plan import Grid
from gradveil.audit.score import score
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation, Truth
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.topk import TopK
from gradveil.experiment import journal
from gradveil.metrics.psnr import peak_signal_to_noise


@dataclass(frozen=True, kw_only=True)
class Knows(Attack):
    """Has the private pictures as long as it does not know the defense, and nothing but noise if it does."""

    private: torch.Tensor
    runs: list[bool] = field(default_factory=list, compare=False)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        self.runs.append(seen.defense is not None)
        places = [int(name[1:]) for name in seen.names]
        right = self.private[places]
        images = torch.rand(right.shape, generator=seed.rng()) if seen.defense is not None else right
        assert seen.labels is not None
        return Reconstruction(
            images=images,
            labels=seen.labels,
            found=torch.ones(images.shape[:2], dtype=torch.bool),
            loss=torch.zeros(len(images)),
        )


def test_the_adaptive_cell_keeps_what_the_unaware_one_found_and_searches_once(tmp_path: Path) -> None:
    attack = Knows(private=audit({}).scenario.private.images)
    defenses: dict[str, Defense] = {"topk": TopK(sparsity=0.5)}
    run_audit(audit({"a": attack}, defenses), tmp_path / "run")
    assert attack.runs == [False, True]
    found = journal.read(tmp_path / "run/journal.jsonl")
    best = {kind: [r.scores["psnr"] for r in found if r.attacker == kind] for kind in ("unaware", "adaptive")}
    assert len(best["adaptive"]) == 3
    assert best["adaptive"] == best["unaware"]
    assert all("found without what is known" in " ".join(r.notes) for r in found if r.attacker == "adaptive")


def test_a_resumed_cell_comes_out_the_same(tmp_path: Path) -> None:
    """Of a shard that was interrupted between its two attackers both are run again."""
    defenses: dict[str, Defense] = {"topk": TopK(sparsity=0.5)}
    first, again = (Knows(private=audit({}).scenario.private.images) for _ in range(2))
    run_audit(audit({"a": first}, defenses), tmp_path / "one")
    run_audit(audit({"a": again}, defenses), tmp_path / "two")
    assert [r.scores for r in journal.read(tmp_path / "one/journal.jsonl")] == [
        r.scores for r in journal.read(tmp_path / "two/journal.jsonl")
    ]


def test_as_fed_what_the_transformation_makes_of_a_reconstruction_is_compared() -> None:
    """psnr_fed of who reports x and thinks that T(x) was fed is that of T(x)."""
    whole = audit({"a": Knows(private=torch.zeros(0))})
    grid = Grid(defenses=whole.defenses, attacks=whole.attacks, seed=Seed(0), compute=Compute())
    cell = next(iter(grid.cells(whole.scenario)))[0]
    private, fed = whole.scenario.private, 1 - whole.scenario.private.images
    near = (fed + 0.01).clamp(0, 1)
    got = Reconstruction(
        images=private.images,
        labels=private.labels,
        found=torch.ones(fed.shape[:2], dtype=torch.bool),
        loss=torch.zeros(len(fed)),
    )
    truth, judge = Truth(private=private, fed=Batch(fed, private.labels)), judge_of(whole)
    for as_fed, compared in ((near, near), (None, private.images)):
        scored = score(cell, replace(got, fed=as_fed), private.images, truth, judge).scores["psnr_fed"]
        assert torch.allclose(scored.float(), peak_signal_to_noise(compared, fed).float(), atol=1e-4)
