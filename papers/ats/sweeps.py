"""ATS, figure 11 and tables 7, 9 and 10: steps, stages of training, batch sizes, stacked operations, starts, transfer.

    PYTHONPATH=src:papers/ats python3 papers/ats/sweeps.py --root DATA --checkpoints DIR --out OUT.jsonl \\
        --images 48 --device cuda --precision tf32 steps stages batches stacked black

`--checkpoints` holds stage-0-MODEL, -25, -50, -75 and -100.safetensors, as `models.py` makes them. Every sweep is run
without and with the policy, `control` without it. The attack is the preset of ATS; cells that differ only in the policy
run together, and a cell that several sweeps of a run have is attacked once. For Fashion-MNIST give `--data
fashion-mnist` and a model of it: `transfer` takes policies found on CIFAR-100.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from victims import Bench, attacked_together, bench_of, defense_of, pictures_of, tell

from gradveil.attacks.invertgrad import invertgrad_ats
from gradveil.data import Dataset
from gradveil.engine.inversion import Inversion
from gradveil.engine.spaces.space import Pixels


@dataclass(frozen=True, kw_only=True)
class Study:
    """What all sweeps share: the options, the models by stage, and the cells that were attacked before."""

    args: argparse.Namespace
    test: Dataset
    benches: dict[int, Bench] = field(default_factory=dict)
    cells: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    def bench(self, stage: int) -> Bench:
        if stage not in self.benches:
            weights = self.args.checkpoints / f"stage-{stage}-{self.args.model}.safetensors"
            self.benches[stage] = bench_of(self.args, self.test, weights)
        return self.benches[stage]


def main() -> None:
    args = arguments()
    study = Study(args=args, test=pictures_of(args, "test"))
    for name in args.sweeps:
        SWEEPS[name](study)


def control(study: Study) -> None:
    """No policy, TV weights by stages: does the attack recover anything where nobody defends?"""
    for stage in study.args.control_stages:
        for tv in (1e-4, 1e-3, 1e-2):
            run("control", f"stage {stage}, TV {tv:g}", ("none",), study, stage=stage, tv=tv)


def steps(study: Study) -> None:
    for count in study.args.counts:
        run("steps", count, ("none", study.args.policy), study, steps=count)


def stages(study: Study) -> None:
    for stage in (0, 25, 50, 75, 100):  # ATS has not the untrained one, from which pictures are recovered most
        run("stages", stage, ("none", study.args.policy), study, stage=stage)


def batches(study: Study) -> None:
    for size in (1, 2, 4, 8):
        run("batches", size, ("none", study.args.policy), study, batch=size)


def stacked(study: Study) -> None:
    run("stacked", "", ("none", "3", "3-43", "3-43-15", study.args.policy), study)


def black(study: Study) -> None:
    """The attacker who starts from black pixels, as shifts leave them."""
    policies = ("none", "21-3-16", "21-13-3", study.args.policy)
    run("start", "random", policies, study)
    run("start", "black", policies, study, space=Pixels(start="black"))


def transfer(study: Study) -> None:
    policies = ("none", "13-43-18", "21-3-16", "13-43-18+21-3-16", "3-1-7+43-18-18")
    run("transfer", study.args.data, policies, study)


SWEEPS: dict[str, Callable[[Study], None]] = {
    "control": control,
    "steps": steps,
    "stages": stages,
    "batches": batches,
    "stacked": stacked,
    "black": black,
    "transfer": transfer,
}


def run(
    sweep: str,
    value: Any,
    policies: Sequence[str],
    study: Study,
    *,
    stage: int = 100,
    batch: int = 1,
    tv: float | None = None,
    **changed: Any,
) -> None:
    args = study.args
    weight = args.tv if tv is None else tv
    attack = replace(invertgrad_ats(steps=args.steps, tv=weight), **changed)
    attack_missing(policies, study, attack, stage, batch)
    for policy in policies:
        head = {"sweep": sweep, "value": value, "policy": policy, "model": args.model, "data": args.data}
        head |= {"steps": attack.steps, "tv": weight, "images": args.images}
        tell(head | study.cells[stage, policy, repr(attack), batch], args.out)


def attack_missing(policies: Sequence[str], study: Study, attack: Inversion, stage: int, batch: int) -> None:
    """Those policies that this attack has not met in another sweep, together."""
    missing = [policy for policy in policies if (stage, policy, repr(attack), batch) not in study.cells]
    if not missing:
        return
    bench, defenses = study.bench(stage), [defense_of(policy) for policy in missing]
    rounds = [bench.observed(defense, max(1, study.args.images // batch), batch=batch) for defense in defenses]
    seen, truths = zip(*rounds, strict=True)
    for policy, report in zip(missing, attacked_together(attack, seen, truths, bench, defenses), strict=True):
        study.cells[stage, policy, repr(attack), batch] = report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--classes", type=int, help="the first ones of CIFAR-100 only, as in models.py")
    parser.add_argument("--model", default="convnet8")
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--policy", default="3-1-7+43-18-18")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--steps", type=int, default=4800, help="of all sweeps but steps")
    parser.add_argument("--counts", type=int, nargs="+", default=[4800, 7800, 10800, 13800], help="of the sweep steps")
    parser.add_argument("--control-stages", type=int, nargs="+", default=[0, 25, 100], help="of the sweep control")
    parser.add_argument("--tv", type=float, default=1e-4, help="weight of the total variation, ATS has 1e-4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("sweeps", nargs="+", choices=sorted(SWEEPS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
