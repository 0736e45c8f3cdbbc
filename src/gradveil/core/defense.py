"""A defense: the identity at five stages. Override the stage you protect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from gradveil.core.knowledge import Knowledge, Mixture
from gradveil.core.law import Law, Round, Same
from gradveil.core.paper import Paper
from gradveil.core.scenario import Scenario
from gradveil.core.strength import Strength
from gradveil.core.types import Batch, GradientFn, Update

PAPER: Paper | None = None  # no defense is no method


@dataclass(frozen=True)
class Defense:
    """No defense: the update as it is.

    Stages run in the order of the methods below; see `gradveil.core.client`. What others need to know of a defense is
    said by its class:

    - `stronger`: the options that make it stronger as they grow; an audit in which more of it leaks more is flagged.
    - `strength`: the option by which it is calibrated, and the values to try; None: it has one strength only.
    - `reads`: the options that may name a file; the defense then replaces them by the content of the file.
    - `first_option`: the option, a text, whose key may be left out (`ats:3-1-7`).
    - `shows_draws`: whether what it draws can be read off its update, so that whoever guesses has it.
    - `one_by_one`: whether it changes every picture alone, by draws of its own, and does nothing else. Then pictures
      can be changed once, before any training (`gradveil protect`).
    """

    stronger: ClassVar[tuple[str, ...]] = ()
    strength: ClassVar[Strength | None] = None
    reads: ClassVar[tuple[str, ...]] = ()
    first_option: ClassVar[str] = ""
    shows_draws: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False

    def check(self, model: nn.Module) -> None:
        """ConfigError if there is nothing in this model that the defense could act on: said before the run."""
        return None

    def check_pictures(self, pictures: Tensor) -> None:
        """ConfigError if it cannot act on these pictures [picture, channel, height, width]: raised before the run."""
        return None

    def bind(self, scenario: Scenario) -> Defense:
        """The defense for the clients of this scenario, with what it takes from what is public there.

        ConfigError if it cannot act on so few pictures: said before the run.
        """
        return self

    def model(self, model: nn.Module) -> nn.Module:
        """Once, when the federation agrees on the architecture."""
        return model

    def data(self, data: Batch, rng: Generator) -> Batch:
        """Once a round, on the client's own data."""
        return data

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        """Every local step."""
        return batch

    def batches(self, batch: Batch, sizes: Sequence[int], rngs: Sequence[Generator]) -> Batch:
        """`batch` for many clients: `sizes` pictures of each, one after the other, each with its own random stream.

        The result is that of `batch`, one by one. Override it where all of them together are faster.
        """
        each = zip(batch.images.split(list(sizes)), batch.labels.split(list(sizes)), rngs, strict=True)
        fed = [self.batch(Batch(images, labels), rng) for images, labels, rng in each]
        return Batch(torch.cat([one.images for one in fed]), torch.cat([one.labels for one in fed]))

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        """Around the gradient: per-example clipping lives here."""
        return compute

    def update(self, update: Update, rng: Generator) -> Update:
        """Last, on what is sent."""
        return update

    def acts_at(self, stage: str) -> bool:
        """Whether this defense does anything at a stage: engines skip what is the identity."""
        return getattr(type(self), stage) is not getattr(Defense, stage)

    def record_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options as a run records them: a file is replaced by its content, so the run needs the file no more."""
        return {**options, **{key: getattr(self, key) for key in self.reads if key in options}}

    @classmethod
    def find_in(cls, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any] | None:
        """Its options, if it changed the model whose weights have these shapes, by name; None: no trace of it."""
        return None

    @property
    def scale_group(self) -> int:
        """How many numbers of an update share one scale, for the size of the upload; 0: a whole tensor."""
        return 0

    def surrogate(self, seen: Update) -> Defense:
        """What an attacker who knows this defense runs in its place on dummy data: differentiable, drawing nothing.

        `seen` is one client's update as received. The default models no defense at all; a defense that leaves it at
        that names no adaptive attacker, and no audit can say more of it than "not evaluated". Parameters that the
        surrogate's `update` leaves out are left out of the match: for gradients that are random or spoiled.
        """
        return Defense()

    def quiet(self) -> Defense:
        """The same without its last draws, which `law` stands for. By default it draws nothing last."""
        return self

    def without_views(self) -> Defense:
        """The same for a picture that has been through one of its views already."""
        return self

    def law(self, round: Round) -> Law | None:
        """How likely an update is, given what `quiet` sends; None: it draws last and states no law."""
        return Same()

    def censor(self, law: Law) -> Law | None:
        """The law of what it sends of updates that have this law; None: none is known. For what comes after noise."""
        return None if self.acts_at("update") else law

    def noise_multiplier(self, layers: int) -> float | None:
        """Standard deviation of the noise over the most that one example can move; None: it noises no clipped example.

        `layers` is how many layers of the model are clipped, each by itself. ConfigError if the size of the noise is
        not fixed beforehand, so that no epsilon can be named.
        """
        return None

    @property
    def noises_examples(self) -> bool:
        """Whether it clips every example's gradient and adds noise to their sum: an epsilon can be named."""
        return type(self).noise_multiplier is not Defense.noise_multiplier

    @property
    def longest(self) -> float | None:
        """The most that the whole update measures after stage `update`, whatever the data; None: it has no bound."""
        return None

    @property
    def update_noise(self) -> float | None:
        """Standard deviation of the normal noise that stage `update` adds to every number, fixed beforehand.

        None: it adds none, or its size follows the data.
        """
        return None

    @property
    def is_none(self) -> bool:
        """Whether it is no defense: the undefended model."""
        return type(self) is Defense

    @property
    def parts(self) -> tuple[Defense, ...]:
        """Those that it is made of, the innermost first."""
        return (self,)

    def mixture(self, data: Batch, rng: Generator) -> Mixture | None:
        """What `data` draws from the same stream, for an attacker who is granted it; None: it mixes no pictures."""
        return None

    @property
    def copies(self) -> int:
        """Pictures fed for each one of the client's, which come next to each other: more than 1 enlarges the batch."""
        return 1

    @property
    def slow_to_feed(self) -> bool:
        """Whether a thousand pictures take it minutes: then no gallery is put through it."""
        return False

    def expect(self, pictures: Tensor) -> None:
        """These [picture, channel, height, width] are about to be fed one by one. What takes long and can be kept is
        done for all of them at once."""

    def knowledge(self) -> Knowledge:
        """What its design tells an attacker who knows it, beside the surrogate: nothing, for most.

        Views are for a defense that changes pictures by a draw: one for each possible draw. The attacker tries them all
        in its own copy of the client.
        """
        return Knowledge(copies=self.copies)

    @property
    def has_adaptive_attacker(self) -> bool:
        return type(self).surrogate is not Defense.surrogate
