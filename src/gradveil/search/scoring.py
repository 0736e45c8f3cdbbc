"""One policy's scores on some pictures: what a search sends to its workers.

Everything random belongs to a picture and not to a policy: its crop, the point from which an attack would start, and
the luck with which a policy draws its signs. Policies are so compared under the same circumstances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradveil.core.compute import Compute
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.metrics.fsim import feature_similarity
from gradveil.search.accuracy import jacobians, spread_scores
from gradveil.search.privacy import Against, PrivacyScore, approach
from gradveil.search.similarity import Similarity
from gradveil.transforms.library import Spec
from gradveil.transforms.pipeline import CropAndFlip
from gradveil.transforms.policy import Draw, Policy

Kind = Literal["privacy", "accuracy", "fsim"]


@dataclass(frozen=True)
class Task:
    """One policy and the pictures that it is scored on; the pictures of the accuracy score are given."""

    kind: Kind
    policy: str
    first: int = 0
    end: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.policy}/{self.first}-{self.end}"


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What happens to pictures whatever the policy is."""

    images: Tensor  # cropped and mirrored
    labels: Tensor
    luck: Tensor  # [picture, 1 + slots] in [0, 1): for the alternative and for each sign
    starts: Tensor

    def take(self, here: slice) -> Circumstances:
        parts = {name: getattr(self, name)[here] for name in ("images", "labels", "luck", "starts")}
        return Circumstances(**parts)

    def draw(self, policy: Policy) -> Draw:
        choice = (self.luck[:, 0] * len(policy.alternatives)).long()
        return Draw(choice, torch.where(self.luck[:, 1 : 1 + policy.slots] < 0.5, -1.0, 1.0))

    def fed(self, policy: Policy) -> Tensor:
        return policy.apply(self.images, self.draw(policy))


def concatenate(each: Sequence[Circumstances]) -> Circumstances:
    """All pictures one after the other."""
    names = ("images", "labels", "luck", "starts")
    return Circumstances(**{name: torch.cat([getattr(one, name) for one in each]) for name in names})


def draw_circumstances(pictures: Batch, places: Sequence[int], slots: int, augment: bool, seed: Seed) -> Circumstances:
    """Drawn from streams that are named by the picture's number in its data set."""
    streams = [seed.at("picture", place) for place in places]
    shape = pictures.images.shape[1:]
    crops = [CropAndFlip.draw(1, one.at("crop").rng()) for one in streams]
    framed = CropAndFlip(*(torch.cat(parts) for parts in zip(*crops, strict=True)))
    return Circumstances(
        images=framed.apply(pictures.images) if augment else pictures.images,
        labels=pictures.labels,
        luck=torch.stack([torch.rand(1 + slots, generator=one.at("luck").rng()) for one in streams]),
        starts=torch.stack([torch.rand(shape, generator=one.at("start").rng()) for one in streams]),
    )


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """All that a worker needs to know."""

    library: Spec
    untrained: nn.Module
    semi_trained: nn.Module
    score: PrivacyScore
    against: Against
    scored: Circumstances
    rounds: tuple[Circumstances, ...]
    compute: Compute

    def __call__(self, tasks: Sequence[Task]) -> list[dict[str, float]]:
        """The numbers of each task, by picture or by round."""
        with self.compute.active():
            if self.on_gpu and len({(task.kind, task.first, task.end) for task in tasks}) == 1:
                return self.alike(tasks)
            # one by one on a CPU, where more at once would gain nothing and change the last digit
            return [found for task in tasks for found in self.alike([task])]

    def alike(self, tasks: Sequence[Task]) -> list[dict[str, float]]:
        """Tasks of one kind on the same pictures, all at once."""
        policies, one = [self.policy(task) for task in tasks], tasks[0]
        if one.kind == "privacy":
            return self.privacies(policies, one.first, one.end)
        return self.accuracies(policies) if one.kind == "accuracy" else [self.fsim(policy) for policy in policies]

    def policy(self, task: Task) -> Policy:
        return Policy.parse(task.policy, self.library)

    @property
    def on_gpu(self) -> bool:
        return self.compute.device.startswith("cuda")

    @cached_property
    def similarity(self) -> Similarity:
        """Made once in a process, as it takes a moment to find its back end."""
        return Similarity(self.semi_trained, LocalTraining(), self.compute)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another machine: the rest is made there."""
        return {name: value for name, value in self.__dict__.items() if name != "similarity"}

    def warm(self, kind: Kind) -> None:
        """Have ready what every task needs, before processes are forked off."""
        if kind == "privacy":
            self.similarity.decide(*(x[:1] for x in (self.scored.images, self.scored.labels)))

    def backend(self, kind: Kind) -> str:
        return (self.similarity.backend or "") if kind == "privacy" else "autograd"

    @torch.no_grad()
    def privacies(self, policies: Sequence[Policy], first: int, end: int) -> list[dict[str, float]]:
        """The area of each picture: against who knows the policy the larger of both, since knowledge can be ignored."""
        areas = self._areas(policies, first, end, "unaware")
        if self.against == "adaptive":
            areas = areas.maximum(self._areas(policies, first, end, "adaptive"))
        return [{str(first + place): value for place, value in enumerate(row)} for row in areas.double().tolist()]

    def _areas(self, policies: Sequence[Policy], first: int, end: int, against: Against) -> Tensor:
        """[policy, image]"""
        here, at = self._place(self.scored.take(slice(first, end))), self.score.coefficients
        ways = [approach(p, here.images, here.starts, here.draw(p), at, against) for p in policies]
        points, targets = (torch.cat(each) for each in zip(*ways, strict=True))
        found = self.similarity(points, targets, here.labels.repeat(len(policies), 1))
        return self.score.area(self.score.curve(found)).unflatten(0, (len(policies), -1))

    def accuracies(self, policies: Sequence[Policy]) -> list[dict[str, float]]:
        """The score of each round; the pictures of all rounds are transformed and looked at together."""
        model = self.untrained.to(self.compute.device, self.compute.dtype)
        everyone = self._place(concatenate(self.rounds))
        fed = torch.stack([everyone.fed(policy) for policy in policies])
        rows = jacobians(model, fed.flatten(0, 1)).unflatten(0, fed.shape[:2])
        each = rows.split([len(one.images) for one in self.rounds], 1)
        found = [spread_scores(some).tolist() for some in each]
        return [{str(number): row[place] for number, row in enumerate(found)} for place in range(len(policies))]

    def fsim(self, policy: Policy) -> dict[str, float]:
        """How like the picture is what is fed, for each scored picture."""
        here = self._place(self.scored)
        found = feature_similarity(here.fed(policy), here.images)
        return {str(place): value for place, value in enumerate(found.double().tolist())}

    def _place(self, here: Circumstances) -> Circumstances:
        """Luck stays on the CPU."""
        moved = {name: getattr(here, name).to(self.compute.device, self.compute.dtype)
                 for name in ("images", "labels", "starts")}  # fmt: skip
        return Circumstances(luck=here.luck, **moved)
