"""A client whose optimizer lives from round to round: it cannot be replayed, and why is named."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from pictures import dataset, rows

from gradveil.capture import Capture
from gradveil.capture.preflight import model_of
from gradveil.capture.replay import compare
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import Choice
from gradveil.core.local_training import LocalTraining
from gradveil.doctor.replay import look_at_replay
from gradveil.doctor.subject import Subject
from gradveil.models import MODELS

Made = Callable[..., torch.optim.Optimizer]
TRAININGS: dict[str, tuple[LocalTraining, Made]] = {
    "adam": (LocalTraining(optimizer="adam", rate=1e-3, steps=2), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "rmsprop": (LocalTraining(optimizer="rmsprop", rate=1e-3, steps=2), lambda p: torch.optim.RMSprop(p, lr=1e-3)),
    "momentum": (LocalTraining(rate=0.02, momentum=0.9, steps=2), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
}


def play(training: LocalTraining, make: Made, keeps: bool) -> Capture:
    """The third round of a client in plain torch; others move the model between the rounds."""
    data, batch = dataset(), rows(0, 4)
    model = MODELS["lenet"](classes=8, shape=data.shape, seed=0, mean=data.mean, std=data.std).eval()
    optimizer, before = make(model.parameters()), copy.deepcopy(model.state_dict())
    torch.manual_seed(1)
    for number in range(3):
        if not keeps:
            optimizer = make(model.parameters())
        model.load_state_dict(before)
        for _ in range(training.steps):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.images), batch.labels.argmax(1)).backward()
            optimizer.step()
        after = {name: p.detach().clone() for name, p in model.named_parameters()}
        if number < 2:
            others = {n: 1e-3 * torch.randn_like(w) if n in after else 0 * w for n, w in before.items()}
            before = {n: (w + after[n]) / 2 + others[n] if n in after else w for n, w in before.items()}
    update = {name: before[name] - w for name, w in after.items()}
    return Capture(
        weights=before, updates={"client": update}, round=2, training=training, examples={"client": 4},
        shape=data.shape, classes=8, normalization=(tuple(data.mean), tuple(data.std)), model="lenet",
    )  # fmt: skip


@pytest.mark.parametrize("name", TRAININGS)
def test_a_kept_state_cannot_be_replayed_and_is_named(name: str) -> None:
    for keeps, expected in ((True, 1), (False, 0)):
        capture = play(*TRAININGS[name], keeps=keeps)
        scenario = ScenarioConfig(capture="round.safetensors", data="photos", batch_size=4)
        config = AuditConfig(scenario=scenario, defense={"none": Choice(name="none")})
        model = model_of(capture)
        subject = Subject(config=config, by_budget={}, model=model, dataset=dataset(), training=capture.training,
                          capture=capture, until=time.monotonic() + 1)  # fmt: skip
        found = [one for one in look_at_replay(subject) if "from round to round cannot be replayed" in one.what]
        assert len(found) == expected
        status = compare(capture, model, "client", rows(0, 4)).status
        assert (status == "reproduced") is not keeps
