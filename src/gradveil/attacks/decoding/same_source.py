"""Do two encodings hold the same picture? A small residual network says it from their sizes (Carlini et al., 2020).

Trained on public pictures, mixed as the defense mixes, in pairs that share a picture and pairs that do not. A stand-in:
two residual blocks of 16 channels at half the resolution where the paper trains a WideResNet-28-6; it sees |x|, |y|
and their product, where theirs sees the first two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from gradveil.core.seeds import Seed
from gradveil.defenses._mixing import Mixing, draw_weights
from gradveil.models.start import weights_from

WIDTH = 16
CONTRAST = 4.0  # products of sizes are small
PAIRS = 48  # in a step of the training
AT_ONCE = 4096  # pairs that are compared at once


class SameSource(nn.Module):
    """A logit for two encodings, [pair, 2 * channel, height, width]; the same for both orders of the two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3 * channels, WIDTH, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(4))
        self.last = nn.Linear(2 * WIDTH, 1)

    def forward(self, sizes: Tensor) -> Tensor:
        mine, other = (x - x.mean((2, 3), keepdim=True) for x in sizes.chunk(2, 1))
        product = CONTRAST * mine * other  # what agrees; a small network is slow to learn to multiply
        return self.one_way(torch.cat([mine, other, product], 1)) + self.one_way(torch.cat([other, mine, product], 1))

    def one_way(self, sizes: Tensor) -> Tensor:
        x = F.relu(self.first(sizes))
        for before, after in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = F.relu(x + after(F.relu(before(x))))
        return self.last(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)).squeeze(1)


def train(public: Tensor, mixing: Mixing, steps: int, seed: Seed) -> SameSource:
    """`public` pictures are in [-1, 1] and mixed as the defense mixes them."""
    with weights_from(seed.at("weights").number() % 2**31):
        net = SameSource(public.shape[1]).to(public)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    rng = seed.at("pairs").rng()
    for _ in range(steps):
        pairs, shared = draw_pairs(public, mixing, rng)
        with torch.enable_grad():
            loss = F.binary_cross_entropy_with_logits(net(pairs), shared)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return net.eval()


def draw_pairs(public: Tensor, mixing: Mixing, rng: Generator) -> tuple[Tensor, Tensor]:
    """Sizes of two mixtures each, and whether they share their first picture; half of them do."""
    k = mixing.k
    chosen = torch.rand(PAIRS, len(public), generator=rng).argsort(1)[:, : 2 * k].unflatten(1, (2, k))
    shared = torch.arange(PAIRS) < PAIRS // 2
    chosen[shared, 1, 0] = chosen[shared, 0, 0]
    weights = draw_weights(2 * PAIRS, k, mixing.bound, rng).view(PAIRS, 2, k).to(public)
    mixed = torch.einsum("pek,pekchw->pechw", weights, public[chosen.to(public.device)])
    return (mixed.abs() if mixing.flips else mixed).flatten(1, 2), shared.to(public)


@torch.no_grad()
def logits_of_all_pairs(net: SameSource, sizes: Tensor) -> Tensor:
    """[encoding, encoding], symmetric."""
    first, second = torch.triu_indices(len(sizes), len(sizes), 1, device=sizes.device)
    logits = [
        net(torch.cat([sizes[a], sizes[b]], 1))
        for a, b in zip(first.split(AT_ONCE), second.split(AT_ONCE), strict=True)
    ]
    table = sizes.new_zeros(len(sizes), len(sizes))
    table[first, second] = torch.cat(logits) if logits else sizes.new_zeros(0)
    return table + table.T
