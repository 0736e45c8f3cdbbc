"""`gradveil bench engine`: one attack step, all victims at once, against the peers' way in the same run."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.client import in_client_mode, loss_of
from gradveil.core.compute import Backend, Compute, Precision
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed, uniform
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.backend import choose
from gradveil.engine.descent import graph_steps
from gradveil.engine.inversion import Inversion
from gradveil.engine.priors.prior import TotalVariation
from gradveil.models import MODELS

TV = 1e-2


def run(
    *, model: str, victims: int, steps: int, device: str, precision: Precision, backend: Backend = "auto"
) -> dict[str, Any]:
    """Milliseconds per picture and step of the engine and of the peers' way, and their ratio."""
    compute = Compute(device=device, precision=precision, backend=backend)
    seen = victims_of(model, victims, compute)
    name, ours = engine_seconds(seen, steps, compute)
    theirs = peer_seconds(seen, min(steps, 20), device)
    return {
        "model": model,
        "victims": victims,
        "steps": steps,
        "backend": name,
        "precision": precision,
        "engine_ms": 1e3 * ours / victims,
        "peer_ms": 1e3 * theirs,
        "ratio": theirs * victims / ours,
        **machine(device),
    }


def peer_seconds(seen: Observation, steps: int, device: str) -> float:
    """The peers' step in plain float32, with as many threads as serve it best: small models lose by a second one."""
    step, threads = peer_step(seen, 0, TV), torch.get_num_threads()
    times = []
    with Compute(device=device).active():
        for count in {1, threads} if device == "cpu" else {threads}:
            torch.set_num_threads(count)
            times.append(seconds_of(step, steps, device))
    torch.set_num_threads(threads)
    return min(times)


def engine_seconds(seen: Observation, steps: int, compute: Compute) -> tuple[str, float]:
    """The back end, and the time of one step of all victims."""
    if compute.device.startswith("cuda"):
        with compute.active():
            name, step = engine_step(invertgrad(steps=10_000, tv=TV, restarts=1), seen, compute)
            return name, seconds_of(step, steps, compute.device)
    name, few = whole_run(seen, steps, compute)  # a CPU runs chunks side by side: time whole attacks
    _, many = whole_run(seen, 2 * steps, compute)
    return name, (many - few) / steps  # set-up cancels


def whole_run(seen: Observation, steps: int, compute: Compute) -> tuple[str, float]:
    begin = time.perf_counter()
    got = invertgrad(steps=steps, tv=TV, restarts=1).reconstruct(seen, Seed(0), compute)
    return got.backend, time.perf_counter() - begin


def victims_of(model: str, victims: int, compute: Compute) -> Observation:
    """Updates of random pictures under an untrained model of 100 classes: speed does not ask what they show."""
    net = MODELS[model](classes=100, shape=(3, 32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    net = net.to(compute.device, compute.dtype)
    like = torch.zeros((), device=compute.device, dtype=compute.dtype)
    rng = Seed(0).at("bench").rng()
    images = uniform((victims, 1, 3, 32, 32), rng, like)
    labels = torch.eye(100).to(like)[torch.arange(victims) % 100][:, None]
    names = tuple(f"c{i:04d}" for i in range(victims))
    scenario = Scenario(name="bench", model=net, private=Batch(images, labels), names=names)
    return observe(scenario, Defense(), invertgrad(), Seed(0))[0]


def engine_step(attack: Inversion, seen: Observation, compute: Compute) -> tuple[str, Callable[[], Any]]:
    """The engine's own step on all victims as a CUDA graph, ready to be timed."""
    backend = choose(seen, attack.distance, compute.backend)
    descent, start = attack.prepare(seen, Seed(0), backend, [(i, 0) for i in range(len(seen.names))])
    return backend.name, graph_steps(descent, descent.begin(start))


def seconds_of(step: Callable[[], Any], steps: int, device: str) -> float:
    """Median time of a step, after three for warming up."""
    times = []
    for i in range(steps + 3):
        begin = time.perf_counter()
        step()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        if i >= 3:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"device": device, "machine": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def peer_step(seen: Observation, client: int, tv: float) -> Callable[[], None]:
    """One optimizer step of Inverting Gradients on one victim, as a closure to be timed.

    The last gradient is taken by the pixels alone; a plain `backward()`, which others call, would cost more.
    """
    assert seen.labels is not None
    model = in_client_mode(seen.model, seen.training).requires_grad_(True)
    parameters = dict(model.named_parameters())
    target = [seen.update[name][client] for name in parameters]
    labels = seen.labels[client]
    pixels = torch.randn(seen.examples, *seen.shape, dtype=labels.dtype, device=labels.device).requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=0.1)

    def step() -> None:
        loss = loss_of(model(pixels), labels, seen.training.loss)
        gradient = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        total = _cosine(gradient, target) + tv * TotalVariation().of(pixels[None]).sum()
        (pixels.grad,) = torch.autograd.grad(total, pixels)
        pixels.grad.sign_()
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(-2, 2)

    return step


def _cosine(gradient: tuple[Tensor, ...], target: list[Tensor]) -> Tensor:
    cross = sum(((g * t).sum() for g, t in zip(gradient, target, strict=True)), target[0].new_zeros(()))
    length = sum((g.square().sum() for g in gradient), target[0].new_zeros(()))
    seen = sum((t.square().sum() for t in target), target[0].new_zeros(()))
    return 1 - cross / (length.sqrt() * seen.sqrt())
