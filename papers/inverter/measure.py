"""PSNR and the original's rank in the gallery, beside a blank and the class mean, with bootstrap intervals."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from public import CifarSplit
from torch import Tensor

from gradveil.metrics.nearest import rivals_ahead
from gradveil.metrics.ssim import structural_similarity

RESAMPLES = 10_000


def psnr(images: Tensor, truth: Tensor) -> Tensor:
    """Of each picture, in dB."""
    return -10 * (images.to(truth) - truth).double().square().flatten(1).mean(1).clamp_min(1e-12).log10()


def ranks_of(images: Tensor, split: CifarSplit) -> Tensor:
    """Of the original among it and the gallery, 1 is the nearest."""
    flat = (x.flatten(1).to(split.gallery) for x in (images, split.victims.images, split.gallery))
    return rivals_ahead(*flat) + 1


def compare(images: Tensor, split: CifarSplit, rank: Callable[[Tensor, CifarSplit], Tensor]) -> dict[str, Any]:
    """Means and medians with 95 % intervals, alone and as differences from the blank and the class mean."""
    truth = split.victims.images
    images = images.to(truth).nan_to_num(0.5, 0.5, 0.5).clamp(0, 1)
    own, ranks = psnr(images, truth), rank(images, split)
    found: dict[str, Any] = {
        "victims": len(truth), "psnr": interval(own), "rank": interval(ranks, np.median),
        "ssim": round(float(structural_similarity(images.cpu().float(), truth.cpu().float()).mean()), 4),
        "first": int((ranks == 1).sum()), "top5": int((ranks <= 5).sum()),
    }  # fmt: skip
    for name, other in (("blank", split.blank.expand_as(truth)), ("class mean", split.class_means)):
        theirs, theirs_rank = psnr(other, truth), rank(other, split)
        found[name] = {"psnr": round(float(theirs.mean()), 3), "rank": float(theirs_rank.median())}
        found[name] |= {"psnr over": interval(own - theirs), "rank over": paired_medians(ranks, theirs_rank)}
    return found


def interval(values: Tensor, of: Callable[..., Any] = np.mean) -> dict[str, float]:
    """By the percentile bootstrap over victims."""
    plain = values.double().cpu().numpy()
    low, high = np.quantile(of(plain[draws(len(plain))], axis=1), [0.025, 0.975])
    return {"value": round(float(of(plain)), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def paired_medians(one: Tensor, other: Tensor) -> dict[str, float]:
    """Difference of the medians, the same victims drawn for both."""
    a, b = (x.double().cpu().numpy() for x in (one, other))
    at = draws(len(a))
    low, high = np.quantile(np.median(a[at], axis=1) - np.median(b[at], axis=1), [0.025, 0.975])
    return {"value": float(np.median(a) - np.median(b)), "low": float(low), "high": float(high)}


def draws(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, (RESAMPLES, count))


def describe_machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"device": device, "name": name, "torch": torch.__version__, "threads": torch.get_num_threads()}
