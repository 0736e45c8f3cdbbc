"""ROG: its options, its presets, how it ends, and what the projection is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from scenes import CLASSES, drawn, scene, seen_in, smooth

from gradveil.attacks import ATTACKS
from gradveil.attacks.rog import rog, rog_code, rog_paper
from gradveil.core.choice import parse_choice
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.sign import Sign
from gradveil.engine import finish
from gradveil.engine.finish import Enhance, Sequence, clamp, equalize, files_of
from gradveil.engine.optimizer import Adam, CosineDecay
from gradveil.engine.spaces.bicubic import Bicubic
from gradveil.engine.spaces.generator import Decoded
from gradveil.engine.spaces.space import Pixels
from gradveil.generators.autoencoder import Autoencoder
from gradveil.generators.provenance import record_of
from gradveil.generators.stored import store_network
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

ALONE = Compute(backend="loop")  # the fastest for one client of few pixels


def test_the_presets_differ_where_the_page_says() -> None:
    ours, code, paper = rog(), rog_code(), rog_paper()
    assert ours.space == Bicubic(factor=4, start="gray", boxed=True)
    assert code.space == Bicubic(factor=4)
    assert paper.space == Bicubic(factor=4, encoded=True)
    assert [attack.steps for attack in (ours, code, paper)] == [100] * 3
    assert ours.optimizer == code.optimizer == Adam(rate=0.05, schedule=CosineDecay(floor=0.1))
    assert not code.priors
    assert not paper.priors


def test_options_are_plain_values_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "enhancer.safetensors"
    save_file({"x": torch.zeros(1)}, file)
    choice = parse_choice(f"rog:space=bicubic,factor=2,finish=enhance,enhancer={file}", "--attack")
    attack: Any = ATTACKS[choice.name](**choice.options)
    assert attack.space.factor == 2
    assert attack.finish == Enhance(str(file))
    assert attack.networks() == (str(file),)
    assert rog().networks() == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": "autoencoder"}, "rog: weights: none is given"),
        ({"space": "gan"}, "rog: weights: none is given"),
        ({"weights": "x.safetensors"}, "space is neither autoencoder nor gan"),
        ({"space": "gan", "weights": "no.safetensors"}, "no.safetensors: no such"),
        ({"space": "gan", "weights": "mine.py:make"}, "mine.py:make: no"),
        ({"finish": "enhance"}, "rog: enhancer: none is given"),
        ({"enhancer": "x.safetensors"}, "finish does not enhance"),
        ({"finish": "enhance", "enhancer": "no.safetensors"}, "no such file"),
        ({"factor": 0}, "factor = 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rog(**options)


def test_an_autoencoder_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "small.safetensors"
    built = {"latent": 128, "size": 8, "channels": 3, "width": 8}
    store_network(file, "autoencoder", Autoencoder(**built), built, {}, record_of(drawn(4, 3, 8, 8)))
    attack = rog(space="autoencoder", weights=str(file), steps=3)
    assert isinstance(attack.space, Decoded)
    assert attack.space.start == "encoded"
    assert attack.networks() == (str(file),)
    got = attack.reconstruct(seen_in(scene(smooth(), 1, 2)), Seed(0))
    assert got.images.shape == (1, 2, 3, 8, 8)
    with pytest.raises(ConfigError, match="which is not gan"):
        rog(space="gan", weights=str(file))


# the end


def test_equalizing_is_blind_to_the_strength_of_a_picture() -> None:
    pictures = drawn(1, 2, 3, 16, 16)
    assert torch.equal(equalize(pictures), equalize(0.25 * pictures))
    assert equalize(0.25 * pictures).std() > 0.25 * pictures.std()


def test_equalized_levels_are_even() -> None:
    got = equalize(drawn(1, 1, 3, 64, 64) ** 1.5)  # dark
    counts = torch.histc(got[0, 0, 0], bins=8, min=0, max=1) / got[0, 0, 0].numel()
    assert (counts - 1 / 8).abs().max() < 0.03


def test_an_enhancer_is_given_pictures_and_gives_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[torch.Tensor] = []

    def network(images: torch.Tensor) -> torch.Tensor:
        given.append(images)
        return images + 0.5

    monkeypatch.setattr(finish, "enhancer", lambda file: network)
    wild = 4 * drawn(3, 7, 3, 4, 4) - 2
    got = Sequence((clamp, Enhance("file")))(wild)
    assert torch.equal(given[0], wild.clamp(0, 1))
    assert torch.equal(got, (wild.clamp(0, 1) + 0.5).clamp(0, 1))
    assert files_of(Sequence((equalize, Enhance("file")))) == ("file",)


# the network


def test_lenet5_starts_with_the_weights_that_torch_draws() -> None:
    """As in ROG's code: uniform up to one over the root of the fan-in, biases of the convolutions too."""
    for name, parameter in MODELS["lenet5"](classes=100, shape=(3, 16, 16)).named_parameters():
        inputs = {"stage1": 3 * 25, "stage2": 32 * 25, "hidden": 64 * 16, "fc": 512}[name.split(".")[0]]
        assert 0.8 * inputs**-0.5 < float(parameter.detach().abs().max()) <= inputs**-0.5


