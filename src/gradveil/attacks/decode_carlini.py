"""Decoding by one who does not know what was mixed with what (Carlini et al., 2020; LODA, section 3.2 and eq. 3).

Which encodings share a picture is told by a network trained on public pictures, or by their pixels; labels and clusters
give the weights; a regression on absolute values gives the pictures. Differs: a small network, clusters within classes,
weights that are refined against the pictures found, and signs that neighboring pixels tell: see `decoding/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from gradveil.attacks.decoding.clusters import assign_weights, needs_similarity, refine
from gradveil.attacks.decoding.decoder import INNER, Decoder, Inner, Mixed
from gradveil.attacks.decoding.leak import Encodings, Leak
from gradveil.attacks.decoding.regression import solve, solve_without_signs
from gradveil.attacks.decoding.same_source import logits_of_all_pairs, train
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.defenses._mixing import Mixing, mixing_in

PAPER = Paper("Is Private Learning Possible with Instance Encoding?", "Carlini et al.", 2020, "arXiv:2011.05315")
Similarity = Literal["network", "pixels"]


def decode_carlini(
    *,
    leak: Leak = "gradient",
    inner: Inner = "dlg",
    similarity: Similarity = "network",
    training: int = 600,
    turns: int = 8,
    steps: int = 1200,
    restarts: int = 1,
    joint: bool = True,
    smooth: float = 0.0,
) -> DecodeCarlini:
    """Undoes Mixup and InstaHide for an attacker who infers from many encodings which of them share a picture.

    `similarity`: a network of `training` steps on public pictures, or the correlation of pixels; `turns`: how often
    weights and pictures are fitted to each other. The rest is as in `decode-known`.
    """
    return DecodeCarlini(
        inner=INNER[inner](steps=steps, restarts=restarts),
        leak=leak,
        joint=joint,
        smooth=smooth,
        similarity=similarity,
        training=training,
        turns=turns,
    )


@dataclass(frozen=True, kw_only=True)
class DecodeCarlini(Decoder):
    """Works the weights out from the encodings and their labels; public pictures in them are noise to it."""

    similarity: Similarity = "network"
    training: int = 600
    turns: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training < 0 or self.turns < 0:
            raise ConfigError("training and turns are numbers of steps, take numbers >= 0", key="decode-carlini")

    def weigh(self, seen: Observation, found: Encodings, client: int, seed: Seed) -> Mixed:
        mixing = mixing_in(seen.defense)
        encodings, labels = 2 * found.images[client].double() - 1, found.labels[client].double()
        sizes = encodings.abs() if mixing.flips else encodings
        similarity = None
        if needs_similarity(labels, seen.examples):
            similarity = self._similarity(seen, sizes, mixing)
        weights, flat = assign_weights(labels, seen.examples, similarity, seed), sizes.flatten(1)
        solve = partial(_solve, targets=flat, flipped=mixing.flips, seed=seed)
        weights = refine(weights, flat, labels, solve, mixing.flips, self.turns)
        return Mixed(weights, encodings.new_zeros(encodings.shape))

    def _similarity(self, seen: Observation, sizes: Tensor, mixing: Mixing) -> Tensor:
        if self.similarity == "pixels":
            return _correlation(sizes.flatten(1))
        if seen.public is None or len(seen.public.images) < 2 * mixing.k:
            raise NotApplicableError(
                f"its network learns from public pictures and needs {2 * mixing.k} of them, "
                'ask for fewer images or take similarity = "pixels"',
                key="decode-carlini",
            )
        public = 2 * seen.public.images.float() - 1
        net = train(public, mixing, self.training, Seed().at("same source"))  # all clients face the same one
        return logits_of_all_pairs(net, sizes.to(public)).to(sizes)


def _solve(weights: Tensor, *, targets: Tensor, flipped: bool, seed: Seed) -> Tensor:
    if not flipped:
        return solve(weights, targets)
    return solve_without_signs(weights, torch.zeros_like(targets), targets, seed)


def _correlation(sizes: Tensor) -> Tensor:
    """Of what is left of every encoding without the mean of all, [encoding, encoding]."""
    rest = sizes - sizes.mean(0)
    return torch.nn.functional.normalize(rest, dim=1) @ torch.nn.functional.normalize(rest, dim=1).T
