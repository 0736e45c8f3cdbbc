"""Three back ends, one meaning: loop = vmap = sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from nets import HANDED_TO_VMAP, UNUSUAL, WALKED, WIDE, Branches, between, made, named, sized
from scenes import (
    CLASSES,
    NO_DEFENSE,
    as_float32,
    batch_statistics,
    drawn,
    fedavg,
    one_picture,
    scene,
    seen_in,
    several_labels,
    smooth,
    usual,
)
from torch import Tensor, nn

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.defenses.prune import Prune
from gradveil.engine.backend import choose
from gradveil.engine.distance import L1, L2, Cosine, Distance
from gradveil.engine.sweep import find_rules as modules
from gradveil.engine.sweep.convolution import DirectConv, PatchConv, RowConv
from gradveil.engine.sweep.patches import ChannelsFirst, ChannelsLast, Geometry

DISTANCES: dict[str, Distance] = {
    "cosine": Cosine(),
    "cosine per tensor": Cosine(per_tensor=True),
    "l2": L2(),
    "l2 per tensor": L2(per_tensor=True),
    "relative l2": L2(relative=True),
    "l1": L1(),
    "l1 per tensor": L1(per_tensor=True),
}
ADAPTIVE = ThreatModel(knows_defense=True)


def evaluated(seen: Observation, distance: Distance, backend, seed: int = 4) -> tuple[Tensor, Tensor]:
    """Value and gradient of the match at a point."""
    like = next(iter(seen.update.values()))
    fed = drawn(len(seen.names), seen.examples, *seen.shape, seed=seed).to(like)
    return choose(seen, distance, backend).matcher(seen, distance)(fed)


def assert_same(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float = 1e-9) -> None:
    """Relative to the size of each trial's value and gradient."""
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        apart, size = ((x.flatten(1) if x.dim() > 1 else x[:, None]).norm(dim=1) for x in (a - b, b))
        assert (size > 0).all()
        assert (apart <= tolerance * size).all(), (apart / size).tolist()


def assert_all_same(seen: Observation, distance: Distance) -> None:
    expected = evaluated(seen, distance, "loop")
    assert_same(evaluated(seen, distance, "vmap"), expected)
    assert_same(evaluated(seen, distance, "sweep"), expected)


def view(model: nn.Module, examples: int, defense: Defense = NO_DEFENSE, **changes) -> Observation:
    """Two clients with 16x16 pictures and soft labels."""
    labels = drawn(2, examples, CLASSES, seed=8).softmax(-1)
    return seen_in(scene(model, 2, examples, shape=WIDE, labels=labels, **changes), defense)


@pytest.mark.parametrize("examples", [1, 3])
@pytest.mark.parametrize("name", WALKED)
def test_one_evaluation_of_every_model(name: str, examples: int) -> None:
    seen = view(WALKED[name](), examples)
    for distance in (Cosine(), L1()):  # by inner products alone; by gradients that are formed
        assert_all_same(seen, distance)


OTHER_LAYERS = [
    nn.LeakyReLU(0.0),
    nn.RReLU(),
    nn.SELU(),
    nn.SiLU(),
    nn.Softplus(),
    nn.Hardtanh(),
    nn.ReLU6(),
    nn.Mish(),
    nn.Softmax2d(),
    nn.GELU("tanh"),
    nn.Dropout2d(),
    nn.GroupNorm(2, 4, affine=False),
    nn.BatchNorm2d(4, affine=False),
    nn.LPPool2d(2, 2),
    nn.AdaptiveMaxPool2d(5),
    nn.Upsample(size=(9, 9), mode="bilinear"),
    nn.Sequential(nn.ZeroPad2d(1), nn.PixelShuffle(2)),
]


@pytest.mark.parametrize("layer", OTHER_LAYERS, ids=lambda layer: type(layer).__name__)
def test_one_evaluation_of_layers_without_weights(layer: nn.Module) -> None:
    channels = 1 if isinstance(layer, nn.Sequential) else 4  # shuffled pixels are a quarter of the channels
    seen = view(made(lambda: sized(between(layer, channels))), 2)
    assert_same(evaluated(seen, Cosine(), "sweep"), evaluated(seen, Cosine(), "loop"))


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_one_evaluation_of_every_distance(distance: Distance) -> None:
    assert_all_same(view(usual(WIDE), 3), distance)


@pytest.mark.parametrize("kind", [Cosine, L2, L1])
@pytest.mark.parametrize(
    "subset",
    [{"only": ("conv2.*",)}, {"only": ("norm1.bias", "fc.weight")}, {"without": ("*.bias", "fc.*")}],
    ids=["one layer", "two tensors", "without head and biases"],
)
def test_one_evaluation_of_layer_subsets(kind: Callable[..., Distance], subset: dict) -> None:
    seen = view(usual(WIDE), 2)
    assert_all_same(seen, kind(**subset))
    assert_all_same(seen, kind(**subset, per_tensor=True))


