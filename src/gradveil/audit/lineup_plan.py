"""Which line-ups an audit holds, and how large: one for every audited scenario and defense, in shards of clients.

They come before the attacks, since they are cheap and always say something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gradveil.audit.plan import UNDEFENDED, attack_seed, clients_of
from gradveil.audit.schedule import place
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Round
from gradveil.core.own_loss import OwnLoss
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.experiment.record import Attacker, Control
from gradveil.lineup.candidates import without_copies_of

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

LINE_UP = "line-up"  # in the place of an attack's label
Size = int | Literal["auto"]
SHARED, WHOLE = 1001, 101  # candidates: where one gradient of each does, and where each takes a whole client
OWN_WORK = ("model", "data", "batch")  # stages of a defense that each candidate has to go through several times
TRIALS = 80  # of a scenario and defense: none of 80 named supports "at most 5 %"
UPDATES_BYTES = 2**30  # of the updates that a shard looks at, at most
PAIRED = 10**11  # numbers that are compared one by one, at most


@dataclass(frozen=True, kw_only=True)
class LineUpCell:
    """The line-up of some clients of a scenario under one defense."""

    scenario: Scenario
    label: str  # of the defense
    defense: Defense
    seed: Seed  # of the audit
    rows: tuple[int, ...] = field(repr=False)  # of the gallery: the candidates beside the true picture
    copies: int  # pictures of the gallery that were left out, since they are there already
    labeled: bool = True  # whether the candidates' own labels are known
    standins: int = 0
    picture: int | None = None  # of the first client, which alone is looked for; None: every picture of everybody
    attack: str = LINE_UP
    attacker: Attacker = "adaptive"
    control: Control = "lineup"

    @property
    def name(self) -> str:
        return " / ".join([self.scenario.name, self.label, LINE_UP])

    @property
    def candidates(self) -> int:
        return len(self.rows) + 1

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What the keys of its records begin with."""
        return self.scenario.name, self.label, self.attack, self.control

    def key(self, client: str, example: int) -> str:
        return "/".join([*self.place, client, str(example)])

    @property
    def own_keys(self) -> list[str]:
        return [self.key(*place) for place in self.places]

    @property
    def places(self) -> list[tuple[str, int]]:
        """Client and number of each picture that is looked for."""
        if self.picture is not None:
            return [(self.scenario.names[0], self.picture)]
        examples = range(self.scenario.private.images.shape[1])
        return [(name, example) for name in self.scenario.names for example in examples]

    @property
    def observed(self) -> Seed:
        """As of the attacks' cells: the updates are the same ones."""
        return self.seed.at("observe", self.scenario.name, self.label)

    @property
    def attacked(self) -> Seed:
        """What records name: it tells the lines of this run from those of another."""
        return attack_seed(self.seed, self.scenario.name, self.label, self.attack)

    def shards(self, size: int) -> Iterator[LineUpCell]:
        for first in range(0, len(self.scenario.names), size):
            yield replace(self, scenario=clients_of(self.scenario, slice(first, first + size)))


def plan_lineups(audit: Audit, compute: Compute, size: int) -> Iterator[LineUpCell]:
    """Shard by shard; without candidates or without the pictures there is none to hold."""
    check_size(audit)
    if audit.gallery is None or audit.lineup == 0:
        return
    for scenario in (s for s in (audit.scenario, *audit.also) if s.has_truth):
        rows = without_copies_of(scenario.private.images.flatten(0, 1), audit.gallery)
        copies = len(audit.gallery) - len(rows)
        for label, defense, shown in _defenses(audit, place(scenario, compute), size):
            asked = auto_size(shown, defense) if audit.lineup == "auto" else audit.lineup
            cell = LineUpCell(scenario=shown, label=label, defense=defense, seed=Seed(audit.seed), copies=copies,
                              rows=tuple(rows[: asked - 1]), labeled=audit.gallery_labels is not None)  # fmt: skip
            if cell.rows:
                yield from replace(cell, standins=count_standins(cell, size)).shards(size)


def _defenses(audit: Audit, scenario: Scenario, size: int) -> Iterator[tuple[str, Defense, Scenario]]:
    """Every audited one and, as a control where it is none of them, no defense on the first clients."""
    if audit.controls and not any(defense.is_none for defense in audit.defenses.values()):
        yield UNDEFENDED, Defense(), replace(clients_of(scenario, slice(size)), received=None)
    yield from ((label, defense, scenario) for label, defense in audit.defenses.items())


def check_size(audit: Audit) -> None:
    """ConfigError if so many candidates cannot be had."""
    asked = audit.lineup
    if asked in ("auto", 0):
        return
    if asked < 2:
        raise ConfigError(f"must be 2 candidates or more, or 0 for no line-up, got {asked}", key="lineup")
    if not audit.scenario.has_truth:
        raise ConfigError("needs the clients' pictures, set `data` or leave it out", key="lineup")
    most = 1 + (0 if audit.gallery is None else len(audit.gallery))
    if asked > most:
        raise ConfigError(
            f"must be at most {most} (the original and the {most - 1} pictures of the gallery), got {asked}; "
            "ask for fewer, or give more data and a larger `gallery`",
            key="lineup",
        )


def auto_size(scenario: Scenario, defense: Defense) -> int:
    """As many candidates as are quick."""
    training = scenario.training
    own = isinstance(training.loss, OwnLoss) and scenario.private.images.shape[1] > 1
    shared = (
        not own and training.steps == 1 and training.batchnorm == "eval" and not any(map(defense.acts_at, OWN_WORK))
    )
    return SHARED if shared else WHOLE


def count_standins(cell: LineUpCell, size: int) -> int:
    """Pictures of the gallery that are put into each place, so that there are trials enough for a bound.

    Fewer where that takes too much memory or, for laws that hold all against all, too much time.
    """
    scenario = cell.scenario
    if scenario.received is not None or cell.defense.slow_to_feed:
        return 0
    clients, examples = scenario.private.images.shape[:2]
    numbers = sum(parameter.numel() for parameter in scenario.model.parameters())
    of_shard = min(size, clients) * examples
    most = [-(-TRIALS // (clients * examples)), UPDATES_BYTES // (4 * numbers * of_shard * scenario.threat.rounds)]
    if _is_pairwise(cell):
        most.append(PAIRED // (of_shard * cell.candidates * numbers * scenario.threat.rounds))
    return max(0, min(most) - 1)


def _is_pairwise(cell: LineUpCell) -> bool:
    """Whether every trial is held against every candidate number by number."""
    scenario, bound = cell.scenario, cell.defense.bind(cell.scenario)
    examples = scenario.private.images.shape[1] // scenario.aggregate
    found = bound.law(Round(training=scenario.training, examples=examples, members=scenario.aggregate))
    return found is not None and found.pairwise


def describe_lineups(cells: Iterable[LineUpCell]) -> dict[str, dict[str, Any]]:
    """For provenance, by scenario and defense: how many candidates, and how many stand-ins for each picture."""
    found: dict[str, dict[str, Any]] = {}
    for cell in cells:
        of_scenario = found.setdefault(cell.scenario.name, {})
        of_scenario[cell.label] = {"candidates": cell.candidates, "standins": cell.standins, "copies": cell.copies}
    return found
