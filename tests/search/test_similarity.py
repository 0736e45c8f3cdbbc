"""GradSim: inner products of the gradients of many pictures, against one gradient at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, SHAPE, drawn, one_hot, perceptron, smooth, usual
from torch import Tensor, nn

from gradveil.core.client import in_client_mode, loss_of
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.models import MODELS
from gradveil.models.start import weights_from
from gradveil.search.per_sample import OnePicture
from gradveil.search.similarity import Products, Similarity, relative, trouble_with_vmap

DOUBLE = Compute(precision="float64")
IMAGES, POINTS = 5, 4


def wide() -> nn.Module:
    """Few positions and many channels: its convolutions are multiplied and never formed."""
    with weights_from(3):
        layers = [nn.Conv2d(3, 48, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(48, 64, 3, padding=1), nn.Tanh()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, CLASSES)).double()


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.mean(0, keepdim=True)


class Branching(nn.Module):
    """Takes its way by the picture, which `torch.fx` cannot trace and `vmap` cannot run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if float(x.detach().sum()) > 0 else self.inner(-x)


def pictures(images: int = IMAGES, points: int = POINTS) -> tuple[Tensor, Tensor, Tensor]:
    target, start = drawn(images, *SHAPE, seed=1), drawn(images, *SHAPE, seed=2)
    i = torch.linspace(0, 0.9, points, dtype=torch.float64).view(1, -1, 1, 1, 1)
    return (1 - i) * start[:, None] + i * target[:, None], target, one_hot(1, images)[0]


def one_by_one(model: nn.Module, training: LocalTraining, points: Tensor, target: Tensor, labels: Tensor) -> Products:
    """The textbook: `torch.autograd.grad` of one picture at a time."""
    model = in_client_mode(model, training)
    weights = list(model.parameters())

    def gradient(picture: Tensor, label: Tensor) -> list[Tensor]:
        loss = loss_of(model(picture[None]), label[None], training.loss)
        return [training.rate * g for g in torch.autograd.grad(loss, weights)]

    def products(a: list[Tensor], b: list[Tensor]) -> Tensor:
        return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)])

    goals = [gradient(x, y) for x, y in zip(target, labels, strict=True)]
    ways = [[gradient(x, y) for x in row] for row, y in zip(points, labels, strict=True)]
    cross = [torch.stack([products(g, goal) for g in row]) for row, goal in zip(ways, goals, strict=True)]
    own = [torch.stack([products(g, g) for g in row]) for row in ways]
    return Products(torch.stack(cross), torch.stack(own), torch.stack([products(g, g) for g in goals]))


def same(got: Products, expected: Products, within: float = 1e-9) -> bool:
    pairs = [(got.cross, expected.cross), (got.own, expected.own)]
    pairs.append((got.target[:, None], expected.target[:, None]))
    return all(a.shape == b.shape and relative(a, b) < within for a, b in pairs)


TRAININGS = {
    "one step": LocalTraining(),
    "half the rate": LocalTraining(rate=0.5),
    "several labels": LocalTraining(loss="binary-cross-entropy"),
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS.keys())
@pytest.mark.parametrize("backend", ["sweep", "vmap", "loop"])
@pytest.mark.parametrize("model", [usual, smooth, perceptron, wide])
def test_every_back_end_gives_what_autograd_gives(model, backend, training):
    similarity = Similarity(model(), training, replace(DOUBLE, backend=backend))
    assert same(similarity(*pictures()), one_by_one(model(), training, *pictures()))
    assert similarity.backend == backend


@pytest.mark.parametrize("name", ["convnet8", "lenet"])
def test_the_papers_models_are_walked_and_right(name):
    model = MODELS[name](classes=CLASSES, shape=(3, 18, 18)).double()
    target, start = drawn(2, 3, 18, 18, seed=1), drawn(2, 3, 18, 18, seed=2)
    given = torch.stack([start, (start + target) / 2], 1), target, one_hot(1, 2)[0]
    similarity = Similarity(model, LocalTraining(), DOUBLE)
    assert same(similarity(*given), one_by_one(model, LocalTraining(), *given))
    assert (similarity.backend, similarity.notes) == ("sweep", ())


def test_a_trial_of_several_steps_is_compared_by_what_is_sent():
    training = LocalTraining(steps=2, rate=0.1, momentum=0.5, weight_decay=0.1)
    together, looped = (Similarity(usual(), training, replace(DOUBLE, backend=b)) for b in ("vmap", "auto"))
    assert same(together(*pictures()), looped(*pictures()))
    assert looped.backend == "loop"
    assert "2 local steps" in looped.notes[0]


def test_what_nothing_batched_can_run_is_looped_and_says_why():
    similarity = Similarity(Branching(), LocalTraining(), DOUBLE)
    assert same(similarity(*pictures()), one_by_one(Branching(), LocalTraining(), *pictures()))
    assert similarity.backend == "loop"
    assert similarity.notes[0].startswith("sweep cannot run this: torch.fx cannot trace it")


