"""Whether the scores know a true picture when they are shown it in the place of a reconstruction.

A metric, a matching or a gallery that fails where a defense is audited makes everything there look protected.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge, score
from gradveil.core.attack import Reconstruction
from gradveil.core.observation import Truth
from gradveil.metrics import align
from gradveil.metrics.psnr import PSNR
from gradveil.metrics.retrieval import RETRIEVAL

LEAST = {PSNR.name: PSNR.exact or 0.0, RETRIEVAL.name: 1.0}  # of a true picture


def share_known(cell: Cell, got: Reconstruction, truth: Truth, judge: Judge) -> Tensor:
    """Of each client's true pictures, shown as if they were reconstructed: found, and as near as can be. [client]"""
    metrics = [metric for metric in judge.metrics if metric.name in LEAST]
    private = truth.private.images.float().cpu()
    shown = align(private.clamp(0, 1), private).images
    found = score(cell, got, shown, replace(truth, fed=truth.private), judge._replace(metrics=metrics)).scores
    known = torch.ones(private.shape[:2], dtype=torch.bool)
    for name in LEAST.keys() & found.keys():
        known &= found[name].cpu() >= LEAST[name]  # not so where it is not a number
    return known.double().mean(1)
