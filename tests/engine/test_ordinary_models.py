"""Every attack by gradients runs on models as people write them, on each back end, and the client is the attacker's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ordinary_models import CLASSES, ORDINARY, SIDE, ordinary
from torch import Tensor, nn

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Backend, Compute
from gradveil.core.defense import Defense
from gradveil.core.formula import ATTENTION
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.backend import choose
from gradveil.engine.distance import Cosine
from gradveil.engine.matcher import OneTrial

ATTACK = invertgrad(steps=2, restarts=1, tv=1e-3)
CLIENTS, EXAMPLES = 2, 2
QUICK = (  # of each kind of layer one; all others run with `more`
    "function, class token", "layer, mean of tokens, mask", "encoder, pre-norm, mean of tokens", "ConvNeXt",
    "EfficientNet", "MobileNetV3", "RegNet", "DenseNet", "U-Net", "MLP-Mixer", "LSTM", "GRU cell in a loop",
    "InstanceNorm", "in-place residual", "Swin windows", "einsum attention, layer scale", "ShuffleNet",
    "Inception, local response norm", "pixel shuffle, PReLU", "gated convolution, Mish", "dilated pyramid",
    "weight norm, orthogonal", "transposed convolutions",
)  # fmt: skip
NO_RULE = ("LSTM", "GRU", "LSTM, both ways, two layers")
slowly = pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap over a layer without a rule of its own


def round_of(model: nn.Module, mode: Any = "eval", steps: int = 1) -> tuple[Observation, Truth]:
    count, rng = CLIENTS * EXAMPLES, torch.Generator().manual_seed(1)
    pictures = torch.rand(CLIENTS, EXAMPLES, 3, SIDE, SIDE, generator=rng, dtype=torch.float64)
    labels = F.one_hot(torch.arange(count), CLASSES).double().view(CLIENTS, EXAMPLES, CLASSES)
    scenario = Scenario(
        name="ordinary",
        model=model,
        private=Batch(*(x.to(next(model.parameters())) for x in (pictures, labels))),
        names=("a", "b"),
        training=LocalTraining(steps=steps, rate=0.01 if steps > 1 else 1.0, batchnorm=mode),
        threat=ThreatModel(),
    )
    return observe(scenario, Defense(), ATTACK, Seed(0))


def try_all(name: str, mode: str, steps: int, backend: Backend) -> None:
    seen, truth = round_of(ordinary(name), mode, steps)
    got = ATTACK.reconstruct(seen, Seed(0), Compute(backend=backend))
    assert got.loss.isfinite().all()
    assert got.images.isfinite().all()
    one, update = OneTrial.of(seen, Cosine()), {key: u[0] for key, u in seen.update.items()}
    assert one(truth.private.images[0], truth.private.labels[0], update).abs() < 1e-5  # it runs what the client ran


def test_there_are_forty() -> None:
    assert len(ORDINARY) >= 40
    assert len(set(QUICK) & set(ORDINARY)) == len(QUICK) >= 15


@slowly
@pytest.mark.parametrize("name", QUICK)
def test_no_trial_fails(name: str) -> None:
    for mode, steps in (("eval", 1), ("batch", 1), ("eval", 3), ("batch", 3)):
        try_all(name, mode, steps, "auto" if steps == 1 else "loop")


@slowly
@pytest.mark.more
@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("backend", ["loop", "vmap", "auto"])
@pytest.mark.parametrize("mode", ["eval", "batch", "batch-shared"])
@pytest.mark.parametrize("steps", [1, 3])
def test_no_trial_fails_on_any_back_end(name: str, mode: str, steps: int, backend: Backend) -> None:
    if name in NO_RULE and backend == "vmap":
        pytest.skip("torch.func has no rule for them: the automatic choice is the loop")
    try_all(name, mode, steps, backend)


@slowly
@pytest.mark.parametrize("name", [name for name in ORDINARY if name.startswith(("function", "layer", "encoder"))])
def test_back_ends_agree_on_attention(name: str) -> None:
    seen, _ = round_of(ordinary(name).double())
    fed = torch.rand(CLIENTS, EXAMPLES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    value, slope = choose(seen, Cosine(), "loop").matcher(seen, Cosine())(fed)
    for backend in ("vmap", "auto"):
        got = choose(seen, Cosine(), backend).matcher(seen, Cosine())(fed)
        assert torch.allclose(got[0], value, rtol=1e-9)
        assert (got[1] - slope).norm() < 1e-9 * slope.norm()


def test_the_sweep_walks_attention_by_function() -> None:
    seen, _ = round_of(ordinary("function, class token"))
    assert choose(seen, Cosine(), "auto").name == "sweep"
    seen, _ = round_of(ordinary("layer, class token"))
    assert choose(seen, Cosine(), "auto").name == "vmap"


class Breaks(nn.Module):
    """It raises where it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.breaks = nn.Linear(2, 2), False

    def forward(self, x: Tensor) -> Tensor:
        assert not any(is_on() for is_on, _ in ATTENTION.switches)
        if self.breaks:
            raise ValueError("it breaks")
        return self.fc(x)


def test_fused_kernels_are_back_afterwards() -> None:
    before = [is_on() for is_on, _ in ATTENTION.switches]
    assert any(before)
    model = in_client_mode(Breaks(), LocalTraining())
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), in_client_mode(model, LocalTraining())):
        one(torch.zeros(1, 2))
        vars(one)["breaks"] = True
        with pytest.raises(ValueError, match="breaks"):
            one(torch.zeros(1, 2))
        assert [is_on() for is_on, _ in ATTENTION.switches] == before
