"""Clients as people write them, in plain torch and without a line of ours, and what is declared of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.local_training import LocalTraining
from gradveil.data import Dataset, load

SIZE, CLASSES = 16, 8
IMAGENET = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
OWN = torch.tensor([0.3, 0.4, 0.35]).view(-1, 1, 1), torch.tensor([0.3, 0.2, 0.25]).view(-1, 1, 1)


class Net(nn.Module):
    def __init__(self, drop: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.bn = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.drop, self.fc = nn.Dropout(drop), nn.Linear(16 * SIZE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.bn(self.conv1(x)))))
        return self.fc(self.drop(x.flatten(1)))


def normalize(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (x - mean) / std


SGD = partial(torch.optim.SGD, lr=0.05)
ONE, THREE = LocalTraining(rate=0.05), LocalTraining(rate=0.05, steps=3, batch_size=2)
SMALL, SMALL_THREE = LocalTraining(rate=1e-3), LocalTraining(rate=1e-3, steps=3, batch_size=2)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One round of a client, what is declared of it, and words of the true reason."""

    name: str
    cause: str
    declared: LocalTraining = ONE
    feed: Callable[[Tensor], Tensor] = lambda x: x
    optimizer: Callable[..., torch.optim.Optimizer] = SGD
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    relabel: Callable[[Tensor], Tensor] = lambda y: y
    size: int = 6  # of a minibatch
    epochs: int = 1
    shuffles: bool = False
    trains: bool = False  # model.train()
    net: dict[str, Any] = field(default_factory=dict)
    sent: Callable[[Tensor, Tensor], Tensor] = lambda before, after: before - after
    data: dict[str, Any] = field(default_factory=dict)  # options of the client's own pictures
    slow: bool = False

    def run(self) -> tuple[nn.Module, dict[str, Tensor]]:
        """The model as sent, and what the client sent back."""
        torch.manual_seed(0)
        model = Net(**self.net)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        client = copy.deepcopy(model).train(self.trains)
        images, labels = self.feed(dataset(**self.data).images[:6]), self.relabel(dataset().targets[:6].argmax(1))
        optimizer = self.optimizer(client.parameters())
        for _ in range(self.epochs):
            order = torch.randperm(6) if self.shuffles else torch.arange(6)
            for rows in order.split(self.size):
                optimizer.zero_grad()
                self.loss(client(images[rows]), labels[rows]).backward()
                optimizer.step()
        return model, {name: self.sent(before[name], p.detach()) for name, p in client.named_parameters()}


@cache
def _dataset(options: tuple[tuple[str, Any], ...]) -> Dataset:
    return load("photos", **dict(options))


def dataset(**options: Any) -> Dataset:
    return _dataset(tuple(sorted({"size": SIZE, "count": 48, **options}.items())))


def adam(rate: float = 1e-3) -> Callable[..., torch.optim.Optimizer]:
    return partial(torch.optim.Adam, lr=rate)


