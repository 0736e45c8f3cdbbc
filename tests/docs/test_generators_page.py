"""docs/generators.md does what it says: its commands and its code run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.cli import main
from gradveil.generators.autoencoder import load_autoencoder
from gradveil.generators.enhancer import load_enhancer

PAGE = ROOT / "docs/generators.md"


def test_the_page_from_start_to_finish(desk: Path) -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, PAGE, session)
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*arguments, "--device", "cpu"])
    assert load_autoencoder(desk / "autoencoder.safetensors").latent == (8, 4, 4)
    assert load_enhancer(desk / "enhancer.safetensors").file.endswith("enhancer.safetensors")
    assert session["figures"].psnr_before > 0
