"""ROG, figure 9a, for a dozen defenses: CIFAR-10, 100 clients, Dirichlet 0.5, 10 a round, 100 rounds of FedAvg.

    PYTHONPATH=src python3 papers/ats/tradeoff.py --root DATA --out OUT --seconds 1200
    PYTHONPATH=src python3 papers/ats/tradeoff.py --root DATA --out OUT --limit 0 --seeds 3 --images 64 --device cuda

Nothing new is begun after --seconds; what is there by then is in OUT/tradeoff.json and OUT/report.html, and the same
command goes on. Results: tradeoff.md. Differs from the figure: a perceptron that one core can train, on the first 4,000
pictures; attacked are the clients' own pictures, by autoattack and by attackers who know the defense, and not ImageNet
pictures by ROG alone. Run it in the root of the repository, where the path of the model begins.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gradveil.core.compute import Compute
from gradveil.experiment import progress
from gradveil.tradeoff import StudySettings, tradeoff
from gradveil.tradeoff.summary import sentences

DEFENSES = (
    "ats:3-1-7+43-18-18",
    "prune:ratio=0.9,0.99",
    "topk:sparsity=0.95",
    "sign:scaled=true",  # bare signs are far longer than updates, and would need another rate than all the others
    "qsgd:bits=3",
    "dpsgd:noise=0.01",
)
STUDY = StudySettings(
    model="papers/ats/small_mlp.py:small_mlp",
    data="cifar10",
    defenses=DEFENSES,
    noise=(1e-3, 1e-2, 3e-2, 1e-1),  # from what costs nothing to more than half of what was learned
    random_policies=1,
    seeds=1,
    rounds=100,
    clients=100,
    per_round=10,
    split="dirichlet:0.5",
    method="fedavg",
    local_epochs=1,
    batch_size=10,
    rate=0.02,  # of 0.02 and 0.05, tried once each
    images=16,
    stages=(0.1,),  # early models leak most
    attacks=("autoattack:steps=60",),
    match=1,
)
LIMIT = 4000  # pictures, of which a client has 40 on average


def main() -> None:
    args = arguments()
    options = {"root": args.root} | ({"limit": args.limit} if args.limit else {})
    study = replace(STUDY, data=args.data, model=args.model, seeds=args.seeds, rounds=args.rounds, images=args.images,
                    data_options=options)  # fmt: skip
    compute = Compute(device=args.device, precision=args.precision, workers=args.workers)
    shown = progress.for_stream(quiet=False)
    outcome = tradeoff(study, args.out, compute=compute, progress=shown, seconds=args.seconds)
    print("\n".join(sentences(outcome)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--data", choices=["cifar10", "cifar100"], default=STUDY.data)
    parser.add_argument("--model", default=STUDY.model)
    parser.add_argument("--seeds", type=int, default=STUDY.seeds)
    parser.add_argument("--rounds", type=int, default=STUDY.rounds)
    parser.add_argument("--images", type=int, default=STUDY.images)
    parser.add_argument("--limit", type=int, default=LIMIT, help="training and test pictures, at most; 0: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
