"""A trained inverter: better than what it could guess, and applied to what it was trained for alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inverter_files import tiny_inverters, write_inverter
from safetensors.torch import load_file, save_file
from scenes import scene, smooth
from torch import nn

from gradveil.attacks.learned_inverter import learned_inverter
from gradveil.core.client import loss_of
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.types import Batch
from gradveil.data.digits import digits
from gradveil.defenses import parse_defense
from gradveil.generators.labeled_pictures import Labeled
from gradveil.generators.learn_inverter import Lesson, train_inverter
from gradveil.generators.provenance import as_bytes
from gradveil.generators.training import Course
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

LESSON, COURSE = Lesson(sketch=64, hidden=128, copies=2), Course(epochs=12, batch_size=32, rate=1e-3)
KNOWN = ThreatModel(knows_defense=True)


def trained(name: str, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Of the digits, after a few steps."""
    model = MODELS[name](classes=10, shape=tuple(images.shape[1:]), seed=0, mean=(0.3,), std=(0.35,))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(15):
        optimizer.zero_grad()
        loss_of(model(images), labels, "cross-entropy").backward()
        optimizer.step()
    return model.eval().requires_grad_(True)


@pytest.mark.parametrize(("name", "batch", "defense"), [("mlp", 1, "none"), ("lenet", 1, "prune:ratio=0.9"),
                                                        ("mlp", 2, "none")])  # fmt: skip
def test_it_beats_the_blank_and_alone_the_class_mean_on_a_trained_model(
    name: str, batch: int, defense: str, tmp_path: Path
) -> None:
    data = digits()
    images, labels = data.images, data.targets
    rest, file = slice(32, None), tmp_path / "a.safetensors"
    model = trained(name, images[rest], labels[rest])
    private = Batch(*(x[:32].unflatten(0, (-1, batch)) for x in (images, labels)))
    names = tuple(f"c{client}" for client in range(len(private.images)))
    scenario = Scenario(name="digits", model=model, private=private, names=names, threat=KNOWN)
    known = Labeled(name="digits", images=as_bytes(images[rest]), labels=labels[rest], class_names=(), alike=0)
    train_inverter(scenario, parse_defense(defense), known, file, lesson=LESSON, course=COURSE)
    seen, _ = observe_agreed(scenario, parse_defense(defense), Seed(0))
    got = learned_inverter(inverter=str(file)).reconstruct(seen, Seed(0))
    shown = align(got.images, private.images, got.found).images
    means = torch.stack([images[rest][labels[rest].argmax(1) == k].mean(0) for k in range(10)])
    psnr = peak_signal_to_noise(shown, private.images).mean()
    blank, of_class = images[rest].mean(0).expand_as(private.images), means[private.labels.argmax(-1)]
    assert psnr > peak_signal_to_noise(blank, private.images).mean() + 1.0
    if batch == 1:  # of 328 pictures too little is learned about pairs
        assert psnr > peak_signal_to_noise(of_class, private.images).mean() + 1.0
    blind = learned_inverter(inverter=str(file)).prior_only().reconstruct(seen, Seed(0))
    assert psnr > peak_signal_to_noise(align(blind.images, private.images, blind.found).images, private.images).mean()
    assert got.images.min() >= 0
    assert got.images.max() <= 1


def test_a_search_from_it_explains_more(tmp_path: Path) -> None:
    seen, _ = observe_agreed(scene(smooth(), 3), parse_defense("none"), Seed(0))
    plain = learned_inverter(inverter=tiny_inverters()[0]).reconstruct(seen, Seed(0))
    found = learned_inverter(inverter=tiny_inverters()[0], search=True, steps=60, pull=0.0, tv=0.0)
    assert (found.reconstruct(seen, Seed(0)).loss < plain.loss).all()
    tied = learned_inverter(inverter=tiny_inverters()[0], search=True, steps=60, pull=1e6, tv=0.0)
    assert (tied.reconstruct(seen, Seed(0)).images - plain.images).abs().max() < 0.05
    assert (found.reconstruct(seen, Seed(0)).images - plain.images).abs().max() > 0.05


def test_blind_it_draws_the_same_of_every_update() -> None:
    seen, _ = observe_agreed(scene(smooth(), 3), parse_defense("none"), Seed(0))
    seen = replace(seen, labels=seen.labels[:1].expand(3, -1, -1))
    one, other, third = learned_inverter(inverter=tiny_inverters()[0]).prior_only().reconstruct(seen, Seed(0)).images
    assert torch.equal(one, other)
    assert torch.equal(one, third)


def refused(file: str, scenario: Scenario, defense: str = "none") -> str:
    seen, _ = observe_agreed(scenario, parse_defense(defense), Seed(0))
    with pytest.raises(NotApplicableError) as error:
        learned_inverter(inverter=file).reconstruct(seen, Seed(0))
    return str(error.value)


def test_what_it_was_not_trained_for_is_refused_by_name() -> None:
    file = tiny_inverters()[0]
    other = smooth()
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    assert "was trained through another model or other weights" in refused(file, scene(other, 2))
    assert "for batches of 1, here are batches of 2" in refused(file, scene(smooth(), 2, 2))
    training = LocalTraining(steps=2, rate=0.1)
    assert "other local training (rate = 1.0, here 0.1" in refused(file, scene(smooth(), 2, training=training))
    told = refused(file, scene(smooth(), 2, threat=KNOWN), "prune:ratio=0.5")
    assert "no network was trained through Prune(ratio=0.5)" in told


def test_each_attacker_takes_the_file_of_what_it_knows(tmp_path: Path) -> None:
    plain, pruned = tiny_inverters()[0], write_inverter(tmp_path / "p.safetensors", defense=parse_defense("prune"))
    both = learned_inverter(inverter=(plain, pruned))
    for knows, file in ((False, plain), (True, pruned)):
        threat = ThreatModel(knows_defense=knows)
        seen, _ = observe_agreed(scene(smooth(), 2, threat=threat), parse_defense("prune"), Seed(0))
        assert both.file_for(seen) == file
    assert "is not known to this attacker" in refused(pruned, scene(smooth(), 2), "prune")
    assert both.networks() == (plain, pruned)


def test_without_a_file_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no network is given, give inverter=FILE"):
        learned_inverter().networks()
    with pytest.raises(ConfigError, match=r"no such \.safetensors file, make one by gradveil train-inverter"):
        learned_inverter(inverter=str(tmp_path / "none.safetensors"))


@pytest.mark.parametrize(
    "setting",
    ["", "null", "[]", "{}", '{"model": 1}', "[" * 5000,
     '{"model": "a", "shape": [3, 8], "examples": 1, "training": {}, "defense": ""}',
     '{"model": "a", "shape": [3, 8, 8], "examples": "1", "training": [], "defense": ""}'],
)  # fmt: skip
def test_a_file_that_does_not_say_what_it_is_for_is_one_line(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    metadata = {"gradveil.kind": "inverter", "gradveil.setting": setting}
    save_file(load_file(tiny_inverters()[0]), file, metadata=metadata)
    with pytest.raises(ConfigError, match=r"a\.safetensors: does not say what it was trained for, make one by"):
        learned_inverter(inverter=str(file))
    save_file(load_file(tiny_inverters()[0]), file, metadata=metadata | {"gradveil.kind": "progan"})
    with pytest.raises(ConfigError, match="holds progan, not inverter, make one by gradveil train-inverter"):
        learned_inverter(inverter=str(file))
