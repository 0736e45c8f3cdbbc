"""The plain trainer: it learns, it repeats, it draws nothing of its own accord."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch, Update
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.prune import Prune
from gradveil.train.centralized import FALLS, accuracy, fit
from gradveil.transforms.policy import Policy

CLASSES = 3


def squares(count: int = 48) -> Batch:
    """A bright square whose place is the class."""
    labels = torch.arange(count) % CLASSES
    images = 0.2 * torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for place, label in enumerate(labels.tolist()):
        images[place, label, 4:12, 4:12] += 0.7
    return Batch(images, torch.eye(CLASSES)[labels])


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(32, CLASSES))


def weights(model: nn.Module) -> Tensor:
    return torch.cat([x.flatten().double() for x in model.state_dict().values()])


def test_it_learns_and_ends_in_eval_mode() -> None:
    model, data = net(), squares()
    before = accuracy(model, data)
    fit(model, data, epochs=8, batch_size=16)
    assert accuracy(model, data) > 0.9 > before
    assert not model.training


def test_what_feeds_and_what_sends_act_on_every_batch() -> None:
    fed, sent = [], []

    def feed(batch: Batch, rng: Generator) -> Batch:
        fed.append(float(torch.rand((), generator=rng)))
        return batch

    def send(update: Update, rng: Generator) -> Update:
        sent.append(set(update))
        return {name: torch.zeros_like(gradient) for name, gradient in update.items()}

    model = fit(net(), squares(), epochs=2, batch_size=16, weight_decay=0, feed=feed, send=send)
    assert len(set(fed)) == len(sent) == 6  # each with a stream of its own
    assert sent[0] == {name for name, _ in model.named_parameters()}
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), net().parameters(), strict=True))


def test_pruning_nothing_and_mixing_nothing_change_nothing() -> None:
    kept, alone = Prune(ratio=0.0), Mixup(k=1)
    plain = fit(net(), squares(), epochs=2, batch_size=16)
    defended = fit(net(), squares(), epochs=2, batch_size=16, feed=alone.data, send=kept.update)
    assert torch.allclose(weights(plain), weights(defended), atol=1e-6)
    pruned = fit(net(), squares(), epochs=2, batch_size=16, send=Prune(ratio=0.9).update)
    assert not torch.allclose(weights(plain), weights(pruned), atol=1e-3)


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    first, again, other = (fit(net(), squares(), epochs=2, batch_size=16, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))


def test_it_takes_nothing_from_the_generator_of_the_caller() -> None:
    before = torch.get_rng_state()
    fit(net(), squares(), epochs=1, batch_size=16, policy=Policy.parse("3-1-7"))
    assert torch.equal(torch.get_rng_state(), before)


def test_one_step_is_the_gradient_step_by_hand() -> None:
    """No momentum, no decay, no augmentation, one batch of everything: w - rate * gradient."""
    data, by_hand = squares(), net().train()
    nn.functional.cross_entropy(by_hand(data.images), data.labels).backward()
    plain = {"momentum": 0.0, "weight_decay": 0.0, "augment": False}
    model = fit(net(), data, epochs=1, rate=0.05, batch_size=len(data.images), **plain)
    for got, start in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert start.grad is not None
        assert torch.allclose(got, start - 0.05 * start.grad, atol=1e-6)


def test_three_steps_are_torch_s_own_nesterov() -> None:
    data, by_hand = squares(), net().train()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.1 ** sum(step / 3 >= fall for fall in FALLS)
        optimizer.zero_grad()
        nn.functional.cross_entropy(by_hand(data.images), data.labels).backward()
        optimizer.step()
    model = fit(net(), data, epochs=3, batch_size=len(data.images), augment=False)
    for got, wanted in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)


def test_a_policy_is_what_the_model_sees() -> None:
    seen: list[Tensor] = []
    model = net()
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    data = squares(12)
    fit(model, data, epochs=1, batch_size=12, augment=False, policy=Policy.parse("0"))  # the negative
    assert torch.allclose(seen[0].sum(), (1 - data.images).sum(), rtol=1e-2)


def test_the_last_batch_is_left_out_if_it_is_not_full_and_epochs_are_told() -> None:
    sizes: list[int] = []
    report: list[int] = []
    model = net()
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    fit(model, squares(40), epochs=2, batch_size=16, on_epoch=lambda epoch, loss: report.append(epoch))
    assert sizes == [16] * 4
    assert report == [1, 2]


def test_bfloat16_learns_too_and_weights_stay_float32() -> None:
    model = fit(net(), squares(), epochs=8, batch_size=16, bf16=True)
    assert accuracy(model, squares()) > 0.8
    assert all(p.dtype == torch.float32 and p.is_contiguous() for p in model.parameters())


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be 1 or more, got 0"):
        fit(net(), Batch(torch.zeros(0, 3, 16, 16), torch.zeros(0, CLASSES)), epochs=1)
