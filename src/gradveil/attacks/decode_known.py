"""Decoding by one who knows what was mixed with what (GradAttack, Huang et al., 2021; LODA takes it over).

Encodings of all rounds are read from the updates, or given, and the pictures in them are found by least squares; where
pixels were flipped, by their sizes alone (LODA, eq. 3). Differs: GradAttack stops there. Here, where nothing was
flipped, a search follows for the pictures that explain all updates of a client at once, worth several dB.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradveil.attacks.decoding.decoder import INNER, Decoder, Inner, Mixed
from gradveil.attacks.decoding.leak import Encodings, Leak
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed

PAPER = Paper(
    "Evaluating Gradient Inversion Attacks and Defenses in Federated Learning",
    "Huang et al.",
    2021,
    "arXiv:2112.00059",
)


def decode_known(
    *,
    leak: Leak = "gradient",
    inner: Inner = "dlg",
    steps: int = 1200,
    restarts: int = 1,
    joint: bool = True,
    smooth: float = 0.0,
) -> DecodeKnown:
    """Undoes Mixup and InstaHide for an attacker who knows which pictures were mixed, and how much of each.

    `inner` reads encodings from updates (`leak = "encoding"`: they are given, see scenario.encodings); `joint` searches
    on for what explains all rounds, with as many steps; `smooth` is a TV weight for least squares.
    """
    return DecodeKnown(inner=INNER[inner](steps=steps, restarts=restarts), leak=leak, joint=joint, smooth=smooth)


@dataclass(frozen=True, kw_only=True)
class DecodeKnown(Decoder):
    """Takes the weights, and which public pictures are in an encoding, from what it was granted."""

    def weigh(self, seen: Observation, found: Encodings, client: int, seed: Seed) -> Mixed:
        mixtures = [one.knowledge.mixture for one in (*seen.history, seen)]
        weights = torch.cat([mixture.weights[client] for mixture in mixtures if mixture is not None]).double()
        inside, outside = weights.split([seen.examples, weights.shape[1] - seen.examples], 1)
        if seen.public is None or not outside.shape[1]:
            return Mixed(inside, inside.new_zeros(len(inside), *seen.shape))
        return Mixed(inside, torch.einsum("es,schw->echw", outside, 2 * seen.public.images.to(inside) - 1))
