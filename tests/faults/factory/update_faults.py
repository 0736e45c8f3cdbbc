"""Faults between client and server: what is attacked is not what the client would send."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from factory.fault import fault, has
from factory.patch import Patch
from gradveil.core.types import Batch

ROUND = "gradveil.core.server._round"
WHERE = ("everywhere", "defended", "adaptive", "audited")


def change_updates(patch: Patch, rng: Random, change: Any, *among: str) -> None:
    """Change the updates of all clients, each [client, *parameter]: what the server sees, not what was computed."""
    patch.draw_scope(rng, *(among or WHERE))

    def wrong(plain: Any, *args: Any) -> Any:
        seen, truth = plain(*args)
        return replace(seen, update={name: change(name, u) for name, u in seen.update.items()}), truth

    patch.around(ROUND, wrong)


@fault("update", "run", "updates are swapped between clients")
def updates_swapped(patch: Patch, rng: Random) -> None:
    by = rng.choice((1, -1, 2))
    change_updates(patch, rng, lambda name, u: u.roll(by, 0))


@fault("update", "run", "updates arrive as zeros")
def updates_zero(patch: Patch, rng: Random) -> None:
    change_updates(patch, rng, lambda name, u: 0 * u)


@fault("update", "run", "updates of some clients arrive as zeros")
def updates_zero_for_some(patch: Patch, rng: Random) -> None:
    def change(name: str, u: Tensor) -> Tensor:
        u = u.clone()
        u[1:] = 0
        return u

    change_updates(patch, rng, change)


@fault("update", "run", "updates are multiplied by a number")
def updates_scaled(patch: Patch, rng: Random) -> None:
    factor = rng.choice((-1.0, 1e-3, 0.1, 10.0, 1e3))
    change_updates(patch, rng, lambda name, u: factor * u)


@fault("update", "run", "all but the first numbers of every tensor are lost")
def updates_truncated(patch: Patch, rng: Random) -> None:
    share = rng.choice((0.01, 0.1, 0.5))

    def change(name: str, u: Tensor) -> Tensor:
        flat = u.flatten(1).clone()
        flat[:, max(1, int(share * flat.shape[1])) :] = 0
        return flat.view_as(u)

    change_updates(patch, rng, change)


@fault("update", "run", "all weights are lost from the updates, biases arrive")
def only_biases_arrive(patch: Patch, rng: Random) -> None:
    change_updates(patch, rng, lambda name, u: u if name.endswith("bias") else 0 * u)


@fault("update", "run", "noise arrives in the place of the updates")
def noise_arrives(patch: Patch, rng: Random) -> None:
    stream = torch.Generator().manual_seed(rng.randrange(2**31))

    def change(name: str, u: Tensor) -> Tensor:
        noise = torch.randn(u.shape, generator=stream).to(u)
        return noise * u.norm() / noise.norm()

    change_updates(patch, rng, change)


@fault("update", "run", "updates arrive rounded to a few values")
def updates_rounded(patch: Patch, rng: Random) -> None:
    step = rng.choice((0.1, 1.0, 10.0))
    change_updates(patch, rng, lambda name, u: (u / step).round() * step)


@fault("update", "run", "the numbers of every tensor arrive in another order")
def updates_shuffled(patch: Patch, rng: Random) -> None:
    def change(name: str, u: Tensor) -> Tensor:
        order = torch.randperm(u[0].numel(), generator=torch.Generator().manual_seed(len(name)))
        return u.flatten(1)[:, order].view_as(u)

    change_updates(patch, rng, change)


@fault("update", "run", "clients compute with an older model than the attacker has")
def stale_model(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)
    by = rng.choice((0.3, 1.0, 3.0))

    def stale(plain: Any, model: Any) -> Any:
        stream = torch.Generator().manual_seed(1)
        return {
            n: p + by * p.std(correction=0) * torch.randn(p.shape, generator=stream).to(p)
            for n, p in plain(model).items()
        }

    def outdated(plain: Any, sent: Any, model: Any, *rest: Any) -> Any:
        with patch.monkey.context() as inner:
            from gradveil.core import server

            exact = server.parameters_of
            inner.setattr(server, "parameters_of", lambda model: stale(exact, model))
            return plain(sent, model, *rest)

    patch.around("gradveil.core.server._client_round", outdated)


@fault("update", "run", "clients train on other pictures than the ones scores are about")
def other_pictures_trained_on(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def other(plain: Any, scenario: Any, client: int) -> Any:
        return plain(scenario, (client + 1) % len(scenario.names))

    patch.around("gradveil.core.server._private", other)


@fault("update", "run", "scores are about another client's pictures")
def truth_of_another(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def other(plain: Any, *args: Any) -> Any:
        seen, truth = plain(*args)
        private, fed = (Batch(*(x.roll(1, 0) for x in batch)) for batch in (truth.private, truth.fed))
        return seen, replace(truth, private=private, fed=fed)

    patch.around(ROUND, other)


def change_labels(patch: Patch, rng: Random, change: Any) -> None:
    patch.draw_scope(rng, *WHERE)

    def wrong(plain: Any, *args: Any) -> Any:
        seen, truth = plain(*args)
        return replace(seen, labels=None if seen.labels is None else change(seen.labels)), truth

    patch.around(ROUND, wrong)


@fault("update", "run", "the attacker is told the next class in the place of the true one")
def labels_rolled(patch: Patch, rng: Random) -> None:
    change_labels(patch, rng, lambda x: x.roll(1, -1))


@fault("update", "run", "the attacker is told the same class for every picture")
def labels_constant(patch: Patch, rng: Random) -> None:
    change_labels(patch, rng, lambda x: torch.zeros_like(x).index_fill(-1, torch.tensor([0]), 1.0))


@fault("update", "run", "the attacker is told no class at all: zeros")
def labels_zero(patch: Patch, rng: Random) -> None:
    change_labels(patch, rng, lambda x: 0 * x)


@fault("update", "run", "the attacker is told the wrong training: rate and steps", has("search"))
def training_wrong(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)
    changed = rng.choice(({"rate": 1e-2}, {"rate": 1e2}, {"steps": 5, "rate": 1.0}))

    def wrong(plain: Any, *args: Any) -> Any:
        seen, truth = plain(*args)
        return replace(seen, training=replace(seen.training, **changed)), truth

    patch.around(ROUND, wrong)


@fault("update", "run", "the attacker has another model than the clients")
def attackers_model_wrong(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def wrong(plain: Any, *args: Any) -> Any:
        import copy

        seen, truth = plain(*args)
        model = copy.deepcopy(seen.model)
        for parameter in model.parameters():
            parameter.data = parameter.data.flip(0)
        return replace(seen, model=model), truth

    patch.around(ROUND, wrong)


@fault("update", "run", "clients never get the planted model, and train on the plain one", has("planted"))
def planted_model_ignored(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def plain_weights(plain: Any, sent: Any, model: Any, *rest: Any) -> Any:
        import copy

        model = copy.deepcopy(model)
        for parameter in list(model.parameters())[:2]:  # of the planted layer
            parameter.data = torch.zeros_like(parameter.data)
        return plain(sent, model, *rest)

    patch.around("gradveil.core.server._client_round", plain_weights)