def test_a_gpu_is_told_what_vmap_cannot_run():
    one = OnePicture.of(Branching(), LocalTraining(), DOUBLE)
    assert "RuntimeError" in str(trouble_with_vmap(one, SHAPE, CLASSES))
    assert trouble_with_vmap(OnePicture.of(usual(), LocalTraining(), DOUBLE), SHAPE, CLASSES) is None


def test_a_model_that_looks_at_its_neighbors_is_found_out():
    """Stacked pictures would see one another."""
    model = nn.Sequential(Mixing(), perceptron())
    similarity = Similarity(model, LocalTraining(), DOUBLE)
    assert same(similarity(*pictures()), one_by_one(model, LocalTraining(), *pictures()))
    assert similarity.backend == "loop"
    assert "differs from autograd" in similarity.notes[0]


def test_sweep_by_name_where_it_cannot_is_one_clear_error():
    with pytest.raises(ConfigError, match=r"backend: sweep cannot run this: .*use `backend = auto`"):
        Similarity(Branching(), LocalTraining(), replace(DOUBLE, backend="sweep"))(*pictures())


def test_at_the_target_the_similarity_is_1():
    _, target, labels = pictures()
    found = Similarity(usual(), LocalTraining(), DOUBLE)(target[:, None], target, labels)
    for curve in (found.flat(), found.per_tensor(), found.by_tensor(), found.with_target().flat()):
        assert torch.allclose(curve, torch.ones_like(curve), atol=1e-12)


def test_float32_is_as_good_as_its_digits():
    exact = Similarity(usual(), LocalTraining(), DOUBLE)(*pictures())
    rough = Similarity(usual(), LocalTraining(), Compute())(*(x.float() for x in pictures()))
    assert torch.allclose(rough.flat(), exact.flat(), atol=1e-5)
    assert torch.allclose(rough.per_tensor(), exact.per_tensor(), atol=1e-5)


def test_scaling_the_loss_changes_no_cosine():
    whole, half = (Similarity(usual(), LocalTraining(rate=rate), DOUBLE)(*pictures()) for rate in (1.0, 0.5))
    assert torch.allclose(whole.flat(), half.flat(), atol=1e-12)
    assert torch.allclose(whole.per_tensor(), half.per_tensor(), atol=1e-12)
    assert torch.allclose(whole.own, 4 * half.own)


def test_with_one_tensor_flat_and_per_tensor_are_the_same():
    with weights_from(4):
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES, bias=False)).double()
    found = Similarity(model, LocalTraining(), DOUBLE)(*pictures())
    assert torch.allclose(found.flat(), found.per_tensor(), atol=1e-12)
    assert 0 < float(found.flat().min()) < 0.999


def test_frozen_parameters_are_not_compared():
    model = usual()
    model.conv1.requires_grad_(False)
    found = Similarity(model, LocalTraining(), DOUBLE)
    assert found(*pictures()).target.shape[1] == len(found.names) == len(list(usual().parameters())) - 1


@pytest.mark.parametrize("model", [usual, wide])
def test_alone_as_among_others(model):
    points, target, labels = pictures()
    similarity = Similarity(model(), LocalTraining(), DOUBLE)
    found = similarity(points, target, labels)
    alone = similarity(points[3:4, 1:2], target[3:4], labels[3:4])
    assert torch.allclose(found.flat()[3:4, 1:2], alone.flat(), atol=1e-12)
    assert torch.allclose(found.own[3:4, 1:2], alone.own, rtol=1e-9)


@pytest.mark.parametrize(("chunk", "threads"), [(1, 1), (3, 1), (7, 1), (11, 1), (100, 1), (11, 2)])
def test_any_chunk_gives_the_same(chunk, threads):
    torch.set_num_threads(threads)
    whole = Similarity(usual(), LocalTraining(), DOUBLE)(*pictures())
    parts = Similarity(usual(), LocalTraining(), replace(DOUBLE, chunk=chunk))(*pictures())
    assert same(parts, whole)


def test_a_tensor_without_gradient_counts_as_0_and_never_as_nan():
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    found = Products(torch.cat([zero, one], -1), torch.cat([zero, one], -1), torch.cat([zero, one], -1)[:, 0])
    assert found.by_tensor().tolist() == [[[0.0, 1.0]]]
    assert found.per_tensor().tolist() == [[0.5]]
    assert Products(zero, zero, zero[:, 0]).flat().tolist() == [[0.0]]


def test_small_gradients_keep_their_angle():
    tiny = torch.full((1, 1, 1), 1e-30)
    assert Products(tiny, tiny, tiny[:, 0]).flat().item() == pytest.approx(1.0)


def test_the_model_of_the_caller_stays_as_it_was():
    model = usual().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Similarity(model, LocalTraining(), Compute())(*(x.float() for x in pictures()))
    assert model.training
    assert all(p.requires_grad and p.dtype == torch.float64 for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
