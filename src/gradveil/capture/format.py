"""What a server keeps of one round: the model as sent and the updates as they came, in one safetensors file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from gradveil.core.scenario import LocalTraining
from gradveil.core.target import Target

KIND, DOCUMENT, HASH = "gradveil.kind", "gradveil.capture", "gradveil.sha256"  # keys of the file's metadata
CAPTURE, VERSION = "capture", 2
WEIGHTS, UPDATES, STATISTICS, LABELS = "weights", "updates", "statistics", "labels"
CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
TENSOR = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,299}")
FEDSGD = LocalTraining()
Normalization = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One round as the server saw it. What a client says of itself (`defense`, `metrics`) is never taken as proof."""

    weights: Mapping[str, Tensor]  # the model as sent: parameters and buffers, by their name in its state_dict
    updates: Mapping[str, Mapping[str, Tensor]]  # client -> w_sent - w_after (FedSGD: the gradient), by parameter
    statistics: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # client -> buffers as sent back
    round: int
    training: LocalTraining
    examples: Mapping[str, int]  # client -> number of pictures; 0: not told
    shape: tuple[int, int, int]
    classes: int
    normalization: Normalization | None  # mean and deviation inside the model's first layer
    model: str = ""  # name in MODELS, or "" for a user's own
    defense: str = ""  # as on the command line
    labels: Mapping[str, Tensor] = field(default_factory=dict)  # [example, ...] or, soft, [example, class, ...]
    aggregate: int = 1  # clients whose updates are summed, as a mean, in each of `updates`
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # client -> what came with the reply
    producer: str = ""
    target: Target | None = None  # what a picture is answered with; None: one of the classes, or several
    declared: Mapping[str, str] = field(default_factory=dict)  # settings that what was seen contradicts, as declared

    @property
    def answer(self) -> Target:
        """What a picture is answered with."""
        several = self.training.loss == "binary-cross-entropy"
        return self.target or Target(shape=(self.classes,), kind="several" if several else "classes")

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.updates)

    def tensors(self) -> dict[str, Tensor]:
        """All of them by their name in the file."""
        found = {f"{WEIGHTS}/{name}": tensor for name, tensor in self.weights.items()}
        for kind, of_clients in ((UPDATES, self.updates), (STATISTICS, self.statistics)):
            for client, tensors in of_clients.items():
                found |= {f"{kind}/{client}/{name}": tensor for name, tensor in tensors.items()}
        return found | {f"{LABELS}/{client}": tensor for client, tensor in self.labels.items()}

    @staticmethod
    def load(path: str | Path) -> Capture:
        """The capture in the file `path`; ConfigError if it is none, or damaged."""
        from gradveil.capture.read import load

        return load(path)

    def save(self, path: str | Path) -> Path:
        """Write it to the file `path`, readable by its owner alone, whole or not at all."""
        from gradveil.capture.read import save

        return save(path, self)

    @staticmethod
    def simulate(
        *,
        model: str = "lenet",
        dataset: str = "photos",
        options: Mapping[str, Any] | None = None,
        clients: int = 1,
        examples: int = 1,
        training: LocalTraining = FEDSGD,
        labels: bool = False,
        seed: int = 0,
    ) -> Capture:
        """The first round of clients that hold built-in pictures, to try things out.

        Args:
            model: Name in `MODELS`.
            dataset: Name in `DATASETS`.
            options: Options of the data set, such as `{"size": 16}`.
            clients: Number of clients.
            examples: Pictures per client.
            training: What a client does in the round (default: one step of FedSGD).
            labels: Whether the file also holds the labels.
            seed: Seed of the model's weights and of whatever the clients draw.
        """
        from gradveil.capture.scenario import simulate

        return simulate(
            model=model,
            dataset=dataset,
            options=options,
            clients=clients,
            examples=examples,
            training=training,
            labels=labels,
            seed=seed,
        )


def fingerprint(document: str, digests: Mapping[str, str]) -> str:
    """SHA-256 over the JSON text and, in order of names, a line for each tensor: `name type shape sha256-of-bytes`.

    `digests` gives the part of each line after the name.
    """
    whole = hashlib.sha256(document.encode())
    for name in sorted(digests):
        whole.update(f"\n{name} {digests[name]}".encode())
    return whole.hexdigest()


def digest(dtype: str, shape: tuple[int, ...], content: bytes | bytearray | memoryview) -> str:
    """One tensor's line without its name, such as `F32 3x32x32 9f86d0...`."""
    return f"{dtype} {'x'.join(map(str, shape))} {hashlib.sha256(content).hexdigest()}"
