"""A whole batch through a linear layer and its ReLU, in closed form (SPEAR: Dimitrov et al., NeurIPS 2024).

The gradient of a layer z = W x + b is dW = D X' with a column of D for each picture, and has their number as its rank.
A factor of it is D up to a mixing Q that nobody sends. ReLU leaves D zero where a unit slept through a picture, so any
B - 1 rows that are all zero for one picture have the column of Q that belongs to it as their null vector: rows are
sampled, and a null vector that makes many more rows zero is a column. The bias's gradient scales them.
Differs from SPEAR: every null vector is fitted again to all rows that it makes zero before it counts; columns are
taken by the number of their zeros as long as they stay independent; and the result is verified by a replay of the
update instead of by comparing signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gradveil.attacks.closed.layer_input import LayerInput
from gradveil.attacks.closed.low_rank import MORE, SAME, ZERO, Mixed, find_linear, has_rank
from gradveil.attacks.closed.picture_labels import label_pictures
from gradveil.attacks.closed.replay import BLANK, find_nothing, verify
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed, normal

PAPER = Paper("SPEAR: Exact Gradient Inversion of Batches in Federated Learning", "Dimitrov et al.", 2024,
              "arXiv:2403.03945")  # fmt: skip
AT_ONCE = 8192  # row sets
MOST = 20  # pictures; beyond there are too many sets to sample
KEPT = 4  # candidates for each column, the sparsest ones
TURNS = (0.0, 2.0, 4.0, 6.0)  # how much rows are preferred that sleep through the pictures whose columns are known
AGREE = 0.9  # of a picture's units; the rest may have fallen asleep or woken up in a later local step


def spear(*, samples: int = 600_000) -> Spear:
    """Reads a batch of up to 16 pictures or so off a linear layer that ReLU follows; exact without a defense.

    `samples`: sets of rows that are tried for each client, at most; each further picture needs about twice as many.
    """
    return Spear(samples=samples)


@dataclass(frozen=True, kw_only=True)
class Spear(Attack):
    """Low rank and sparsity."""

    samples: int = 600_000

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= 10**9:
            raise ConfigError(f"samples must be 1 to 10^9, got {self.samples}", key="spear")

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        if why := out_of_range(seen):
            raise NotApplicableError(why, key="spear")
        find_linear(seen, "spear", sleeping=True)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is what a replay of the pictures leaves unexplained."""
        seen = seen.average_rounds()
        inputs = find_linear(seen, "spear", sleeping=True)
        if why := out_of_range(seen):
            return find_nothing(seen, why)
        weight, bias = (seen.update[f"{inputs.layer}.{part}"] for part in ("weight", "bias"))
        pictures = [
            self.read(inputs, w, b, seen.examples, seed.at(name).rng())
            for w, b, name in zip(weight, bias, seen.names, strict=True)
        ]
        images = torch.stack(pictures)
        return verify(seen, images, label_pictures(seen, images))

    def read(self, inputs: LayerInput, weight: Tensor, bias: Tensor, count: int, rng: Generator) -> Tensor:
        """The pictures of one client; blank ones where the columns do not come together."""
        blank = weight.new_full((count, *inputs.shape), BLANK)
        if not (weight.isfinite().all() and bias.isfinite().all()):
            return blank
        left, sizes, right = torch.linalg.svd(weight.double(), full_matrices=False)
        if not has_rank(sizes, count):
            return blank
        batch = Mixed(left[:, :count] * sizes[:count], right[:count], bias.double())
        layer = inputs.model.get_submodule(inputs.layer)
        for columns in self.find_columns(batch.directions(), count, rng):
            rows, slopes = batch.unmix(columns)
            if sleeps_where_flat(layer, rows, slopes):
                return inputs.invert(rows.to(weight).unsqueeze(1))
        return blank

    def find_columns(self, left: Tensor, count: int, rng: Generator) -> Iterator[list[Tensor]]:
        """Independent columns of the mixing, those with the most zeros: better ones each time."""
        found: list[tuple[int, Tensor]] = []
        last: tuple[int, ...] = ()
        sleepy = left.new_zeros(len(left))
        if count == 1:
            yield [left.new_ones(1)]
        tries = min(self.samples, sets_needed(count)) if len(left) >= count + MORE and count > 1 else 0
        for turn in range(-(-tries // AT_ONCE)):
            weights = (TURNS[turn % len(TURNS)] * sleepy).exp()
            for zeros, column in sample(left, count, weights, rng):
                if all((column - (column @ other) * other).norm() > SAME for _, other in found):
                    found.append((zeros, column))
            found = sorted(found, key=lambda one: -one[0])[: KEPT * count]
            chosen = independent([column for _, column in found])
            if tuple(map(id, chosen)) == last or not chosen:
                continue
            last, rest = tuple(map(id, chosen)), (left @ torch.stack(chosen, 1)).abs()
            sleepy = (rest <= ZERO * rest.amax(0)).double().mean(1)
            if len(chosen) == count:
                yield chosen


def sets_needed(count: int) -> int:
    """Row sets after which every column has been met sixteen times, if two rows of five sleep through each picture."""
    return round(16 * count * 2.5 ** (count - 1))


def sample(left: Tensor, count: int, weights: Tensor, rng: Generator) -> list[tuple[int, Tensor]]:
    """Null vectors of sampled rows that make more rows zero than were sampled, fitted again, with their zeros."""
    keys = torch.rand(AT_ONCE, len(left), generator=rng).to(left).log() / weights  # the largest are a weighted sample
    at = keys.topk(count - 1, dim=1).indices
    fitted = [fit_again(left, column) for column in sparsest(left, null_vectors(left[at], rng), count)]
    return [(zeros, column) for zeros, column in fitted if zeros >= count - 1 + MORE]


def null_vectors(rows: Tensor, rng: Generator) -> Tensor:
    """Of sets of B - 1 rows each, [set, B], of length one; zero where the rows are dependent."""
    sets, less, count = rows.shape
    last = normal((1, 1, count), rng, rows).expand(sets, 1, count)
    target = torch.cat([rows.new_zeros(sets, less, 1), rows.new_ones(sets, 1, 1)], 1)
    solved, info = torch.linalg.solve_ex(torch.cat([rows, last], 1), target)
    vectors = torch.nn.functional.normalize(solved.squeeze(-1), dim=1).nan_to_num(0, 0, 0)
    return vectors.masked_fill((info != 0).unsqueeze(1), 0.0)


def sparsest(left: Tensor, vectors: Tensor, count: int) -> Tensor:
    """Those that make more rows zero than they were asked to: the best of them, each once."""
    rest = (vectors @ left.T).abs()
    largest = rest.amax(1, keepdim=True)
    zeros = (rest <= ZERO * largest).sum(1).masked_fill(largest.squeeze(1) == 0, 0)
    chosen = []
    while len(chosen) < KEPT * count and zeros.max() >= count - 1 + MORE:
        chosen.append(vectors[zeros.argmax()])
        zeros = zeros.masked_fill((vectors @ chosen[-1]).abs() > 1 - SAME**2, 0)
    return torch.stack(chosen) if chosen else vectors[:0]


def fit_again(left: Tensor, column: Tensor) -> tuple[int, Tensor]:
    """The null vector of all rows that this one makes zero, and how many those are; 0 where they leave a plane."""
    rest = (left @ column).abs()
    _, sizes, directions = torch.linalg.svd(left[rest <= ZERO * rest.max()])
    if not sizes[len(column) - 2] > SAME * sizes[0]:
        return 0, column
    rest = (left @ directions[-1]).abs()
    return int((rest <= ZERO * rest.max()).sum()), directions[-1]


def independent(columns: list[Tensor]) -> list[Tensor]:
    """The first ones, without those that the ones before them span."""
    chosen: list[Tensor] = []
    basis: list[Tensor] = []
    for column in columns:
        rest = column
        for _ in range(2):  # once more, or rounding would leave a share of the basis
            for direction in basis:
                rest = rest - (rest @ direction) * direction
        if rest.norm() > SAME:
            chosen.append(column)
            basis.append(rest / rest.norm())
    return chosen


def sleeps_where_flat(layer: torch.nn.Module, rows: Tensor, slopes: Tensor) -> bool:
    """Whether for each picture the units that sleep are those without a slope."""
    weight, bias = (layer.get_parameter(name).detach().double() for name in ("weight", "bias"))
    sleeps = rows @ weight.T + bias <= 0
    flat = (slopes.abs() <= ZERO * slopes.abs().amax(0)).T
    return bool(((sleeps == flat).double().mean(1) >= AGREE).all())


def out_of_range(seen: Observation) -> str:
    if seen.as_fed().examples != seen.examples:
        return "spear takes one picture for each example, and here copies are fed"
    return "" if seen.examples <= MOST else f"spear reads at most {MOST} pictures from an update, got {seen.examples}"
