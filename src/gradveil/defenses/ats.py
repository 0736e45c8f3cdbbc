"""Automatic Transformation Search (Gao et al., 2021): pictures go through a policy of transformations before training.

The policy is public and what it drew is not. So an adaptive attacker has no surrogate to run at the update; it has the
views instead, one for each draw that there could have been, and reports the picture before it. Every attack that is run
without them reports at best the picture as fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.knowledge import Knowledge, View
from gradveil.core.paper import Paper
from gradveil.core.types import Batch, Update
from gradveil.transforms.library import library_of
from gradveil.transforms.pipeline import CropAndFlip, crop_and_flip, run_policy
from gradveil.transforms.policy import Policy
from gradveil.transforms.policy_file import read_policy

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)
DEFAULT = "ats-code"
MOST_DRAWS = 4096  # an adaptive attacker tries them all


@dataclass(frozen=True, kw_only=True)
class Ats(Defense):
    """Transforms every picture by a policy of `library`, such as 3-1-7+43-18-18 or a policy.json.

    The default is the policy that the authors published for CIFAR-100 and ResNet20-4. `augment` crops and flips at
    random before it, as their training does. What is given as a file is held as what the file says, so neither a run
    nor its config needs the file afterwards.
    """

    reads: ClassVar[tuple[str, ...]] = ("policy", "library")
    first_option: ClassVar[str] = "policy"
    one_by_one: ClassVar[bool] = True

    policy: str = "3-1-7+43-18-18"
    library: str | tuple[str, ...] = DEFAULT
    augment: bool = False

    def __post_init__(self) -> None:
        policy = self._read()
        if policy.count_draws() > MOST_DRAWS:
            raise ConfigError(
                f"ats: policy {policy} can draw {policy.count_draws():,} signs, more than an attacker can try, "
                f"take fewer entries, at most {MOST_DRAWS:,} draws"
            )
        object.__setattr__(self, "policy", str(policy))
        object.__setattr__(self, "library", policy.library.spec)

    def _read(self) -> Policy:
        if not self.policy.endswith(".json") and "/" not in self.policy:
            return Policy.parse(self.policy, self.library)
        policy = read_policy(Path(self.policy))
        if self.library != DEFAULT and library_of(self.library).entries != policy.library.entries:
            raise ConfigError(f"ats: {self.policy} brings its own library, leave library out")
        return policy

    @cached_property
    def drawn_from(self) -> Policy:
        return Policy.parse(self.policy, self.library)

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        images = batch.images
        if self.augment:
            images = CropAndFlip.draw(len(images), rng).apply(images)
        return Batch(self.drawn_from(images, rng), batch.labels)

    def batches(self, batch: Batch, sizes: Sequence[int], rngs: Sequence[Generator]) -> Batch:
        """All at once: each client draws what it would draw alone, and pictures do not depend on each other."""
        images = crop_and_flip(batch.images, sizes, rngs) if self.augment else batch.images
        return Batch(run_policy(self.drawn_from, images, sizes, rngs), batch.labels)

    def without_views(self) -> Defense:
        """None, unless it crops and flips at random as well, which no view does."""
        return self if self.augment else Defense()

    def surrogate(self, seen: Update) -> Defense:
        """None: the update is that of the pictures as fed. What was done to them is in the views."""
        return Defense()

    def knowledge(self) -> Knowledge:
        """A view for each alternative and choice of signs. A random crop or flip is not undone: nothing tells of it."""
        policy = self.drawn_from
        draws = ((partial(policy.apply_one, choice=k, signs=s), policy.name_of(k, s)) for k, s in policy.draws())
        return Knowledge(views=tuple(View(apply, name) for apply, name in draws))
