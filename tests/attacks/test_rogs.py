"""ROGS: the generator's picture that is most like another attack's result."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import torch
from generator_files import tiny_generator, write_generator
from scenes import CLASSES, one_picture, seen_in
from torch import Tensor

from gradveil.attacks.rogs import NO_LPIPS, Rogs, rogs, rogs_paper
from gradveil.cli import main
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.gan_inversion import GanInversion, Likeness, Targets, fit_size
from gradveil.engine.perceptual import Perceptual
from gradveil.generators.generator import load_generator
from gradveil.generators.provenance import check_not_trained_on, record_of
from gradveil.metrics.lpips import perceptual_distance
from gradveil.metrics.psnr import peak_signal_to_noise

DOUBLE = Compute(precision="float64")
SEARCH = GanInversion(steps=30, restarts=2, drawn=4, rate=0.1)


def generator():
    return load_generator(tiny_generator()).double()


def own_pictures(count: int = 3) -> tuple[Tensor, Tensor]:
    """What the generator itself draws, and of which class."""
    model, labels = generator(), torch.eye(CLASSES).double()[:count]
    noise = torch.randn(count, model.noise, generator=Seed(7).rng()).double()
    with torch.no_grad():
        return model(torch.cat([noise, model.embed(labels)], 1)), labels


def inverted(search: GanInversion, images: Tensor, labels: Tensor | None, names: str = "abc") -> Tensor:
    targets = Targets(images, labels, tuple(names[: len(images)]))
    return search.invert(targets, generator(), None, Seed(0), DOUBLE)


@dataclass(frozen=True)
class Given(Attack):
    """Answers with given pictures."""

    images: Tensor

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        count = len(seen.names)
        return Reconstruction(
            images=self.images[:count, None],
            labels=seen.labels if seen.labels is not None else torch.zeros(count, 1, seen.classes).double(),
            found=torch.ones(count, 1, dtype=torch.bool),
            loss=torch.zeros(count).double(),
        )


# the search


def test_a_generators_own_picture_is_found_again() -> None:
    images, labels = own_pictures()
    start = peak_signal_to_noise(inverted(replace(SEARCH, steps=1), images, labels), images)
    end = peak_signal_to_noise(inverted(replace(SEARCH, steps=100), images, labels), images)
    assert (end > start + 10).all()


def test_the_class_is_found_where_it_may_be_searched() -> None:
    """Told a wrong class, a search that may leave it ends nearer."""
    images, labels = own_pictures()
    wrong = labels.roll(1, 0)
    stuck = peak_signal_to_noise(inverted(SEARCH, images, wrong), images)
    free = peak_signal_to_noise(inverted(replace(SEARCH, search_class=True), images, wrong), images)
    assert free.mean() > stuck.mean()


def test_the_same_seed_gives_the_same_pictures_and_another_one_others() -> None:
    images, labels = own_pictures()
    again = inverted(SEARCH, images, labels)
    assert torch.equal(inverted(SEARCH, images, labels), again)
    other = SEARCH.invert(Targets(images, labels, ("a", "b", "c")), generator(), None, Seed(1), DOUBLE)
    assert not torch.allclose(other, again)


def test_a_picture_alone_is_the_picture_among_others() -> None:
    images, labels = own_pictures()
    together = inverted(SEARCH, images, labels)
    alone = inverted(SEARCH, images[1:2], labels[1:2], names="b")
    assert (alone[0] - together[1]).abs().max() < 1e-9


def test_more_starts_never_end_worse_by_the_searchs_own_measure() -> None:
    images, labels = own_pictures()
    few, many = (inverted(replace(SEARCH, restarts=count), images, labels) for count in (1, 4))
    assert ((many - images).square().mean((1, 2, 3)) <= (few - images).square().mean((1, 2, 3)) + 1e-12).all()


def test_a_start_is_the_best_of_what_was_drawn() -> None:
    images, labels = own_pictures()
    like = Likeness(replace(SEARCH, drawn=8), Targets(images, labels, ("a", "b", "c")), generator(), None)
    trials = [(place, 0) for place in range(3)]
    losses = torch.stack([like.of(like.draw(like.random(Seed(0), trials, draw))) for draw in range(8)])
    assert torch.allclose(like.of(like.draw(like.best_start(Seed(0), trials))), losses.amin(0))


def test_noise_stays_within_reach() -> None:
    images, labels = own_pictures()
    like = Likeness(replace(SEARCH, reach=0.5), Targets(images, labels, ("a", "b", "c")), generator(), None)
    start = like.best_start(Seed(0), [(0, 0), (1, 0), (2, 0)])
    assert start["noise"].abs().max() <= 0.5


def test_the_length_of_the_paper_is_the_root_of_the_sum_of_squares() -> None:
    images, labels = own_pictures()
    targets, drawn = Targets(images, labels, ("a", "b", "c")), torch.rand_like(images)
    mean = Likeness(SEARCH, targets, generator(), None).of(drawn)
    norm = Likeness(replace(SEARCH, pixels="norm"), targets, generator(), None).of(drawn)
    assert torch.allclose(norm, (mean * images[0].numel()).sqrt())
    assert torch.allclose(norm, torch.linalg.vector_norm((drawn - images).flatten(1), dim=1))


def test_pictures_are_brought_to_the_size_and_colors_of_the_targets() -> None:
    flat = torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1, 1).expand(2, 3, 8, 8)
    assert torch.allclose(fit_size(flat, torch.zeros(2, 1, 5, 5)), torch.full((2, 1, 5, 5), 0.4))
    assert torch.allclose(fit_size(flat, torch.zeros(2, 3, 16, 16))[:, 2], torch.full((2, 16, 16), 0.6))


def test_lpips_as_a_loss_is_lpips_as_a_metric(shared_data: Path) -> None:
    if not (shared_data / "lpips_alex.npz").is_file():
        pytest.skip("shared/data is not here")
    a, b = torch.rand(2, 2, 3, 64, 64)
    judge = Perceptual.of(str(shared_data / "lpips_alex.npz"), a)
    got = judge.distance(judge.features(a), judge.features(b))
    assert torch.allclose(got, perceptual_distance(a, b, judge.arrays), atol=1e-5)
    leaf = a.clone().requires_grad_()
    slope = torch.autograd.grad(judge.distance(judge.features(leaf), judge.features(b)).sum(), leaf)[0]
    assert slope.isfinite().all()
    assert slope.abs().max() > 0


# the attack


def test_the_result_is_a_picture_of_the_generator() -> None:
    images, labels = own_pictures()
    seen = seen_in(one_picture(3))
    seen = replace(seen, labels=labels[:, None])
    attack = Rogs(inner=Given(images), generator=tiny_generator(), lpips="", search=replace(SEARCH, steps=100))
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    assert got.images.shape == (3, 1, 3, 8, 8)
    assert (peak_signal_to_noise(got.images[:, 0], images) > 25).all()
    assert NO_LPIPS in got.notes


def test_what_is_no_number_becomes_a_picture_all_the_same() -> None:
    images, labels = own_pictures()
    broken = images.clone()
    broken[1] = torch.nan
    seen = replace(seen_in(one_picture(3)), labels=labels[:, None])
    attack = Rogs(inner=Given(broken), generator=tiny_generator(), lpips="", search=replace(SEARCH, steps=5))
    whole = replace(attack, inner=Given(images)).reconstruct(seen, Seed(0), DOUBLE)
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    assert got.images.isfinite().all()
    assert torch.equal(got.images[[0, 2]], whole.images[[0, 2]])


def test_other_classes_than_the_models_are_searched_and_said(tmp_path: Path) -> None:
    other = write_generator(tmp_path / "g.safetensors", classes=CLASSES + 2)
    attack = rogs(generator=other, inner="rog:steps=2,factor=2", steps=2, restarts=1, drawn=1)
    got = attack.reconstruct(seen_in(one_picture(2)), Seed(0), DOUBLE)
    assert any(f"{CLASSES + 2} classes and the model {CLASSES}" in note for note in got.notes)


def test_the_truth_is_out_of_reach() -> None:
    """The search is given what the inner attack found; the observation that this came from has no pictures."""
    assert {field.name for field in fields(Targets)} == {"images", "labels", "names"}
    private = one_picture(2).private.images
    seen = seen_in(one_picture(2))
    held = [x for name in vars(seen) for x in _tensors(getattr(seen, name))]
    assert not any(x.shape == private.shape and torch.equal(x, private) for x in held)


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [x for inner in value.values() for x in _tensors(inner)]
    return [x for inner in value for x in _tensors(inner)] if isinstance(value, list | tuple) else []


def test_without_a_generator_it_says_where_to_get_one() -> None:
    attack = rogs()
    for call in (attack.networks, lambda: attack.reconstruct(seen_in(one_picture(1)), Seed(0))):
        with pytest.raises(ConfigError, match="gradveil train-gan"):
            call()


def test_an_audit_without_a_generator_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = ["--data", "photos", "--data-option", "size=16", "--images", "1", "--device", "cpu"]
    with pytest.raises(SystemExit) as end:
        main(["audit", *scene, "--attack", "rogs", "--out", str(tmp_path / "run")])
    assert end.value.code == 2
    assert "give generator=FILE" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_it_names_its_network_so_that_what_it_has_seen_can_be_checked(tmp_path: Path) -> None:
    victims = torch.rand(2, 3, 8, 8)
    file = write_generator(tmp_path / "g.safetensors", seen=record_of(victims))
    (named,) = rogs(generator=file).networks()
    with pytest.raises(ConfigError, match="was trained on 2 of the 2"):
        check_not_trained_on(named, victims)


def test_the_inner_attack_takes_its_own_options() -> None:
    attack = rogs(generator=tiny_generator(), inner="rog-code:steps=7,factor=2")
    assert attack.inner.steps == 7  # type: ignore[attr-defined]
    assert attack.scaled(2.0).inner.steps == 14  # type: ignore[attr-defined]
    assert attack.scaled(2.0).steps == 2 * attack.steps
    for wrong in ("nothing", "rogs", "rog:speed=3", "rtf"):
        with pytest.raises(ConfigError):
            rogs(inner=wrong)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"restarts": 0}, {"drawn": 0}, {"rate": 0.0}, {"reach": -1.0}])
def test_numbers_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        rogs(**wrong)


def test_the_paper_has_one_start_and_the_length() -> None:
    search = rogs_paper(generator=tiny_generator()).search
    assert (search.steps, search.restarts, search.drawn, search.pixels, search.perceptual) == (1000, 1, 1, "norm", 1.0)
