"""For every test: shapes checked at run time, one thread, the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

# Left out: modules whose annotations name protocols, which beartype cannot check unless they are `runtime_checkable`
# (engine, descent, matcher, backend, optimizer, sweep, audit); models, whose `forward` torch.fx calls with proxies
# instead of tensors; config, which checks by itself; psnr and retrieval, which tests also give single pictures and
# whole numbers (tests/metrics/test_catalogue.py checks their shapes).
CHECKED = (
    "gradveil.core.client",
    "gradveil.core.server",
    "gradveil.core.scenario",
    "gradveil.core.seeds",
    "gradveil.audit.trial",
    "gradveil.metrics.align",
    "gradveil.metrics.lpips",
    "gradveil.metrics.ssim",
    "gradveil.data",
    "gradveil.defenses",
    "gradveil.core.attack",
    "gradveil.attacks.linear",
    "gradveil.engine.chunks",
    "gradveil.engine.distance",
    "gradveil.engine.finish",
    "gradveil.engine.labels",
    "gradveil.engine.lbfgs",
    "gradveil.engine.chunks",
    "gradveil.engine.priors.prior",
    "gradveil.engine.finish",
    "gradveil.engine.spaces.space",
)
install_import_hook(CHECKED, "beartype.beartype")


def pytest_configure(config: pytest.Config) -> None:
    # torch's own: the first `torch.func.jvp` of a process scripts its decompositions
    config.addinivalue_line("filterwarnings", "ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def one_thread_and_one_seed() -> Iterator[None]:
    """Small products gain nothing from a second thread. A test that wants two says so itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def photographs_are_cropped_once() -> Iterator[None]:
    """All of the built-in pictures take two seconds, and every audit that names no data asks for them."""
    module = import_module("gradveil.data.photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_picture", cache(module._picture))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository, for tests that can use it."""
    folder = Path(__file__).resolve().parents[2] / "shared/data"
    if not folder.is_dir():
        pytest.skip("shared/data is not here")
    return folder