LOOPS = (
    Loop(name="imagenet in the transform", cause="constants of imagenet", feed=lambda x: normalize(x, *IMAGENET)),
    Loop(name="constants of the data", cause="constants of the data",
         feed=lambda x: normalize(x, *(torch.tensor(c).view(-1, 1, 1) for c in (dataset().mean, dataset().std)))),
    Loop(name="-1 to 1", cause="from -1 to 1", feed=lambda x: 2 * x - 1),
    Loop(name="0 to 255", cause="from 0 to 255", feed=lambda x: 255 * x, optimizer=partial(torch.optim.SGD, lr=1e-4),
         declared=LocalTraining(rate=1e-4)),
    Loop(name="inverted", cause="1 - pixels", feed=lambda x: 1 - x),
    Loop(name="shuffled", cause="shuffled", declared=THREE, size=2, shuffles=True),
    Loop(name="in minibatches of 2", cause="3 steps on minibatches of 2", size=2),
    Loop(name="in minibatches of 1", cause="6 steps on minibatches of 1", size=1),
    Loop(name="adam", cause="optimizer was adam", declared=SMALL, optimizer=adam()),
    Loop(name="adam taken for a gradient", cause="optimizer was adam", declared=LocalTraining(), optimizer=adam()),
    Loop(name="adam in minibatches", cause="optimizer was adam", declared=SMALL_THREE, optimizer=adam(), size=2),
    Loop(name="adam at another rate", cause="optimizer was adam, its rate 0.003", declared=SMALL_THREE,
         optimizer=adam(3e-3), size=2, slow=True),
    Loop(name="adamw", cause="optimizer was adamw", declared=SMALL_THREE, size=2,
         optimizer=partial(torch.optim.AdamW, lr=1e-3), slow=True),
    Loop(name="rmsprop", cause="optimizer was rmsprop", declared=SMALL_THREE, size=2,
         optimizer=partial(torch.optim.RMSprop, lr=1e-3)),
    Loop(name="adagrad", cause="optimizer was adagrad", declared=SMALL_THREE, size=2,
         optimizer=partial(torch.optim.Adagrad, lr=1e-3)),
    Loop(name="sgd taken for adam", cause="optimizer was sgd", declared=LocalTraining(rate=0.05, optimizer="adam")),
    Loop(name="momentum", cause="momentum was 0.9", declared=THREE, size=2,
         optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
    Loop(name="nesterov", cause="Nesterov", declared=THREE, size=2,
         optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True)),
    Loop(name="momentum 0.8", cause="momentum was 0.8", declared=THREE, size=2,
         optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.8)),
    Loop(name="weight decay", cause="weight decay was 0.001", declared=THREE, size=2,
         optimizer=partial(torch.optim.SGD, lr=0.05, weight_decay=1e-3)),
    Loop(name="odd weight decay", cause="weight decay was 0.003", declared=THREE, size=2,
         optimizer=partial(torch.optim.SGD, lr=0.05, weight_decay=3e-3)),
    Loop(name="label smoothing", cause="smoothed by 0.1", loss=partial(F.cross_entropy, label_smoothing=0.1)),
    Loop(name="odd label smoothing", cause="smoothed by 0.07", loss=partial(F.cross_entropy, label_smoothing=0.07),
         declared=THREE, size=2),
    Loop(name="sum of the losses", cause="multiplied by 6", loss=partial(F.cross_entropy, reduction="sum")),
    Loop(name="another rate", cause="multiplied by 0.4", optimizer=partial(torch.optim.SGD, lr=0.02)),
    Loop(name="another rate in minibatches", cause="rate was 0.02", optimizer=partial(torch.optim.SGD, lr=0.02),
         declared=THREE, size=2),
    Loop(name="class weights", cause="weighed the classes",
         loss=partial(F.cross_entropy, weight=torch.linspace(0.5, 2, CLASSES))),
    Loop(name="five epochs", cause="5 local steps", epochs=5),
    Loop(name="seven epochs declared as five steps", cause="2 local steps", epochs=2,
         declared=LocalTraining(rate=0.05, steps=5)),
    Loop(name="sign", cause="sign is flipped", sent=lambda before, after: after - before),
    Loop(name="weights in place", cause="weights were saved", sent=lambda before, after: after),
    Loop(name="labels from one", cause="labels were one higher", relabel=lambda y: (y + 1) % CLASSES),
    Loop(name="labels in another order", cause="labels differ", relabel=lambda y: y[torch.tensor([3, 1, 4, 0, 2, 5])]),
    Loop(name="classes reversed", cause="opposite order", relabel=lambda y: CLASSES - 1 - y),
    Loop(name="batchnorm in train mode", cause="mode batch", trains=True, net={"norm": True}),
    Loop(name="batchnorm in eval mode", cause="mode eval", net={"norm": True},
         declared=LocalTraining(rate=0.05, batchnorm="batch")),
    Loop(name="own constants", cause="(fitted)", feed=lambda x: normalize(x, *OWN), slow=True),
    Loop(name="dropout", cause="dropout was on", trains=True, net={"drop": 0.5}, slow=True),
    Loop(name="dropout in minibatches", cause="dropout was on", trains=True, net={"drop": 0.3}, size=2,
         declared=THREE, slow=True),
    Loop(name="shuffled, not declared", cause="minibatches of 2, shuffled", size=2, shuffles=True, slow=True),
    Loop(name="another resize", cause="another resize", slow=True, feed=lambda x: F.interpolate(
        F.interpolate(x, size=14, mode="bilinear", antialias=True), size=SIZE, mode="bilinear", antialias=True)),
    Loop(name="imagenet and shuffled", cause="constants of imagenet, and the client shuffled", declared=THREE, size=2,
         shuffles=True, feed=lambda x: normalize(x, *IMAGENET), slow=True),
    Loop(name="imagenet and adam", cause="its optimizer was adam, and the client normalized with the constants of "
         "imagenet", declared=SMALL, optimizer=adam(), feed=lambda x: normalize(x, *IMAGENET), slow=True),
    Loop(name="batchnorm and adam", cause="adam", trains=True, net={"norm": True}, declared=SMALL, optimizer=adam(),
         slow=True),
)  # fmt: skip
