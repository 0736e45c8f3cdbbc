"""An attacker who knows a defense and may ignore what it knows: never weaker than one who does not know it.

It searches through the surrogate and the views of the defense, and once more without them, which is what the unaware
attacker does. What that finds is a picture as fed, and is undone by tables learned on public pictures where the
defense transforms pictures (`level_table`). Each client gets the candidate whose picture as fed explains its update
best without being rough, as restarts are chosen (`finish.by_match_and_roughness`). To explain it better than the true
picture would is no merit: a search can follow the rounding or the noise of a defense. How well a true picture would is
found out by defending the candidates' own updates (`InformedClient.floor`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradveil.core.attack import Attack, Reconstruction, Requirement, Use
from gradveil.core.client import local_update
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import REDRAWN, Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Images, Labels, PerClient
from gradveil.engine.distance import Cosine
from gradveil.engine.finish import ROUGHNESS
from gradveil.engine.level_table import learn_tables, undo
from gradveil.engine.matcher import OneTrial
from gradveil.engine.priors.prior import TotalVariation

IGNORED = "found without what is known of the defense"
UNDONE = "found as fed, without the views of the defense, and undone by a table learned on public pictures"
CLIENT_FIELDS = ("images", "labels", "found", "loss", "fed", "converged", "broke")
Recall = Callable[[Sequence[str]], Reconstruction | None]  # what the unaware attacker made of these clients, if it ran


def recall_nothing(names: Sequence[str]) -> Reconstruction | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Informed(Attack):
    """`inner` by an attacker who may ignore the defense. `recall` saves the search that the unaware one has made."""

    inner: Attack
    recall: Recall = recall_nothing

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return self.inner.plant(model, public, seed)

    @property
    def requires(self) -> frozenset[Requirement]:
        return self.inner.requires

    @property
    def uses(self) -> frozenset[Use]:
        return self.inner.uses

    def undefended(self) -> Attack:
        return self.inner.undefended()

    def networks(self) -> tuple[str, ...]:
        return self.inner.networks()

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        self.inner.check_model(model, shape)

    def check(self, seen: Observation) -> None:
        self.inner.check(seen)

    def prior_only(self) -> Attack:
        return self.inner.prior_only()

    def scaled(self, factor: float) -> Attack | None:
        return self.inner.scaled(factor)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        knowing = self.inner.reconstruct(seen, seed, compute)
        if seen.defense is None or seen.knowledge.copies > 1 or self.requires:
            return knowing
        try:
            without = self.recall(seen.names) or self.inner.reconstruct(seen.unaware(), seed, compute)
        except NotApplicableError:
            return knowing
        if without.images.shape != knowing.images.shape:
            return knowing
        found = [without]
        if seen.knowledge.views and changes_updates(seen):
            blind = replace(seen, knowledge=replace(seen.knowledge, views=()))
            found.append(self.inner.reconstruct(blind, seed, compute))
        with compute.active():
            client = InformedClient.of(seen.average_rounds())
            candidates = [client.through_views(knowing), *map(client.undo, found)]
            if seen.knowledge.views:
                candidates.append(replace(client.through_views(without), note=IGNORED))
            return keep_best(candidates, client)


def changes_updates(seen: Observation) -> bool:
    """Whether the surrogate has more to say than the views."""
    assert seen.defense is not None
    surrogate = seen.defense.surrogate({name: u[0] for name, u in seen.update.items()})
    return any(surrogate.acts_at(stage) for stage in ("gradient", "update"))


@dataclass(frozen=True)
class Candidate:
    """A reconstruction, the pictures that the model was fed if it is right, and for which clients it can be."""

    got: Reconstruction
    fed: Images
    possible: Tensor  # [client]
    note: str = ""


@dataclass(frozen=True)
class InformedClient:
    """The attacker's copy of the client with all that is known of the defense: what would this picture have sent?"""

    seen: Observation
    one: OneTrial

    @classmethod
    def of(cls, seen: Observation) -> InformedClient:
        return cls(seen, OneTrial.of(seen, Cosine()))

    @torch.no_grad()
    def match(self, fed: Images, labels: Labels) -> PerClient:
        """1 - cosine to the update received, of pictures as fed."""
        like = next(iter(self.seen.update.values()))
        fed, labels = fed.to(like).nan_to_num(0, 0, 0), labels.to(like)
        updates = [{name: u[client] for name, u in self.seen.update.items()} for client in range(len(fed))]
        return torch.stack([self.one(*of_client) for of_client in zip(fed, labels, updates, strict=True)])

    @torch.no_grad()
    def floor(self, fed: Images, labels: Labels) -> PerClient:
        """The match that these pictures would have with their own updates, once the defense has changed those.

        Zero where the defense changes pictures otherwise than by views: what it would make of them is not known.
        """
        assert self.seen.defense is not None
        defense = self.seen.defense.without_views()
        if any(defense.acts_at(stage) for stage in REDRAWN):
            return self.match(fed, labels).mul(0)
        like = next(iter(self.seen.update.values()))
        fed, labels, found = fed.to(like).nan_to_num(0, 0, 0), labels.to(like), []
        for client, name in enumerate(self.seen.names):
            params = self.one.params(self.seen.update)
            rng = Seed().at("floor", name).rng()
            own = Batch(fed[client], labels[client])
            update = local_update(self.one.model, params, own, self.seen.training, defense, rng)
            found.append(self.one(*own, update))
        return torch.stack(found)

    def through_views(self, got: Reconstruction) -> Candidate:
        """What was fed if these are the private pictures: each picture through the view that explains it best."""
        possible = torch.ones(len(got.images), dtype=torch.bool, device=got.images.device)
        if got.fed is not None or not self.seen.knowledge.views:
            return Candidate(got, got.images if got.fed is None else got.fed, possible)
        best, labels = got.images, got.labels
        each = torch.stack([view.apply(got.images) for view in self.seen.knowledge.views])  # [view, client, ...]
        number = torch.stack([self.match(fed, labels) for fed in each]).nan_to_num(nan=torch.inf).argmin(0)
        best = each[number, torch.arange(len(number), device=number.device)]
        for example in range(best.shape[1] if best.shape[1] > 1 else 0):
            best = self._improve(best, each, labels, example)
        return Candidate(got, best, possible)

    def _improve(self, best: Images, each: Tensor, labels: Labels, example: int) -> Images:
        """One picture of each client through the view that explains most while the others keep theirs."""
        tried = torch.stack([best.clone() for _ in each])
        tried[:, :, example] = each[:, :, example]
        number = torch.stack([self.match(fed, labels) for fed in tried]).nan_to_num(nan=torch.inf).argmin(0)
        return tried[number, torch.arange(len(number), device=number.device)]

    def undo(self, got: Reconstruction) -> Candidate:
        """What was private if these are the pictures as fed."""
        views, public = self.seen.knowledge.views, self.seen.public
        if not views:
            return replace(self.through_views(got), note=IGNORED)
        tables = learn_tables(views, None if public is None else public.images.to(got.images))
        before, possible = undo(got.images.flatten(0, 1), views, tables)
        each = possible.unflatten(0, got.images.shape[:2]).all(1)
        private = before.view_as(got.images)
        return Candidate(replace(got, images=private), got.images, each, UNDONE)


