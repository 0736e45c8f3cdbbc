"""A site: a training loop of its own in plain torch, and one line for the defense.

The site chooses it, by GRADVEIL_DEFENSE in the environment of its SuperNode; the server has no say.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import gradveil.flower
from veiled_digits.task import RATE, make_model, pictures_of

app = ClientApp(mods=[gradveil.flower.veil(os.environ.get("GRADVEIL_DEFENSE", "none"), trainable=make_model())])


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    site = int(context.node_config["partition-id"])
    model = make_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    defense = gradveil.flower.defense_of(context)  # defenses of pictures act here; the mod makes sure that they do
    images, labels = defense.batch(defense.data(pictures_of(site)))
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    metrics = {"num-examples": len(labels), "loss": loss.item(), "client": site}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)
