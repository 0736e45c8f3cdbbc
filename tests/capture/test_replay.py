"""A replay knows the client's pictures, and if the capture says something wrong, what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pictures import dataset, rows, sent_by

from gradveil.capture import Capture
from gradveil.capture.orders import count_orders, list_orders
from gradveil.capture.preflight import model_of
from gradveil.capture.replay import Replay, replay
from gradveil.capture.truth import find
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch
from gradveil.defenses import DEFENSES

FEDAVG = LocalTraining(steps=3, rate=1e-3)


def replayed(capture: Capture, batch: Batch, **more) -> Replay:
    constants = (tuple(dataset().mean), tuple(dataset().std))
    more = {"decoys": rows(16, 21), "constants": constants} | more
    return replay(capture, model_of(capture), "client-0", batch, **more)


@pytest.mark.parametrize(
    ("model", "count", "training"),
    [
        ("lenet", 1, LocalTraining()),
        ("lenet", 2, FEDAVG),
        ("convnet8", 2, LocalTraining(batchnorm="batch")),
        ("lenet", 2, LocalTraining(steps=4, rate=1e-3, batch_size=1, momentum=0.9, weight_decay=1e-3)),
    ],
)
def test_the_own_pictures_reproduce_the_update(model: str, count: int, training: LocalTraining) -> None:
    capture = sent_by(rows(0, count), model=model, training=training)
    assert replayed(capture, rows(0, count)).status == "reproduced"
    assert replayed(capture, rows(8, count)).status == "not reproduced"  # of the same classes


def test_what_float32_loses_in_a_difference_of_weights_is_no_difference() -> None:
    capture = sent_by(rows(0), training=LocalTraining(steps=2, rate=1e-5))
    lossy = {n: capture.weights[n] - (capture.weights[n] - u) for n, u in capture.updates["client-0"].items()}
    found = replayed(replace(capture, updates={"client-0": lossy}), rows(0))
    assert found.status == "reproduced"
    assert found.error > 1e-3  # which alone would have been too much


def fed(images: torch.Tensor) -> Batch:
    return Batch(images, rows(0).labels)


MEAN, STD = (torch.tensor(part).view(-1, 1, 1) for part in (dataset().mean, dataset().std))
IMAGES = rows(0).images


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (IMAGES * STD + MEAN, "the client did not normalize"),
        ((IMAGES - MEAN) / STD, "the client normalized twice"),
        (255 * IMAGES, "the client fed pixels from 0 to 255"),
    ],
)
def test_wrong_normalization_is_named(images: torch.Tensor, expected: str) -> None:
    found = replayed(sent_by(rows(0), fed=fed(images)), rows(0))
    assert (found.status, found.fits) == ("not reproduced", expected)
    assert expected in found.summary


def test_normalization_that_the_capture_keeps_quiet_about_is_named() -> None:
    capture = sent_by(rows(0))
    weights = {name: tensor for name, tensor in capture.weights.items() if not name.startswith("normalize.")}
    found = replayed(replace(capture, weights=weights, normalization=None), rows(0))
    assert found.fits == "the client normalized with the constants of the data"


def test_the_mode_of_batch_normalization_is_named() -> None:
    capture = sent_by(rows(0, 2), model="convnet8", training=LocalTraining(batchnorm="batch"))
    found = replayed(replace(capture, training=LocalTraining()), rows(0, 2))
    assert found.fits == "batch normalization was in mode batch"


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        (0.0, "running statistics, which came back as they were sent (eval)"),
        (
            0.1,
            "each batch's own statistics, since running statistics came back changed (batch-shared, 3 forward passes",
        ),
    ],
)
def test_the_mode_that_came_back_statistics_tell_is_named(change: float, mode: str) -> None:
    capture = sent_by(rows(0, 2), model="convnet8", training=LocalTraining(batchnorm="batch-shared"))
    moved = {name: capture.weights[name] + change for name in capture.weights if name.endswith("running_mean")}
    counted = {name: capture.weights[name] + 3 for name in capture.weights if name.endswith("num_batches_tracked")}
    assert moved
    assert counted
    found = replayed(replace(capture, statistics={"client-0": moved | counted}), rows(0, 2))
    assert f"; normalized by {mode}" in found.summary
    assert "normalized by" not in replayed(capture, rows(0, 2)).summary


def test_fedavg_that_says_it_is_fedsgd_is_named() -> None:
    found = replayed(replace(sent_by(rows(0), training=FEDAVG), training=replace(FEDAVG, steps=1)), rows(0))
    assert found.fits == "the client took 3 local steps"


def test_sign_and_scale_are_named() -> None:
    capture = sent_by(rows(0))
    for factor, report in ((-1.0, "its sign is flipped"), (0.25, "it is multiplied by 0.25")):
        changed = {name: factor * u for name, u in capture.updates["client-0"].items()}
        assert report in replayed(replace(capture, updates={"client-0": changed}), rows(0)).fits
    after = {name: capture.weights[name] - u for name, u in capture.updates["client-0"].items()}
    assert replayed(replace(capture, updates={"client-0": after}), rows(0)).fits == "weights were saved in its place"


@pytest.mark.parametrize(("name", "options"), [("gaussian", {"scale": 0.01}), ("prune", {"ratio": 0.9}), ("sign", {})])
def test_a_defense_leaves_the_pictures_alike(name: str, options: dict[str, float]) -> None:
    defense = DEFENSES[name](**options)
    capture = sent_by(rows(0), defense=defense)
    # noise leaves no pattern: unless it is named, other pictures are the likelier reason
    assert replayed(capture, rows(0)).status == ("not reproduced" if name == "gaussian" else "alike")
    assert replayed(capture, rows(8), defense=defense).status == "not reproduced"
    report = replayed(capture, rows(0), defense=defense).status
    assert report == ("alike" if name == "gaussian" else "reproduced")  # noise is not drawn twice


def test_a_single_picture_is_found_wherever_it_lies() -> None:
    capture = sent_by(rows(33), rows(5))
    found = find(capture, model_of(capture), {1: ("client-0", "client-1")}, dataset())
    assert found.rows == (33, 5)
    assert torch.equal(found.batches["client-0"].images, rows(33).images)
    assert found.gallery is not None
    assert not any(torch.equal(found.gallery[k], rows(33).images[0]) for k in range(len(found.gallery)))


def test_rows_that_are_told_are_taken() -> None:
    capture = sent_by(rows(4, 2))
    found = find(capture, model_of(capture), {2: ("client-0",)}, dataset(), given=(4, 5))
    assert replayed(capture, found.batches["client-0"]).status == "reproduced"
    for wrong in ((4,), (4, 48), (-1, 3)):
        with pytest.raises(ConfigError, match="pictures: must be 2 rows from 0 to 47"):
            find(capture, model_of(capture), {2: ("client-0",)}, dataset(), given=wrong)


ORDINARY = {
    "adam": (LocalTraining(optimizer="adam", rate=1e-3, epochs=2, batch_size=2), torch.optim.Adam, {}),
    "adamw": (LocalTraining(optimizer="adamw", rate=1e-3, epochs=2, weight_decay=0.01), torch.optim.AdamW, {}),
    "rmsprop": (LocalTraining(optimizer="rmsprop", rate=1e-3, steps=3), torch.optim.RMSprop, {}),
    "adagrad": (LocalTraining(optimizer="adagrad", rate=1e-2, steps=3), torch.optim.Adagrad, {}),
    "nesterov": (
        LocalTraining(rate=1e-2, momentum=0.9, nesterov=True, epochs=2, batch_size=2),
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "label-smoothing": (LocalTraining(rate=1e-2, steps=2, label_smoothing=0.1), torch.optim.SGD, {}),
    "clipped": (LocalTraining(rate=1e-1, steps=2, clip_gradients=0.5), torch.optim.SGD, {}),
    "bf16": (LocalTraining(rate=1e-2, steps=2, update_precision="bf16"), torch.optim.SGD, {}),
}


def sent_by_torch(
    batch: Batch, training: LocalTraining, make: Any, options: dict[str, Any], order: Any = None
) -> Capture:
    """A client of a plain torch loop: what it sends is a difference of weights."""
    capture = sent_by(batch, training=training)
    model = model_of(capture).eval()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    options = {"weight_decay": training.weight_decay, **options}
    optimizer, count = make(model.parameters(), lr=training.rate, **options), len(batch.images)
    size = training.batch_size or count
    for step in range(training.for_examples(count).steps):
        first = step * size % count
        rows_of_step = (list(range(count)) if order is None else order)[first : first + size]
        optimizer.zero_grad()
        labels = batch.labels[rows_of_step].argmax(-1)
        F.cross_entropy(model(batch.images[rows_of_step]), labels, label_smoothing=training.label_smoothing).backward()
        if training.clip_gradients:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_gradients)
        optimizer.step()
    update = {name: before[name] - p.detach() for name, p in model.named_parameters()}
    if training.update_precision == "bf16":
        update = {name: u.bfloat16() for name, u in update.items()}
    return replace(capture, updates={"client-0": update})


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_training_is_reproduced_from_a_file(name: str, tmp_path: Path) -> None:
    training, make, options = ORDINARY[name]
    file = sent_by_torch(rows(0, 4), training, make, options).save(tmp_path / "round.safetensors")
    capture = Capture.load(file)
    assert capture.training == training
    assert replayed(capture, rows(0, 4)).status == "reproduced"
    assert replayed(capture, rows(8, 4)).status == "not reproduced"


def test_an_optimizer_that_the_capture_keeps_quiet_about_is_named() -> None:
    capture = sent_by_torch(rows(0, 4), *ORDINARY["adam"])
    found = replayed(replace(capture, training=replace(capture.training, optimizer="sgd")), rows(0, 4))
    assert (found.status, found.fits) == ("not reproduced", "its optimizer was adam")


def test_a_shuffled_order_is_found_where_there_are_few() -> None:
    training = LocalTraining(optimizer="adam", rate=1e-3, epochs=1, batch_size=2, order="unknown")
    capture = sent_by_torch(rows(0, 4), training, torch.optim.Adam, {}, order=[3, 1, 0, 2])
    assert replayed(capture, rows(0, 4)).status == "reproduced"
    assert replayed(capture, rows(8, 4)).status == "not reproduced"
    quiet = replace(capture, training=replace(training, order="known"))
    assert replayed(quiet, rows(0, 4)).fits == "the client shuffled its pictures (order unknown)"


def test_a_shuffled_order_among_too_many_is_matched_without_it() -> None:
    training = LocalTraining(rate=1e-2, epochs=2, batch_size=2, order="unknown")
    capture = sent_by_torch(rows(0, 4), training, torch.optim.SGD, {}, order=[3, 1, 0, 2])
    found = replayed(capture, rows(0, 4), decoys=rows(16, 32))
    assert found.status == "alike"
    assert found.cosine > 0.99
    assert replayed(capture, rows(8, 4), decoys=rows(16, 32)).status == "not reproduced"


def test_orders_are_told_apart_by_which_step_takes_what() -> None:
    training = LocalTraining(steps=2, batch_size=2)
    assert count_orders(training, 4) == len(list(list_orders(training, 4))) == 6
    assert count_orders(LocalTraining(steps=2, batch_size=2), 3) == len(list(list_orders(training, 3))) == 3
    assert not list(list_orders(LocalTraining(steps=3, batch_size=2), 4))
