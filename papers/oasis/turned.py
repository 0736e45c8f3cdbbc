"""What OASIS (Jeter et al., 2024) leaves of a batch in a single-layer model, if copies do not weigh quite alike.

    PYTHONPATH=src OMP_NUM_THREADS=1 python3 papers/oasis/turned.py --root DATA --out results/turned.jsonl

Quarter turns, or a flip, are the powers of one map R, so pictures and gradient fall apart into its eigenspaces, and in
each dW_k = sum_b D_k[b] x_k[b], where D_k[b] = sum_j i^jk d_bj are sums of the pushes d_bj = p(R^j x_b) - y_b on the
copies. Equal pushes make D_k vanish for all k but 0, which is what the defense counts on. But no two copies have quite
the same p, so D_k is small and not zero: given d, all of x follows, and given x, d. The search for a d that agrees with
itself starts at random pictures around the mixture. An update says nothing about which of a picture's copies was
the picture, so what is found is found up to R; PSNR is of the best of its turns. Nothing is planted, labels are known
and do not repeat, float32 gradients.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.core.interval import mean_interval
from gradveil.core.seeds import Seed, normal, uniform
from gradveil.data import Dataset, load
from gradveil.metrics.psnr import peak_signal_to_noise

MAPS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {  # order and generator
    "major": (4, lambda x: x.rot90(1, (-2, -1))),
    "hflip": (2, lambda x: x.flip(-1)),
    "vflip": (2, lambda x: x.flip(-2)),
}
ROUGH, FINE, MEMORY = 120, 400, 8  # steps among pictures, steps among logits, and how many of these are combined
EXACT = 60.0  # dB


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """The powers of one map, and its eigenspaces."""

    order: int
    once: Callable[[Tensor], Tensor]

    def all(self, x: Tensor) -> Tensor:
        """[..., copy, channel, height, width], the first is x."""
        copies = [x]
        for _ in range(self.order - 1):
            copies.append(self.once(copies[-1]))
        return torch.stack(copies, -4)

    @property
    def characters(self) -> Tensor:
        """[space, copy]."""
        k, j = torch.meshgrid(torch.arange(self.order), torch.arange(self.order), indexing="ij")
        return torch.polar(torch.ones(k.shape, dtype=torch.float64), 2 * torch.pi * (k * j).double() / self.order)

    def parts(self, x: Tensor) -> Tensor:
        """[space, ..., pixel], which sum to x."""
        copies = self.all(x).flatten(-3).to(torch.complex128)
        return torch.einsum("kj,...jn->k...n", self.characters.conj() / self.order, copies)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The server's side: one linear layer on normalized pictures, its gradient, and the labels."""

    cycle: Cycle
    head: Tensor  # [class, pixel]
    weight: Tensor  # gradient, [class, channel, height, width]
    labels: Tensor  # [example, class]

    def push(self, logits: Tensor) -> Tensor:
        """[example, copy, class]."""
        return (logits.softmax(-1) - self.labels[:, None]) / logits[..., 0].numel()

    def logits(self, pictures: Tensor) -> Tensor:
        return self.cycle.all(pictures).flatten(-3) @ self.head.T

    def explained(self, push: Tensor, parts: Tensor, damping: float) -> Tensor:
        """Of each eigenspace what these pushes make of the gradient's part, [space, example, ...]."""
        each = torch.einsum("kj,bjc->kcb", self.cycle.characters, push.to(torch.complex128))
        square = each.mH @ each
        ridge = damping * square[0].diagonal().real.mean() * torch.eye(len(push), dtype=torch.float64)
        return torch.linalg.solve(square + ridge, each.mH @ parts)

    @cached_property
    def parts(self) -> Tensor:
        return self.cycle.parts(self.weight)

    def pictures(self, push: Tensor, damping: float = 0.0) -> Tensor:
        parts = self.explained(push, self.parts, damping)
        return parts.sum(0).real.unflatten(-1, self.weight.shape[1:])


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    for transforms in args.transforms:
        for size, batches in zip(args.batch_sizes, args.batches, strict=True):
            start = time.perf_counter()
            pairs = [attacked(data, transforms, size, batch, args.starts) for batch in range(batches)]
            line = about([b for before, _ in pairs for b in before], [a for _, after in pairs for a in after])
            head = {"transforms": transforms, "size": size, "batches": batches}
            tell(head | line | {"seconds": round(time.perf_counter() - start, 1)}, args.out)


