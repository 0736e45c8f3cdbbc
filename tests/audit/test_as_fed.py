"""What was fed and recovered counts where it is still known as the private picture, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from gradveil.audit.audit import judge_of, run_audit
from gradveil.audit.fed import DRAWS, fed_gallery, feed, link
from gradveil.audit.plan import Cell, Grid
from gradveil.audit.results import read_run
from gradveil.audit.score import score
from gradveil.audit.verdict import judge
from gradveil.audit.verdict.leak import FED, PRIVATE, SYMMETRIC, count_guises
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.interval import at_least, at_most
from gradveil.core.observation import Truth
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.defenses import DEFENSES

RIVALS = 200
METRICS = ("psnr", "retrieval", "psnr-symmetric", "retrieval-symmetric")


@dataclass(frozen=True)
class Feeds(Defense):
    """Feeds other pictures; its author says that who knows that knows nothing."""

    change: Callable[[Tensor, Generator], Tensor]

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(self.change(batch.images, rng), batch.labels)

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


@dataclass(frozen=True)
class FeedsOnce(Feeds):
    """The same, once a round."""

    def data(self, data: Batch, rng: Generator) -> Batch:
        return Batch(self.change(data.images, rng), data.labels)

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return batch


PUBLIC = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(1))
KEEPS = {
    "mirrored": lambda x, rng: x.flip(-1),
    "upside-down": lambda x, rng: x.flip(-2),
    "negated": lambda x, rng: 1 - x,
    "shifted": lambda x, rng: x.roll((1, -2), (-2, -1)),
    "dimmed": lambda x, rng: 0.4 * x,
    "brightened": lambda x, rng: 0.5 + 0.5 * x,
    "turned": lambda x, rng: x.rot90(1, (-2, -1)),
    "mirrored-or-not": lambda x, rng: x.flip(-1) if torch.rand((), generator=rng) < 0.5 else x,
    "rows-mixed": lambda x, rng: x[..., torch.tensor([3, 0, 6, 1, 7, 4, 2, 5]), :],  # no symmetry: as fed alone
}
HIDES = {
    "noise": lambda x, rng: torch.rand(x.shape, generator=rng),
    "noise-of-old": lambda x, rng: torch.rand(x.shape, generator=torch.Generator().manual_seed(3)),
    "gray": lambda x, rng: torch.full_like(x, 0.5),
    "gray-by-chance": lambda x, rng: torch.rand((len(x), 1, 1, 1), generator=rng).expand_as(x),
    "public": lambda x, rng: PUBLIC[torch.randint(len(PUBLIC), (len(x),), generator=rng)],
    "the-same-public": lambda x, rng: PUBLIC[:1].expand_as(x),
}


def run(folder: Path, defenses: Mapping[str, Defense], attack: str = "linear", **scenario: object):
    plain = ScenarioConfig(
        model="mlp", data="digits", data_options={"size": 8, "split": "train"}, **{"images": 8, **scenario}
    )
    config = AuditConfig(
        scenario=plain,
        attack={"a": Choice(name=attack)},
        gallery=RIVALS,
        metrics=METRICS,
        convergence=False,
        lineup=0,
    )
    audit = replace(build(config), defenses={"none": Defense(), **defenses}, settings={})
    run_audit(audit, folder)
    found = read_run(folder)
    return found, judge(found)


@pytest.fixture(scope="module")
def keeps(tmp_path_factory: pytest.TempPathFactory):
    made = {name: (FeedsOnce if name == "turned" else Feeds)(change) for name, change in KEEPS.items()}
    return run(tmp_path_factory.mktemp("keeps"), made)


@pytest.fixture(scope="module")
def hides(tmp_path_factory: pytest.TempPathFactory):
    return run(tmp_path_factory.mktemp("hides"), {name: Feeds(change) for name, change in HIDES.items()}, images=12)


@pytest.mark.parametrize("name", KEEPS)
def test_a_picture_that_is_fed_changed_and_recovered_has_leaked(name: str, keeps) -> None:
    run, verdict = keeps
    (finding,) = [one for one in verdict.findings if one.tally.defense == name]
    assert finding.verdict == "leaks"
    assert finding.tally.leaked >= 7
    assert finding.tally.leaked <= (finding.tally.identified or 0)
    records = [r for r in run.records if r.defense == name and not r.control]
    seen = [set(verdict.baselines.leaked_as(r)) for r in records]
    assert sum(FED in one for one in seen) >= 0.8 * len(seen)
    if name not in ("rows-mixed", "mirrored-or-not"):
        assert sum(SYMMETRIC in one for one in seen) >= 0.8 * len(seen)
    if name not in ("brightened", "mirrored-or-not"):
        assert sum(PRIVATE in one for one in seen) <= 0.3 * len(seen)


@pytest.mark.parametrize("name", HIDES)
def test_a_defense_that_feeds_something_else_exposes_nobody(name: str, hides) -> None:
    run, verdict = hides
    (finding,) = [one for one in verdict.findings if one.tally.defense == name]
    assert finding.verdict != "leaks"
    assert not finding.tally.leaked
    records = [r for r in run.records if r.defense == name and not r.control]
    if "gray" not in name:  # its input is given away exactly all the same
        assert sum(r.scores["psnr_fed"] > 60 for r in records) >= 0.8 * len(records)
    assert not count_guises([records], verdict.baselines)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(6))
def test_noise_never_leaks_in_larger_batches_either(seed: int, tmp_path: Path) -> None:
    made = {name: Feeds(change) for name, change in HIDES.items()}
    for size in (1, 2):
        _, verdict = run(tmp_path / str(size), made, "linear", images=12, batch_size=size, model_seed=seed)
        assert {f.verdict for f in verdict.findings if not f.tally.undefended} <= {
            "inconclusive",
            "no leak found",
            "bounded",
        }


def cell_of(defense: Defense, images: int = 8, batch_size: int = 2) -> tuple[Cell, Tensor]:
    plain = ScenarioConfig(
        model="mlp", data="digits", data_options={"size": 8, "split": "train"}, images=images, batch_size=batch_size
    )
    audit = build(AuditConfig(scenario=plain, gallery=RIVALS, convergence=False, attack={"a": Choice(name="linear")}))
    assert audit.gallery is not None
    grid = Grid(defenses={"d": defense}, attacks=audit.attacks, seed=Seed(0), compute=Compute())
    return grid.cell(audit.scenario, "d", defense, "a"), audit.gallery


def fed_of(cell: Cell, number: int = 0) -> tuple[Tensor, Tensor]:
    private = cell.scenario.private
    groups = list(map(Batch, *private))
    fed = feed(groups, cell, [Seed(number).at(name) for name in cell.scenario.names])
    return private.images, fed.reshape(*private.images.shape[:2], *fed.shape[1:])


def test_the_gallery_goes_through_the_same_defense_in_the_batches_of_a_client() -> None:
    sizes = []

    def note(x: Tensor, rng: Generator) -> Tensor:
        sizes.append(len(x))
        return x.flip(-1)

    cell, gallery = cell_of(Feeds(note), batch_size=3)
    fed = fed_gallery(cell, gallery)
    assert set(sizes) == {3}
    assert len(sizes) == 2 * -(-RIVALS // 3)  # the second draw is the first again
    assert len(fed.draws) == 1
    assert fed.pictures.equal(gallery.flip(-1))
    assert fed_gallery(cell, gallery) is fed
    assert fed_gallery(cell, gallery.flip(-2)) is not fed


def test_what_is_drawn_is_drawn_several_times_and_for_everybody_anew() -> None:
    cell, gallery = cell_of(Feeds(lambda x, rng: x + torch.rand((), generator=rng)))
    draws = fed_gallery(cell, gallery).draws
    assert len(draws) == DRAWS
    moved = torch.stack([draw[:, 0] - gallery for draw in draws]).mean((2, 3, 4))
    different = len(moved.flatten().round(decimals=5).unique())
    assert 0.98 * DRAWS * RIVALS / 2 <= different <= DRAWS * RIVALS / 2  # by client, not by picture


def test_galleries_of_two_defenses_are_not_mistaken_for_each_other() -> None:
    """Of one name, in one scenario, and neither can be pickled."""
    for change in (lambda x, rng: 1 - x, lambda x, rng: x.flip(-1)):
        cell, gallery = cell_of(Feeds(change))
        assert fed_gallery(cell, gallery).pictures.equal(change(gallery, torch.Generator()))


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_changed_is_linked(name: str) -> None:
    cell, gallery = cell_of(Feeds(KEEPS[name]))
    private, fed = fed_of(cell)
    assert link(cell, private, fed, fed_gallery(cell, gallery)).mean() >= 0.9


@pytest.mark.parametrize("name", ["noise", "gray-by-chance", "public"])
def test_what_hides_is_linked_by_chance(name: str) -> None:
    """At most: a tie counts for the rival."""
    cell, gallery = cell_of(Feeds(HIDES[name]), images=40, batch_size=5)
    among = fed_gallery(cell, gallery[:20])
    hits = sum(int(link(cell, *fed_of(cell, number), among).sum()) for number in range(3))
    assert at_least(hits, 600, 0.999) <= among.chance
    if name == "noise":
        assert among.chance / 4 <= at_most(hits, 600, 0.999)


def test_copies_of_the_original_are_no_rivals() -> None:
    cell, gallery = cell_of(Feeds(KEEPS["mirrored"]))
    private, fed = fed_of(cell)
    more = torch.cat([private.flatten(0, 1), gallery])
    assert link(cell, private, fed, fed_gallery(cell, more)).mean() >= 0.9


def test_the_best_copy_counts() -> None:
    """OASIS feeds each picture with three turns of it: whoever shows one of them has seen the picture."""
    cell, gallery = cell_of(DEFENSES["oasis-mr"](), batch_size=1)
    fed = fed_of(cell)[1]
    assert fed.shape[2] == 4
    judging = judge_of(replace(build_audit(), gallery=gallery))
    truth = Truth(private=cell.scenario.private, fed=Batch(fed.flatten(1, 2), cell.scenario.private.labels))
    for turned in range(4):
        got = shown(fed[:, :, turned])
        found = score(cell, got, got.images, truth, judging)
        assert found.scores["psnr_fed"].min() == 200
        assert found.scores["retrieval_fed"].min() == 1
        assert found.linked is not None
        assert found.linked.min() == 1


@pytest.mark.parametrize("name", ["mirrored", "mirrored-or-not", "noise"])
def test_pictures_of_others_are_found_as_fed_by_chance(name: str) -> None:
    """Reconstructions that have nothing to do with the pictures: gallery and original are treated alike."""
    cell, gallery = cell_of(Feeds({**KEEPS, **HIDES}[name]), images=200, batch_size=1)
    rivals, unrelated = gallery[:10], gallery.roll(100, 0)[:, None]
    fed = fed_of(cell)[1]
    truth = Truth(private=cell.scenario.private, fed=Batch(fed.flatten(1, 2), cell.scenario.private.labels))
    judging = judge_of(replace(build_audit(rivals), gallery=rivals))
    got = shown(feed(list(map(Batch, unrelated, truth.fed.labels)), cell, [Seed(k) for k in range(200)]))
    hits = int(score(cell, got, got.images, truth, judging).scores["retrieval_fed"].sum())
    assert at_least(hits, 200, 0.999) <= 1 / 11 <= at_most(hits, 200, 0.999)


def build_audit(gallery: Tensor | None = None):
    plain = ScenarioConfig(model="mlp", data="digits", data_options={"size": 8, "split": "train"}, images=8)
    config = AuditConfig(scenario=plain, gallery=RIVALS, convergence=False, attack={"a": Choice(name="linear")})
    audit = build(config)
    if gallery is None:
        return audit
    metrics = tuple(m if m.among is None else m.among(gallery) for m in audit.metrics)
    return replace(audit, metrics=metrics)


def shown(images: Tensor) -> Reconstruction:
    clients, examples = images.shape[:2]
    return Reconstruction(
        images=images,
        labels=torch.zeros(clients, examples, 10),
        found=torch.ones(clients, examples, dtype=torch.bool),
        loss=torch.zeros(clients),
        backend="closed form",
    )