@pytest.mark.parametrize("rate", [0.1, 3.0])
@pytest.mark.parametrize("distance", [Cosine(), L2()], ids=["cosine", "l2"])
def test_one_evaluation_at_another_rate(rate: float, distance: Distance) -> None:
    assert_all_same(view(usual(WIDE), 2, training=LocalTraining(rate=rate)), distance)


@pytest.mark.parametrize("name", ["usual", "lenet", "mlp"])
def test_one_evaluation_with_binary_cross_entropy(name: str) -> None:
    seen = view(WALKED[name](), 3, training=LocalTraining(loss="binary-cross-entropy"))
    assert_all_same(seen, Cosine())
    assert_all_same(seen_in(several_labels()), L2())


@pytest.mark.parametrize("distance", [Cosine(), Cosine(per_tensor=True), L2(), L1()])
@pytest.mark.parametrize("name", ["usual", "mlp"])
def test_one_evaluation_of_an_attacker_who_knows_what_was_pruned(name: str, distance: Distance) -> None:
    seen = view(WALKED[name](), 2, Prune(ratio=0.6), threat=ADAPTIVE, training=LocalTraining(rate=0.5))
    unaware = replace(seen, defense=None)
    assert_all_same(seen, distance)
    with pytest.raises(AssertionError):  # the mask does something
        assert_same(evaluated(unaware, distance, "loop"), evaluated(seen, distance, "loop"))


def test_labels_whose_mass_is_not_one() -> None:
    assert_all_same(seen_in(scene(usual(), 2, 2, labels=2 * drawn(2, 2, CLASSES, seed=8))), Cosine())


def test_a_gradient_is_a_gradient() -> None:
    """Against finite differences, so that three equal back ends cannot be equally wrong."""
    seen = seen_in(one_picture(model=smooth()))
    fed, direction = drawn(3, 1, 3, 8, 8, seed=4), drawn(3, 1, 3, 8, 8, seed=5) - 0.5
    for distance in DISTANCES.values():
        match, h = choose(seen, distance, "sweep").matcher(seen, distance), 1e-5
        slope = (match(fed)[1] * direction).flatten(1).sum(1)
        difference = (match(fed + h * direction)[0] - match(fed - h * direction)[0]) / (2 * h)
        assert torch.allclose(slope, difference, rtol=1e-5)


# the rules that a GPU, or wide layers on a CPU, would choose


def forced(kind: str) -> Callable[..., object]:
    def rule(layer: nn.Conv2d, name: str, trials: int, shape: torch.Size) -> object:
        geometry = Geometry.of(layer)
        if kind == "direct":
            return DirectConv(layer, name, trials, geometry)
        if kind == "patches" and geometry.has_transpose:
            return PatchConv(layer, name, trials, geometry, ChannelsLast())
        return RowConv(layer, name, trials, geometry, ChannelsFirst() if kind == "rows first" else ChannelsLast())

    return rule


@pytest.mark.parametrize("kind", ["rows first", "rows last", "patches", "direct"])
@pytest.mark.parametrize("name", ["usual", "lenet", "residual", "geometry", "few rows"])
@pytest.mark.parametrize("examples", [1, pytest.param(3, marks=pytest.mark.more)])
def test_every_convolution_rule(kind: str, name: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "convolution_rule", forced(kind))
    seen = view(WALKED[name](), examples)
    pruned = view(WALKED[name](), examples, Prune(ratio=0.6), threat=ADAPTIVE)
    for distance in (Cosine(), L1(), Cosine(only=("*.bias",)), Cosine(without=("*.bias",))):
        assert_same(evaluated(seen, distance, "sweep"), evaluated(seen, distance, "loop"))
    assert_same(evaluated(pruned, Cosine(), "sweep"), evaluated(pruned, Cosine(), "loop"))


