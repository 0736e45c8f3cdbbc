"""Several defenses, one after the other (the hybrids that ROG, Yue et al., 2023, and LODA ask for)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Generator, Tensor, nn

from gradveil.core.check import complete
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.knowledge import Knowledge, Mixture, chain_views
from gradveil.core.law import Law, Normal, Round, Same
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch, GradientFn, Update

PAPER = None  # it joins the methods of others


@dataclass(frozen=True)
class Stack(Defense):
    """Every stage of every defense in order; around the gradient the first one is innermost. `Stack(())` is none.

    The surrogate is the stack of the surrogates. Each is made from what was sent at the end, so a later defense can
    hide an earlier one: noise after pruning leaves no zeros to tell what was pruned.
    """

    defenses: tuple[Defense, ...]

    def __post_init__(self) -> None:
        """Who changes the model works from the inside of the gradient: what goes around it has to come later."""
        around: Defense | None = None
        for defense in self.defenses:
            if around is not None and defense.acts_at("model"):
                before, after = (type(one).__name__.lower() for one in (defense, around))
                raise ConfigError(f"stack: {before} changes the model and comes too late, put it before {after}")
            if defense.acts_at("gradient") and not defense.acts_at("model"):
                around = defense

    def check(self, model: nn.Module) -> None:
        if not self.defenses:
            raise ConfigError(
                "stack: of: holds no defense, write of = [{name = ..., option = ...}, ...] in a config file"
            )
        for defense in self.defenses:
            defense.check(model)
            model = defense.model(model)

    def bind(self, scenario: Scenario) -> Stack:
        return Stack(tuple(defense.bind(scenario) for defense in self.defenses))

    def model(self, model: nn.Module) -> nn.Module:
        for defense in self.defenses:
            model = defense.model(model)
        return model

    def data(self, data: Batch, rng: Generator) -> Batch:
        for defense in self.defenses:
            data = defense.data(data, rng)
        return data

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        for defense in self.defenses:
            batch = defense.batch(batch, rng)
        return batch

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        for defense in self.defenses:
            compute = defense.gradient(compute, model, rng)
        return compute

    def update(self, update: Update, rng: Generator) -> Update:
        for defense in self.defenses:
            update = defense.update(update, rng)
        return update

    def acts_at(self, stage: str) -> bool:
        return any(defense.acts_at(stage) for defense in self.defenses)

    def record_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**options, "of": tuple(map(_record_row, options["of"]))}

    @property
    def parts(self) -> tuple[Defense, ...]:
        return tuple(part for defense in self.defenses for part in defense.parts)

    @property
    def copies(self) -> int:
        return math.prod(defense.copies for defense in self.defenses)

    @property
    def slow_to_feed(self) -> bool:
        return any(defense.slow_to_feed for defense in self.defenses)

    def expect(self, pictures: Tensor) -> None:
        """Of the first that changes pictures: the others are fed what it makes of them."""
        first = next((one for one in self.defenses if one.acts_at("data") or one.acts_at("batch")), None)
        if first is not None:
            first.expect(pictures)

    @property
    def has_adaptive_attacker(self) -> bool:
        return all(defense.has_adaptive_attacker for defense in self.defenses)

    def surrogate(self, seen: Update) -> Stack:
        return Stack(tuple(defense.surrogate(seen) for defense in self.defenses))

    def quiet(self) -> Stack:
        """Without the noise, and without what changes updates after it."""
        order, noisy = order_of(self.defenses), noisy_places(self.defenses, Round())
        after = order[order.index(noisy[-1]) + 1 :] if noisy else []
        return Stack(tuple(one.quiet() for place, one in enumerate(self.defenses) if place not in after))

    def without_views(self) -> Stack:
        return Stack(tuple(one.without_views() for one in self.defenses))

    @property
    def shows_draws(self) -> bool:
        return all(one.shows_draws for one in self.defenses)

    def law(self, round: Round) -> Law | None:
        """Of the noise of all, as what comes after it leaves it."""
        order, noisy = order_of(self.defenses), noisy_places(self.defenses, round)
        if not noisy:
            return Same()
        first, last = order.index(noisy[0]), order.index(noisy[-1])
        between = [self.defenses[place] for place in order[first:last] if place not in noisy]
        law = None if between else add_laws([self.defenses[place].law(round) for place in noisy])
        for place in order[last + 1 :]:
            after = self.defenses[place]
            law = None if law is None or after.acts_at("gradient") else after.censor(law)
        return law

    def mixture(self, data: Batch, rng: Generator) -> Mixture | None:
        """Of the first that mixes, after what those before it drew."""
        for defense in self.defenses:
            if defense.knowledge().mixes:
                return defense.mixture(data, rng)
            data = defense.data(data, rng)
        return None

    def knowledge(self) -> Knowledge:
        """Of all of them; a view is a choice of one for each defense that has any, in the order of the defenses."""
        each = [defense.knowledge() for defense in self.defenses]
        views = [known.views for known in each if known.views]
        return Knowledge(
            views=tuple(map(chain_views, product(*views))) if views else (),
            copies=self.copies,
            transforms=tuple(dict.fromkeys(name for known in each for name in known.transforms)),
            mixes=any(known.mixes for known in each),
            decoders=tuple(dict.fromkeys(name for known in each for name in known.decoders)),
        )


STAGES = ("model", "data", "batch", "gradient", "update")


def order_of(defenses: Sequence[Defense]) -> list[int]:
    """Places in the order in which they act last: all that goes around the gradient comes before the update."""
    last = [max((STAGES.index(stage) for stage in STAGES if one.acts_at(stage)), default=-1) for one in defenses]
    return sorted(range(len(defenses)), key=lambda place: (last[place], place))


def noisy_places(defenses: Sequence[Defense], round: Round) -> list[int]:
    """Of those that draw last, in the order in which they do."""
    return [place for place in order_of(defenses) if not isinstance(defenses[place].law(round), Same)]


def add_laws(laws: Sequence[Law | None]) -> Law | None:
    """The law of several noises together; None: none is known."""
    if len(laws) == 1:
        return laws[0]
    normal = [law for law in laws if isinstance(law, Normal) and law.relative is None]
    sizes = [law.deviation for law in normal if isinstance(law.deviation, float | int)]
    if len(sizes) < len(laws):
        return None
    return Normal(deviation=math.sqrt(sum(size**2 for size in sizes)), exact=all(law.exact for law in normal))


def stack(*, of: Sequence[Mapping[str, object] | Defense] = ()) -> Stack:
    """Several defenses, one after the other: `of = [{name = "prune", ratio = 0.9}, ...]`.

    >>> stack(of=[{"name": "prune", "ratio": 0.5}, {"name": "sign"}])
    Stack(defenses=(Prune(ratio=0.5), Sign(scaled=False, sharpness=1.0)))
    """
    return Stack(tuple(one if isinstance(one, Defense) else _build(one) for one in of))


def _build(row: Mapping[str, object]) -> Defense:
    from gradveil.defenses import DEFENSES  # the table holds `stack` itself

    if not isinstance(row, Mapping):
        raise ConfigError(f"stack: of: {row!r} is no table, write {{name = ..., option = ...}} in a config file")
    name, options = row.get("name"), _options_in(row)
    if not isinstance(name, str):
        raise ConfigError(f"stack: {dict(row)} names no defense, write {{name = ..., option = ...}}")
    if name not in DEFENSES:
        raise unknown("defense", name, DEFENSES, where="stack")
    try:
        return DEFENSES[name](**options)
    except TypeError as error:
        raise ConfigError(f"stack: {name} cannot be built from {options}, {error}") from error


def _options_in(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key != "name"}


def _record_row(row: Any) -> Any:
    """One row of `of` with all options as a run records them."""
    from gradveil.defenses import DEFENSES

    if not isinstance(row, Mapping):
        return row
    factory = DEFENSES[row["name"]]
    options = complete(factory, _options_in(row))
    return {"name": row["name"], **factory(**options).record_options(options)}
