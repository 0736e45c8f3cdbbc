"""Large batches through a linear layer by independent components (Cocktail Party: Kariyappa et al., ICML 2023).

The rows of dW = D X' are mixtures of the pictures, as microphones hear voices. Differs in four ways. Independent and
far from normal are not pixels but differences of neighbors, which mix in the same way: FastICA of them needs no search.
The bias's gradient gives scale and sign, which a party leaves open. Where ReLU follows, the column of the mixing near
each one found that makes most rows zero is the true one (as in `spear`, which has to guess where to begin): from there
on pictures are exact. What is exact is taken out, and the rest is separated again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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

PAPER = Paper(
    "Cocktail Party Attack: Breaking Aggregation-Based Privacy in Federated Learning Using Independent Component "
    "Analysis", "Kariyappa et al.", 2023, "arXiv:2209.05578",
)  # fmt: skip
COPIES = "cocktail-party takes one picture for each example, and here copies are fed"
STEPS = 300  # of a separation, at most
STILL = 1e-7  # change of the separation in a step, at which it has ended
SHARPER = 0.8  # what is left of the width below which a row counts as zero, after each step
SHARPEST = 1e-7
SHARPENINGS = 60
LIKE = 0.4  # of the most zeros of a column: a trained network's units sleep through some pictures more than others
CHANCE = 0.1  # of all rows that a vector may make zero beyond those that any can, and yet be none
OF_BLANK = 0.5  # of what blank pictures leave of the update


def cocktail_party(*, rounds: int = 6) -> CocktailParty:
    """Reads large batches off a linear layer by independent component analysis; exact where ReLU follows and they fit.

    `rounds`: separations, each of what the ones before it have not read exactly.
    """
    return CocktailParty(rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class CocktailParty(Attack):
    """Separates, makes exact, and separates the rest."""

    rounds: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= 100:
            raise ConfigError(f"rounds must be 1 to 100, got {self.rounds}", key="cocktail-party")

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def check(self, seen: Observation) -> None:
        inputs = find_linear(seen, "cocktail-party", sleeping=False)
        if seen.as_fed().examples != seen.examples:
            raise NotApplicableError(COPIES, key="cocktail-party")
        units = len(inputs.model.get_parameter(f"{inputs.layer}.weight"))
        if units < seen.examples:
            raise NotApplicableError(
                f"layer {inputs.layer} has {units} units, too few for {seen.examples} pictures", key="cocktail-party"
            )

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is what a replay of the pictures leaves unexplained."""
        seen = seen.average_rounds()
        inputs = find_linear(seen, "cocktail-party", sleeping=False)
        if seen.as_fed().examples != seen.examples:
            return find_nothing(seen, COPIES)
        weight, bias = (seen.update[f"{inputs.layer}.{part}"] for part in ("weight", "bias"))
        pictures = [
            self.read(inputs, w, b, seen.examples, seed.at(name).rng())
            for w, b, name in zip(weight, bias, seen.names, strict=True)
        ]
        images = torch.stack(pictures)
        return verify(seen, images, label_pictures(seen, images), most=1.0, of_blank=OF_BLANK)

    def read(self, inputs: LayerInput, weight: Tensor, bias: Tensor, count: int, rng: Generator) -> Tensor:
        """The pictures of one client; blank ones where the update is not one of so many."""
        blank = weight.new_full((count, *inputs.shape), BLANK)
        if not (weight.isfinite().all() and bias.isfinite().all()):
            return blank
        left, sizes, right = torch.linalg.svd(weight.double(), full_matrices=False)
        if not has_rank(sizes, count):
            return blank
        batch = Mixed(left[:, :count] * sizes[:count], right[:count], bias.double())
        mixtures = inputs.invert(batch.right.to(weight).unsqueeze(1)).double()
        nothing = inputs.invert(torch.zeros_like(batch.right[:1]).to(weight).unsqueeze(1)).double()
        layer = inputs.model.get_submodule(inputs.layer)
        asleep = partial(sleeping_units, layer, batch)
        mixing = self.separate(neighbor_differences(mixtures - nothing), batch.directions(), asleep, rng)
        rows, _ = batch.unmix(list(mixing.T))
        return inputs.invert(rows.to(weight).unsqueeze(1)) if rows.isfinite().all() else blank

    def separate(self, signals: Tensor, left: Tensor, asleep: Callable[[Tensor], Tensor], rng: Generator) -> Tensor:
        """The mixing, a column for each picture, the exact ones first. `signals` are mixtures, one in each row."""
        known, mixing = 0, torch.eye(len(signals), dtype=signals.dtype, device=signals.device)
        for turn in range(self.rounds):
            if known == len(signals):
                break
            mixing = separate_rest(signals, mixing, known, rng, turn % 2 == 0)
            if len(left) < 2 * (len(signals) + MORE):
                break  # half of the units are too few zeros to tell a column by
            exact, rest = mixing[:, :known], mixing[:, known:].T
            new = take_new(exact, [make_exact(column, left) for column in rest], left)
            if not new:  # once more, of those rows alone that sleep through the picture as far as it is known
                rows = [left[row] for row in asleep(mixing)[known:]]
                new = take_new(exact, list(map(make_exact, rest, rows)), left)
            others = [column for at, column in enumerate(rest) if at not in new]
            mixing, known = torch.stack([*exact.T, *new.values(), *others], 1), known + len(new)
        return mixing


