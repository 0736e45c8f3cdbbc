"""The batched L-BFGS against `torch.optim.LBFGS` with its strong-Wolfe search, one picture after the other.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/lbfgs.py --images 32 --values 100

Both minimize what `dlg` minimizes (relative squared distance and TV, open space) from the same starts, with as many
values of the objective; set-up is part of our time. Times are of the CPU, on one thread, so that other load on the
machine counts little. Prints JSON. The ratio is that of the times per value and picture; how low each came says
whether the values were spent alike.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks.dlg import dlg
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.engine.priors.prior import TotalVariation
from gradveil.models import MODELS
from gradveil.models.normalize import constants_of

TV, SEED = 3e-4, Seed(0)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    seen = photographs(args.images)
    ours, objective = batched(seen, args.values)
    theirs, values, reached = one_by_one(seen, args.values)
    each, of_each = ours / (args.images * args.values), theirs / values
    result = {
        "model": "lenet",
        "pictures": args.images,
        "values": args.values,
        "batched_ms": 1e3 * each,
        "torch_ms": 1e3 * of_each,
        "ratio": of_each / each,
        "batched_median_objective": objective.median().item(),
        "torch_median_objective": reached.median().item(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--values", type=int, default=100, help="of the objective, for each picture")
    return parser.parse_args()


def photographs(count: int) -> Observation:
    data = photos(limit=count)
    model = MODELS["lenet"](classes=data.targets.shape[1], shape=data.shape, mean=data.mean, std=data.std)
    names = tuple(f"c{i:04d}" for i in range(count))
    private = Batch(data.images[:, None], data.targets[:, None])
    return observe(Scenario(name="photos", model=model, private=private, names=names), Defense(), dlg(), SEED)[0]


def batched(seen: Observation, values: int) -> tuple[float, Tensor]:
    """Seconds and objectives of the engine."""
    attack = dlg(steps=values, tv=TV, restarts=1, boxed=False)
    begin = time.process_time()
    got = attack.reconstruct(seen, SEED, Compute())
    return time.process_time() - begin, got.loss


def one_by_one(seen: Observation, values: int) -> tuple[float, int, Tensor]:
    """Seconds, values taken and objectives of torch's own."""
    space = dlg(boxed=False).space.bind(seen)
    begin, taken, reached = time.process_time(), 0, []
    for client, name in enumerate(seen.names):
        x = space.init(SEED, name, 0)["pixels"].requires_grad_()
        found = minimized(x, seen.take([client]), values)
        taken += len(found)
        reached.append(min(found))
    return time.process_time() - begin, taken, torch.tensor(reached)


def minimized(x: Tensor, seen: Observation, values: int) -> list[float]:
    """The values that torch's L-BFGS meets; its limit may be passed by a few inside a search."""
    options: dict[str, Any] = {"tolerance_grad": 1e-12, "tolerance_change": 1e-12, "history_size": 10}
    search = torch.optim.LBFGS([x], max_iter=values, max_eval=values, line_search_fn="strong_wolfe", **options)
    found: list[float] = []

    def closure() -> Tensor:
        search.zero_grad()
        loss = objective(x, seen)
        loss.backward(inputs=[x])
        found.append(loss.item())
        return loss

    search.step(closure)  # type: ignore[arg-type]
    return found


def objective(x: Tensor, seen: Observation) -> Tensor:
    """Relative squared distance and TV, as anybody would write them."""
    model: nn.Module = seen.model
    mean, std = (c.view(-1, 1, 1) for c in constants_of(model, seen.shape[0]))
    assert seen.labels is not None
    loss = F.cross_entropy(model(x * std + mean), seen.labels[0])
    gradient = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    sent = [u[0] for u in seen.update.values()]
    apart = sum((g - u).square().sum() for g, u in zip(gradient, sent, strict=True))
    size = sum(u.square().sum() for u in sent)
    return apart / size + TV * TotalVariation().of(x[None])[0]


if __name__ == "__main__":
    main()
