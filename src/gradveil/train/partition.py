"""Whose pictures are whose: equal shares, Dirichlet shares of every class (Hsu et al., 2019), or few classes each."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.train.settings import Federation, split_of

TRIES = 100  # draws of a Dirichlet split in which somebody is left without pictures


def partition(labels: Tensor, federation: Federation) -> tuple[Tensor, ...]:
    """The places of each client's pictures, every picture once. `labels` are class numbers [n] or soft [n, class]."""
    classes = labels.argmax(-1) if labels.dim() == 2 else labels
    classes, count = classes.cpu().long(), federation.clients
    if len(classes) < count:
        raise ConfigError(f"must be at most {len(classes)} (the number of pictures), got {count}", key="clients")
    kind, number = split_of(federation.split)
    stream = Seed(federation.seed).at("split")
    if kind == "iid":
        return _equal(len(classes), count, stream.rng())
    if kind == "dirichlet":
        return _dirichlet(classes, count, number, stream)
    return _few_classes(classes, count, int(number), stream.rng())


def _equal(pictures: int, count: int, rng: Generator) -> tuple[Tensor, ...]:
    return torch.randperm(pictures, generator=rng).tensor_split(count)


def _dirichlet(classes: Tensor, count: int, alpha: float, stream: Seed) -> tuple[Tensor, ...]:
    """Every class is dealt out in shares drawn from Dirichlet(alpha), anew until everybody has a picture."""
    for attempt in range(TRIES):
        shares = _deal(classes, count, alpha, stream.at(attempt).rng())
        if all(len(share) for share in shares):
            return shares
    raise ConfigError(f"dirichlet:{alpha:g} leaves a client without pictures, take a larger number or iid", key="split")


def _deal(classes: Tensor, count: int, alpha: float, rng: Generator) -> tuple[Tensor, ...]:
    shares: list[list[Tensor]] = [[] for _ in range(count)]
    for label in classes.unique().tolist():
        here = _shuffle((classes == label).nonzero().flatten(), rng)
        # torch's own Dirichlet draws from the global generator alone
        full = torch.full((count,), alpha, dtype=torch.float64)
        raw = torch._standard_gamma(full, generator=rng)  # pyright: ignore[reportPrivateImportUsage]
        ends = (raw / raw.sum().clamp_min(1e-300)).cumsum(0)[:-1].mul(len(here)).round().long()
        for client, part in enumerate(here.tensor_split(ends.tolist())):
            shares[client].append(part)
    return tuple(_shuffle(torch.cat(parts), rng) for parts in shares)


def _few_classes(classes: Tensor, count: int, each: int, rng: Generator) -> tuple[Tensor, ...]:
    """Classes go round in a drawn order until every client has `each`; a class is then shared by those who have it."""
    known = classes.unique()
    if each > len(known) or each * count < len(known):
        least = -(-len(known) // count)
        raise ConfigError(
            f"with {len(known)} classes it must be classes:{least} to classes:{len(known)}, got {each}", key="split"
        )
    order = _shuffle(known, rng).tolist()
    owners: dict[int, list[int]] = {label: [] for label in order}
    for slot in range(count * each):
        owners[order[slot % len(order)]].append(slot // each)
    shares: list[list[Tensor]] = [[] for _ in range(count)]
    for label, clients in owners.items():
        here = _shuffle((classes == label).nonzero().flatten(), rng)
        for client, part in zip(clients, here.tensor_split(len(clients)), strict=True):
            shares[client].append(part)
    return _check_shares(tuple(torch.cat(parts) for parts in shares), each)


def _check_shares(shares: tuple[Tensor, ...], each: int) -> tuple[Tensor, ...]:
    if not all(len(share) for share in shares):
        raise ConfigError(f"classes:{each} leaves a client without pictures, take fewer clients", key="split")
    return shares


def _shuffle(places: Tensor, rng: Generator) -> Tensor:
    return places[torch.randperm(len(places), generator=rng)]
