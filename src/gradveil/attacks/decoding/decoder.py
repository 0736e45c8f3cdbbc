"""What all decoders share: an inner attack for the encodings of all rounds, then the pictures that were mixed in them.

They differ in where the weights come from. Least squares undoes mixing; where pixels were flipped their sizes alone are
matched (LODA, eq. 3); where they were not, one search follows for the pictures that explain all updates at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gradveil.attacks.decoding.joint_search import search_all_rounds
from gradveil.attacks.decoding.leak import Encodings, Leak, encodings_of
from gradveil.attacks.decoding.regression import agree_on_signs, descend, misfit_of, solve, solve_without_signs
from gradveil.attacks.dlg import dlg
from gradveil.attacks.gradinversion import gradinversion
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.attack import Attack, Reconstruction, Requirement
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.knowledge import Mixture
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.inversion import Inversion

Inner = Literal["dlg", "invertgrad", "gradinversion"]
INNER: Mapping[str, Callable[..., Inversion]] = {
    "dlg": dlg,
    "invertgrad": invertgrad,
    "gradinversion": gradinversion,
}


class Mixed(NamedTuple):
    """What an attacker believes of one client's encodings, with pixels in [-1, 1]."""

    weights: Tensor  # [encoding, picture]
    offset: Tensor  # [encoding, channel, height, width]: what public pictures added


@dataclass(frozen=True, kw_only=True)
class Decoder(Attack):
    """An inner attack for the encodings, then linear algebra for the pictures in them."""

    inner: Inversion
    leak: Leak = "gradient"
    joint: bool = True
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if self.smooth < 0:
            raise ConfigError(f"smooth = {self.smooth} is no weight, take a number >= 0")

    @abstractmethod
    def weigh(self, seen: Observation, found: Encodings, client: int, seed: Seed) -> Mixed:
        """The weights of one client's encodings, as far as this attacker knows or works them out."""

    @property
    def steps(self) -> int:
        return self.inner.steps

    @property
    def restarts(self) -> int:
        return self.inner.restarts

    @property
    def requires(self) -> frozenset[Requirement]:
        return frozenset({"mixture"})

    def undefended(self) -> Attack:
        return self.inner

    def prior_only(self) -> Attack:
        return self.inner.prior_only()

    def scaled(self, factor: float) -> Attack:
        return replace(self, inner=self.inner.scaled(factor))

    @property
    def evaluations(self) -> tuple[int, int]:
        return self.inner.evaluations

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        if (granted := seen.knowledge.mixture) is None:
            raise NotApplicableError(
                "this attacker knows of nothing that was mixed, "
                "take the adaptive attacker on mixup or instahide, or take invertgrad",
                key="decoding",
            )
        seen, estimates = self.inner.complete_training(seen, compute)
        flipped = granted.flipped
        inner = replace(self.inner, priors=()) if flipped else self.inner  # flipped pixels are not smooth
        found = encodings_of(seen, self.leak, inner, seed, compute)
        clients = range(len(seen.names))
        mixed = [self.weigh(seen, found, client, seed.at(seen.names[client])) for client in clients]
        decoded = [self._decode(seen, found.images[i], mixed[i], flipped, seed.at(seen.names[i])) for i in clients]
        got = Reconstruction(
            images=torch.stack(decoded).to(found.images).clamp(0, 1),
            labels=found.labels[:, -seen.examples :],
            found=torch.ones(len(decoded), len(decoded[0]), dtype=torch.bool, device=found.images.device),
            loss=found.loss,
            backend=found.backend,
            fell_back=found.fell_back,
            notes=(*found.notes, *estimates, *_about_rounds(seen, granted)),
        )
        if flipped or not self.joint or self.leak == "encoding":
            return got
        return self._search(seen, found, got, mixed, compute)

    def _decode(self, seen: Observation, images: Tensor, mixed: Mixed, flipped: bool, seed: Seed) -> Tensor:
        """One client's pictures in [0, 1]."""
        encodings = 2 * images.double() - 1
        flat, offset = encodings.flatten(1), mixed.offset.flatten(1)
        if not flipped:
            pictures = solve(mixed.weights, flat - offset).unflatten(1, seen.shape)
        else:
            pictures = solve_without_signs(mixed.weights, offset, flat.abs(), seed).unflatten(1, seen.shape)
            if not offset.any():
                pictures = agree_on_signs(pictures, None if seen.public is None else seen.public.images)
        if self.smooth:
            pictures = descend(pictures, misfit_of(*mixed, encodings, flipped), self.smooth)
        return (pictures + 1) / 2

    def _search(
        self, seen: Observation, found: Encodings, got: Reconstruction, mixed: list[Mixed], compute: Compute
    ) -> Reconstruction:
        """Client by client, from the decoded pictures on."""
        each, of_rounds = [], (len(seen.history) + 1, seen.examples)
        for client, (weights, offset) in enumerate(mixed):
            shown = (offset + 1 - weights.sum(1).view(-1, 1, 1, 1)) / 2  # in [0, 1], where 0 is black and not mid-gray
            between = [x.to(got.images).unflatten(0, of_rounds) for x in (weights, shown)]
            labels = found.labels[client].unflatten(0, of_rounds)
            each.append(
                search_all_rounds(self.inner, seen.take([client]), labels, between, got.images[client], compute)
            )
        notes = (*got.notes, *(note for one in each for note in one.notes))
        return replace(
            got,
            images=torch.stack([one.images for one in each]),
            loss=torch.stack([one.loss for one in each]),
            backend=each[0].backend,
            fell_back=got.fell_back or any(one.fell_back for one in each),
            notes=tuple(dict.fromkeys(notes)),
        )


def _about_rounds(seen: Observation, granted: Mixture) -> tuple[str, ...]:
    if seen.examples == 1:
        return ()
    if granted.fixed:
        return ("decoding: all rounds have the same mixtures, so more rounds tell nothing new of the pictures",)
    if seen.history:
        return ()
    return ("decoding: one round determines mixed pictures badly, grant the attacker more (scenario.rounds)",)
