"""A loss of the user's own: what is taken, what a name alone may do, and that it is the loss that torch descends."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scenes import drawn
from tasks import FILE, SIDE, loss_called, one_hot_masks, small_unet
from torch import Tensor

from gradveil.core.client import in_client_mode, local_loss, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.core.own_loss import OwnLoss, as_own_loss, load_loss
from gradveil.core.seeds import Seed
from gradveil.core.target import Target, kind_of
from gradveil.core.types import Batch


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs * targets).mean()


def batch(count: int = 3) -> Batch:
    return Batch(drawn(count, 3, SIDE, SIDE, seed=1), one_hot_masks(count, seed=2))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_three_steps_are_those_of_torch(optimizer: str) -> None:
    loss, model, data = loss_called("dice_ce"), small_unet(), batch()
    assert isinstance(loss, OwnLoss)
    training = LocalTraining(steps=3, rate=0.05, optimizer=optimizer, loss=loss)  # type: ignore[arg-type]
    played = in_client_mode(model, training)
    sent = {name: p.clone() for name, p in parameters_of(model).items()}
    update = local_update(played, parameters_of(played), data, training, Defense(), Seed().rng())
    steps = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](model.parameters(), lr=0.05)
    for _ in range(3):
        steps.zero_grad()
        loss(model(data.images), data.labels).backward()
        steps.step()
    for name, p in parameters_of(model).items():
        torch.testing.assert_close(update[name], sent[name] - p, rtol=1e-9, atol=1e-12)


def test_class_weights_and_smoothing_of_masks_are_those_of_torch() -> None:
    logits, weights = 4 * drawn(2, 3, SIDE, SIDE, seed=3) - 2, (1.0, 2.0, 0.5)
    masks = one_hot_masks(2, seed=4)
    got = local_loss(logits, masks, LocalTraining(class_weights=weights))
    expected = F.cross_entropy(logits, masks.argmax(1), weight=torch.tensor(weights, dtype=torch.float64))
    torch.testing.assert_close(got, expected)
    got = local_loss(logits, masks, LocalTraining(label_smoothing=0.1))
    torch.testing.assert_close(got, F.cross_entropy(logits, masks.argmax(1), label_smoothing=0.1))


def test_a_mask_is_cropped_and_mirrored_with_its_picture() -> None:
    picture = drawn(4, 1, SIDE, SIDE, seed=5)
    training = LocalTraining(augment="crop-flip", loss=as_own_loss(dice))
    from gradveil.core.client import augment

    for masks in (picture, picture[:, 0]):
        fed = augment(Batch(picture, masks), training, Seed(), 0)
        assert fed.labels.equal(fed.images if masks.dim() == 4 else fed.images[:, 0])
        assert not fed.images.equal(picture)


def test_a_name_alone_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import pathlib; pathlib.Path({str(mark)!r}).touch()\ndef own(o, t): return o.mean()\n"
    (tmp_path / "net.py").write_text(code)
    named = LocalTraining(loss=f"{tmp_path}/net.py:own").loss  # type: ignore[arg-type]
    assert isinstance(named, OwnLoss)
    assert pickle.loads(pickle.dumps(named)).function is None
    with pytest.raises(ConfigError, match="was not given"):
        named(torch.ones(1), torch.ones(1))
    assert not mark.exists()
    loaded = load_loss(str(named))
    assert loaded == named
    assert mark.exists()
    assert float(pickle.loads(pickle.dumps(loaded))(torch.ones(2), torch.ones(2))) == 1


def test_it_is_text_wherever_a_loss_is_named() -> None:
    training = LocalTraining(loss=as_own_loss(dice))
    assert training.loss == f"{__file__}:dice"
    assert training.to_table()["loss"] == f"{__file__}:dice"
    assert copy.deepcopy(training).loss is training.loss
    assert training != LocalTraining()


@pytest.mark.parametrize("loss", ["focal", "", "a.py:b\nc"])
def test_what_is_no_loss_is_refused(loss: str) -> None:
    with pytest.raises(ConfigError, match="must be cross-entropy, binary-cross-entropy or path/to/"):
        LocalTraining(loss=loss)  # type: ignore[arg-type]


def test_a_class_of_losses_is_made(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FILE)
    squares = load_loss(f"{tmp_path}/net.py:Squares")
    assert float(squares(torch.ones(2), torch.zeros(2))) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dicece", "no loss 'dicece', did you mean 'dice_ce'"),
        ("zzz", "no loss 'zzz', define one that takes outputs and targets"),
        ("text", "text is a str, name a function"),
    ],
)
def test_a_name_that_the_file_does_not_have(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FILE)
    with pytest.raises(ConfigError, match=message):
        load_loss(f"{tmp_path}/net.py:{name}")


@pytest.mark.parametrize("target", [Target(shape=(4,)), Target(shape=(3, 5, 5)), Target(shape=(4,), kind="several")])
def test_a_target_is_squashed_and_decided(target: Target) -> None:
    free = 6 * drawn(2, *target.shape, seed=6) - 3
    soft, hard = target.squash(free), target.harden(free)
    assert kind_of(hard) == target.kind
    assert bool(((soft >= 0) & (soft <= 1)).all())
    assert hard.equal(target.harden(hard - 0.5))
    if target.kind == "classes":
        assert kind_of(soft) == "classes"
        assert target.from_stored(hard.argmax(1)).equal(hard.float())