def attacked(data: Dataset, transforms: str, size: int, batch: int, starts: int) -> tuple[list[float], list[float]]:
    """PSNR of each picture in dB, up to the map: of the mixture that is read off, and of what it is taken apart to."""
    order, once = MAPS[transforms]
    here = distinct(data)[batch * size : (batch + 1) * size]
    mean, std = (torch.tensor(c, dtype=torch.float64).view(-1, 1, 1) for c in (data.mean, data.std))
    truth, labels, seed = data.images[here].double(), data.targets[here].double(), Seed(0).at("turned", size, batch)
    seen = observed(Cycle(order=order, once=once), (truth - mean) / std, labels, seed)
    first = seen.weight[labels.argmax(1)] / bias_of(seen, truth, mean, std)[labels.argmax(1)].view(-1, 1, 1, 1)
    found = [searched(seen, first, mean, std, seed.at("start", number)) for number in range(starts)]
    best = min(found, key=lambda one: one[0])[1]
    return scored(seen.cycle, first * std + mean, truth), scored(seen.cycle, best * std + mean, truth)


def observed(cycle: Cycle, pictures: Tensor, labels: Tensor, seed: Seed) -> Seen:
    """Untrained; the gradient is rounded to float32, as a client would send it."""
    pixels, classes = pictures[0].numel(), labels.shape[1]
    head = (2 * uniform((classes, pixels), seed.at("head").rng(), labels) - 1) * pixels**-0.5
    blind = Seen(cycle=cycle, head=head, weight=pictures[:0], labels=labels)
    push = blind.push(blind.logits(pictures))
    weight = torch.einsum("bjc,bjn->cn", push, cycle.all(pictures).flatten(-3)).float().double()
    return Seen(cycle=cycle, head=head, weight=weight.unflatten(-1, pictures.shape[1:]), labels=labels)


def bias_of(seen: Seen, truth: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The gradient by the bias, which the client sends too."""
    return seen.push(seen.logits((truth - mean) / std)).sum((0, 1)).float().double()


def searched(seen: Seen, first: Tensor, mean: Tensor, std: Tensor, seed: Seed) -> tuple[float, Tensor]:
    """Pictures in [0, 1] first, with less and less damping; then the logits alone, several steps combined."""
    noise = seen.cycle.parts(0.5 * normal(first.shape, seed.rng(), first))[1:].sum(0).real.view_as(first)
    pictures = first + noise
    for step in range(ROUGH):
        damping = 10.0 ** (-4 - 8 * step / ROUGH)
        found = seen.pictures(seen.push(seen.logits(pictures)), damping)
        pictures = (pictures + ((found * std + mean).clamp(0, 1) - mean) / std) / 2
    across = seen.parts @ seen.head.T.to(torch.complex128)
    off, logits = settled(seen, across, seen.logits(pictures))
    return off, seen.pictures(seen.push(logits))


def settled(seen: Seen, across: Tensor, logits: Tensor) -> tuple[float, Tensor]:
    """Logits that agree with the pictures that they imply, by Anderson's mixing; how far off, and the best of them."""
    points: list[Tensor] = []
    steps: list[Tensor] = []
    best = (float("inf"), logits)
    for _ in range(FINE):
        parts = seen.explained(seen.push(logits), across, 0.0)
        off = torch.einsum("kj,kbc->bjc", seen.cycle.characters, parts).real - logits
        best = min(best, (float(off.norm()), logits), key=lambda one: one[0])
        points, steps = [*points, logits.flatten()][-MEMORY:], [*steps, off.flatten()][-MEMORY:]
        logits = mixed(points, steps).view_as(logits)
    return best


def mixed(points: list[Tensor], steps: list[Tensor]) -> Tensor:
    """The combination of the last points whose step is shortest, and half that step further."""
    if len(points) == 1:
        return points[0] + 0.5 * steps[0]
    moved, changed = (torch.stack(each).diff(dim=0) for each in (points, steps))
    share = torch.linalg.lstsq(changed.T, steps[-1]).solution
    return points[-1] + 0.5 * steps[-1] - share @ (moved + 0.5 * changed)


def scored(cycle: Cycle, shown: Tensor, truth: Tensor) -> list[float]:
    """The best of each picture's turns."""
    copies = cycle.all(shown.clamp(0, 1))
    return peak_signal_to_noise(copies, truth[:, None].expand_as(copies)).amax(1).tolist()


def distinct(data: Dataset) -> Tensor:
    """The pictures in an order in which no label comes twice within a hundred."""
    labels = data.targets.argmax(-1)
    turn = torch.zeros_like(labels)
    for label in labels.unique():
        turn[labels == label] = torch.arange(int((labels == label).sum()))
    return (turn * data.targets.shape[1] + labels).argsort()


def about(mixture: list[float], apart: list[float]) -> dict[str, Any]:
    between = mean_interval(apart)
    assert between is not None
    found = {"mixture": round(sum(mixture) / len(mixture), 2), "psnr": round(sum(apart) / len(apart), 2)}
    found |= {"psnr_low": round(between.low, 2), "psnr_high": round(between.high, 2)}
    return found | {"pictures": len(apart), "exact": sum(a >= EXACT for a in apart)}


def tell(line: dict[str, Any], out: Path | None) -> None:
    print(json.dumps(line), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--transforms", nargs="+", default=list(MAPS), choices=list(MAPS))
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 8], help="of each size")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