def test_large_pictures_make_lenetzhu_sure_of_one_class_and_lenet5_of_none() -> None:
    """Why the studies take LeNet-5: the logits of LeNetZhu grow with the picture until the softmax says one thing."""
    surest = {}
    for name, size in {"lenet": 128, "lenet5": 64}.items():  # LeNet-5 of 128 pixels has 34 million weights to draw
        model = MODELS[name](classes=100, shape=(3, size, size)).eval()
        with torch.no_grad():
            surest[name] = float(model(drawn(4, 3, size, size).float()).softmax(-1).amax(-1).mean())
    assert surest["lenet"] > 0.5
    assert surest["lenet5"] < 0.02


# the attack


def natural(count: int, size: int) -> Batch:
    data = photos(size=size)
    picked = torch.arange(count) * (len(data.images) // count)
    return Batch(data.images[picked][None], data.targets[picked][None])


@pytest.fixture(scope="module")
def fedavg() -> Scenario:
    """Four photographs, five local steps on all of them."""
    private = natural(4, 18)
    model = MODELS["lenet"](classes=private.labels.shape[-1], shape=(3, 18, 18))
    return Scenario(name="rog", model=model, private=private, names=("a",), training=LocalTraining(steps=5, rate=5e-3))


@pytest.mark.more
@pytest.mark.parametrize(("steps", "local"), [(40, 2), pytest.param(100, 5, marks=pytest.mark.slow)])
def test_fewer_unknowns_beat_pixels_in_as_many_steps(fedavg: Scenario, steps: int, local: int) -> None:
    """Section 4.2: the same search without the projection is far behind after a hundred steps."""
    seen = seen_in(replace(fedavg, training=LocalTraining(steps=local, rate=5e-3)))
    coarse, pixels = (
        rog(steps=steps, space=space, factor=3).reconstruct(seen, Seed(0), ALONE) for space in ("bicubic", "pixels")
    )
    ours, theirs = (peak_signal_to_noise(got.images, fedavg.private.images).mean() for got in (coarse, pixels))
    blank = torch.full_like(fedavg.private.images, 0.5)
    assert ours > theirs + 1.5
    assert ours > peak_signal_to_noise(blank, fedavg.private.images).mean() + 2


def test_the_update_is_looked_at(fedavg: Scenario) -> None:
    """Negative control: the same attack on another client's update does not find these pictures."""
    others = replace(fedavg, private=Batch(fedavg.private.images.flip(-1, 1), fedavg.private.labels))
    others, fedavg = (replace(one, training=LocalTraining(steps=2, rate=5e-3)) for one in (others, fedavg))
    attack, truth = rog(steps=30, factor=3), fedavg.private.images
    right, wrong = (attack.reconstruct(seen_in(one), Seed(0), ALONE).images for one in (fedavg, others))
    assert peak_signal_to_noise(right, truth).mean() > peak_signal_to_noise(wrong, truth).mean() + 1.5


def test_signs_are_matched_by_a_tanh_that_an_aware_attacker_knows(fedavg: Scenario) -> None:
    """Equation 15, with the sharpness that makes it more than a straight line."""
    report = replace(fedavg, threat=ThreatModel(knows_defense=True), training=LocalTraining(steps=2, rate=5e-3))
    seen = seen_in(report, Sign(sharpness=1.0))
    attack = rog(steps=15, factor=3)
    aware, unaware = (attack.reconstruct(one, Seed(0), ALONE) for one in (seen, replace(seen, defense=None)))
    assert aware.loss[0] < unaware.loss[0]
    assert isinstance(rog(space="pixels").space, Pixels)


def test_two_pictures_of_one_label_do_not_stay_equal() -> None:
    both = torch.eye(CLASSES, dtype=torch.float64)[[1, 1]][None]
    model = MODELS["lenet5"](classes=CLASSES, shape=(3, 32, 32)).double().eval()
    seen = seen_in(scene(model, clients=1, examples=2, shape=(3, 32, 32), labels=both))
    got = rog(steps=20).reconstruct(seen, Seed(1), ALONE)
    assert (got.images[0, 0] - got.images[0, 1]).abs().max() > 0.05