def keep_best(candidates: Sequence[Candidate], client: InformedClient) -> Reconstruction:
    """For each client the candidate with the lowest match * roughness ** ROUGHNESS of those that are possible."""
    floors = torch.stack([client.floor(one.fed, one.got.labels) for one in candidates]).nan_to_num(0, 0, 0)
    scores = torch.stack([score(candidate, client, floors.mean(0)) for candidate in candidates])
    chosen = scores.argmin(0)  # the first where none is possible: what knowing the defense has found
    first = candidates[0]
    merged = {name: _pick(name, candidates, chosen) for name in CLIENT_FIELDS}
    counted = [(int((chosen == number).sum()), one.note) for number, one in enumerate(candidates) if one.note]
    notes = [f"{count} of {len(chosen)} clients: {note}" for count, note in counted if count]
    return replace(first.got, **merged, notes=(*first.got.notes, *notes))


def score(candidate: Candidate, client: InformedClient, floor: PerClient) -> PerClient:
    """What restarts are chosen by, of the pictures as fed; infinite where it is not possible or broke down."""
    match = client.match(candidate.fed, candidate.got.labels).maximum(floor)
    rough = TotalVariation().of(candidate.fed.to(match)).clamp_min(1e-6) ** ROUGHNESS
    broken = ~candidate.possible | ~candidate.got.loss.isfinite()
    return (match.clamp_min(1e-12) * rough).nan_to_num(nan=torch.inf).masked_fill(broken.to(match.device), torch.inf)


def _pick(name: str, candidates: Sequence[Candidate], chosen: Tensor) -> Tensor | None:
    """A field of the reconstructions, of each client from the candidate that was chosen for it."""
    each = [one.fed if name == "fed" else getattr(one.got, name) for one in candidates]
    if any(x is None for x in each):
        return each[0] if name != "broke" else None
    stacked = torch.stack([x.to(each[0]) for x in each])
    return stacked[chosen.to(stacked.device), torch.arange(len(chosen), device=stacked.device)]