@pytest.mark.parametrize("kind", ["rows last", "patches"])
def test_four_channels_as_one_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 patches of channels in fours are copied as one wide number each."""
    monkeypatch.setattr(modules, "convolution_rule", forced(kind))
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3)]
    model = made(lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 36, CLASSES)))
    seen = seen_in(as_float32(scene(model, 2, 2)))
    assert_same(evaluated(seen, Cosine(), "sweep"), evaluated(seen, Cosine(), "loop"), tolerance=1e-5)


@pytest.mark.parametrize("name", ["lenet", "convnet8"])
def test_one_float32_gradient(name: str) -> None:
    """Median of eight trials: one whose ReLU sits at its corner may differ by more."""
    seen = seen_in(as_float32(scene(named(name), 8, 1, shape=WIDE)))
    expected = evaluated(seen, Cosine(), "loop")[1].flatten(1)
    for backend in ("sweep", "vmap"):
        apart = (evaluated(seen, Cosine(), backend)[1].flatten(1) - expected).norm(dim=1) / expected.norm(dim=1)
        assert apart.median() < 1e-5
        assert apart.max() < (1e-5 if name == "lenet" else 1e-3)


# trajectories


def attacked(seen: Observation, backend, steps: int = 50) -> Tensor:
    got = invertgrad(steps=steps, tv=1e-2).reconstruct(seen, Seed(0), Compute(precision="float64", backend=backend))
    assert got.backend == backend
    return got.images


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "examples"),
    [("usual", 1), pytest.param("usual", 3, marks=pytest.mark.slow), ("lenet", 1), ("residual", 2), ("mlp", 1)],
)
def test_fifty_steps(name: str, examples: int) -> None:
    seen = view(WALKED[name](), examples)
    expected = attacked(seen, "loop")
    for backend in ("vmap", "sweep"):
        assert (attacked(seen, backend) - expected).abs().max() < 1e-9
    assert (expected - attacked(seen, "loop", steps=2)).abs().max() > 0.1  # and they have come a long way


@pytest.mark.parametrize(
    "scenario",
    [
        fedavg(2),
        batch_statistics(2),
        batch_statistics(2, shared=True),
        scene(usual(), 2, 2, training=LocalTraining(weight_decay=0.1)),
        scene(usual(), 2, 2, training=LocalTraining(batch_size=1)),
    ],
    ids=["fedavg", "batch", "batch-shared", "weight decay", "a part of the data"],
)
def test_what_needs_autograd_runs_on_vmap_and_equals_loop(scenario: Scenario) -> None:
    seen = seen_in(scenario)
    compute = Compute(precision="float64")
    got = invertgrad(steps=8, tv=1e-2).reconstruct(seen, Seed(0), compute)
    assert got.backend == "vmap"
    assert len(got.notes) == 1
    assert got.notes[0].startswith("sweep cannot run this")
    assert got.fell_back
    assert (got.images - attacked(seen, "loop", steps=8)).abs().max() < 1e-9


# models that the sweep cannot walk


@pytest.mark.parametrize("name", HANDED_TO_VMAP)
def test_a_model_beyond_the_sweep_falls_back_to_vmap_with_a_note(name: str) -> None:
    build, why = HANDED_TO_VMAP[name]
    seen = view(made(build), 2)
    got = invertgrad(steps=3, tv=1e-2).reconstruct(seen, Seed(0))
    assert (got.backend, got.fell_back) == ("vmap", True)
    assert len(got.notes) == 1
    assert "sweep cannot run this" in got.notes[0]
    assert why in got.notes[0]
    assert_same(evaluated(seen, Cosine(), "auto"), evaluated(seen, Cosine(), "loop"))
    with pytest.raises(ConfigError, match=r"backend: sweep cannot run this: .* use `backend = auto`"):
        invertgrad(steps=3).reconstruct(seen, Seed(0), Compute(backend="sweep"))


def test_a_model_that_looks_at_its_numbers_falls_back_to_the_loop_with_notes() -> None:
    seen = view(made(Branches), 2)
    got = invertgrad(steps=3, tv=1e-2).reconstruct(seen, Seed(0))
    assert (got.backend, got.fell_back) == ("loop", True)
    assert [note.partition(":")[0] for note in got.notes] == ["sweep cannot run this", "vmap cannot run this"]
    assert got.images.isfinite().all()
    with pytest.raises(ConfigError, match="backend: sweep cannot"):
        choose(seen, Cosine(), "sweep")


def test_a_defense_beyond_the_sweep_falls_back_too() -> None:
    class Shifted(Defense):
        def batch(self, batch, rng):
            return batch._replace(images=batch.images.roll(1, -1))

        def surrogate(self, seen):
            return self

    seen = view(usual(WIDE), 2, Shifted(), threat=ADAPTIVE)
    chosen = choose(seen, Cosine(), "auto")
    assert chosen.name == "vmap"
    assert "stage batch" in chosen.notes[0]
    assert_same(evaluated(seen, Cosine(), "vmap"), evaluated(seen, Cosine(), "loop"))


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_model_is_walked_rightly_or_handed_on(name: str) -> None:
    seen = view(UNUSUAL[name](), 3)
    # a bias before a centering has no gradient: the angle of a tensor of rounding errors means nothing
    angles = () if name in ("instance norm", "centered by the batch") else (Cosine(per_tensor=True),)
    for distance in (Cosine(), L1(), *angles):
        assert_same(evaluated(seen, distance, "auto"), evaluated(seen, distance, "loop"))


@pytest.mark.parametrize("backend", ["loop", "vmap"])
def test_frozen_layers_and_an_attacker_who_knows_what_was_pruned(backend) -> None:
    seen = view(UNUSUAL["frozen layers"](), 1, Prune(ratio=0.5), threat=ADAPTIVE)
    evaluated(seen, Cosine(), backend)