def separate_rest(signals: Tensor, mixing: Tensor, known: int, rng: Generator, rare: bool) -> Tensor:
    """The same mixing with its first columns as they are, which are exact, and others for the rest."""
    exact = mixing[:, :known]
    free = torch.linalg.svd(exact, full_matrices=True)[0][:, known:].T  # what the exact ones have no part in
    rest = find_independent(free @ signals, rng, rare) @ free
    unmixing = torch.cat([torch.linalg.pinv(mixing)[:known], rest])
    return torch.cat([exact, torch.linalg.pinv(unmixing)[:, known:]], 1)


def neighbor_differences(pictures: Tensor) -> Tensor:
    """To the right and below, [picture, difference]."""
    across, down = pictures[..., 1:] - pictures[..., :-1], pictures[..., 1:, :] - pictures[..., :-1, :]
    return torch.cat([across.flatten(1), down.flatten(1)], 1)


def find_independent(signals: Tensor, rng: Generator, rare: bool) -> Tensor:
    """FastICA (Hyvarinen, 1999), all components at once: what the signals are to be multiplied by.

    `rare`: by the function that large values count less in, where edges are few; else by the hyperbolic tangent.
    """
    count, samples = signals.shape
    sizes, axes = torch.linalg.eigh(signals @ signals.T / samples)
    whiten = axes @ (sizes.clamp_min(torch.finfo(sizes.dtype).eps * sizes[-1]).rsqrt().unsqueeze(1) * axes.T)
    white = whiten @ signals
    turn = torch.linalg.qr(normal((count, count), rng, signals))[0]
    for _ in range(STEPS):
        sources = turn @ white
        bell = (-sources.square() / 2).exp()
        squeezed = sources * bell if rare else sources.tanh()
        slopes = (1 - sources.square()) * bell if rare else 1 - squeezed.square()
        moved = squeezed @ white.T / samples - slopes.mean(1, keepdim=True) * turn
        one, _, other = torch.linalg.svd(moved)
        before, turn = turn, one @ other
        if (1 - (before * turn).sum(1).abs()).max() < STILL:
            break
    return turn @ whiten


def sleeping_units(layer: torch.nn.Module, batch: Mixed, mixing: Tensor) -> Tensor:
    """Which units that say anything sleep through which picture if this is the mixing, [picture, unit]."""
    weight, bias = (layer.get_parameter(name).detach().double() for name in ("weight", "bias"))
    rows, _ = batch.unmix(list(mixing.T))
    return (rows @ weight.T + bias <= 0)[:, batch.awake()]


def make_exact(column: Tensor, left: Tensor) -> Tensor:
    """The vector near this one that makes most rows zero: least squares again and again, each row by how near it is."""
    start = found = column / column.norm()
    if len(left) < len(column):
        return column
    rest = (left @ found).abs()
    width = rest.quantile(0.25)
    for _ in range(SHARPENINGS):
        weighed = left / (rest.square() + width.square()).sqrt().unsqueeze(1)
        solved, failed = torch.linalg.solve_ex(weighed.T @ weighed, start)
        if failed or not solved.isfinite().all():
            return column
        found = solved / solved.norm()
        rest, width = (left @ found).abs(), (SHARPER * width).clamp_min(SHARPEST)
    return found


def take_new(exact: Tensor, columns: list[Tensor], left: Tensor) -> dict[int, Tensor]:
    """By their places, columns that make more rows zero than any vector can be made to, each once."""
    new: dict[int, Tensor] = {}
    basis = torch.linalg.qr(exact)[0]
    zeros = count_zeros(torch.stack(columns, 1), left).tolist()
    enough = max(len(exact) - 1 + MORE + CHANCE * len(left), LIKE * max(zeros + count_zeros(exact, left).tolist()))
    for at in sorted(range(len(columns)), key=lambda at: -zeros[at]):
        rest = columns[at] - basis @ (basis.T @ columns[at])
        if zeros[at] >= enough and rest.norm() > SAME:
            new[at] = columns[at]
            basis = torch.linalg.qr(torch.cat([basis, rest.unsqueeze(1)], 1))[0]
    return new


def count_zeros(columns: Tensor, left: Tensor) -> Tensor:
    rest = (left @ columns).abs()
    return (rest <= ZERO * rest.amax(0)).sum(0)
