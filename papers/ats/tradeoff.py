"""ROG, figure 9a, for a dozen defenses: CIFAR-10 or CIFAR-100, 100 clients, Dirichlet 0.5, 10 a round, 100 rounds.

    PYTHONPATH=src python3 papers/ats/tradeoff.py --root DATA --out OUT --device cuda --seconds 1200
    PYTHONPATH=src python3 papers/ats/tradeoff.py --root DATA --data cifar100 --out OUT --device cuda

Nothing new is begun after --seconds; what is there by then is in OUT/tradeoff.json and OUT/report.html, and the same
command goes on. Differs from the figure: attacked are the clients' own CIFAR pictures, by autoattack and by attackers
who know the defense, and not ImageNet pictures by ROG alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gradveil import progress
from gradveil.compute import Compute
from gradveil.tradeoff import Study, page, run
from gradveil.tradeoff.sheet import sentences

DEFENSES = (
    "ats:3-1-7+43-18-18",
    "prune:ratio=0.9,0.99",
    "topk:sparsity=0.95",
    "sign:scaled=true",
    "qsgd:bits=3",
    "dpsgd:noise=0.01",
    "soteria",
    "oasis",
)
STUDY = Study(
    model="lenet5",
    data="cifar10",
    defenses=DEFENSES,
    noise=(1e-3, 1e-2),
    random_policies=2,
    seeds=3,
    rounds=100,
    clients=100,
    per_round=10,
    split="dirichlet:0.5",
    method="fedavg",
    local_epochs=5,
    batch_size=50,
    rate=0.05,
    images=64,
    stages=(0.01, 1.0),
    attacks=("autoattack:steps=400",),
    match=1,
)


def main() -> None:
    args = arguments()
    study = replace(STUDY, data=args.data, model=args.model, seeds=args.seeds, rounds=args.rounds, images=args.images,
                    data_options={"root": args.root})  # fmt: skip
    compute = Compute(device=args.device, precision=args.precision, workers=args.workers)
    outcome = run(study, args.out, compute, progress.for_stream(quiet=False), args.seconds)
    page(outcome, args.out / "report.html")
    print("\n".join(sentences(outcome)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--data", choices=["cifar10", "cifar100"], default="cifar10")
    parser.add_argument("--model", default=STUDY.model)
    parser.add_argument("--seeds", type=int, default=STUDY.seeds)
    parser.add_argument("--rounds", type=int, default=STUDY.rounds)
    parser.add_argument("--images", type=int, default=STUDY.images)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
