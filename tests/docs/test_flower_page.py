"""docs/flower.md: how to compute what the noise is worth, run as it stands there."""

from __future__ import annotations

from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.dp import epsilon

PAGE = ROOT / "docs/flower.md"


def test_the_account_of_a_client_of_your_own() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")
    session: dict[str, Any] = {"__name__": "reader"}
    (block,) = (block for block in blocks(PAGE) if "budget_of(" in block.text)
    execute(block, PAGE, session)
    by_hand = epsilon(noise=2.0, sampling_rate=20 / 600, rounds=50 * 30, delta=1e-5)
    assert session["budget"].sampled.rdp == by_hand.value
