"""Peak signal-to-noise ratio of pictures in [0, 1]."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images

EXACT = 200.0  # dB given to an exact match: far above float32 rounding (about 150 dB), and still a number

PSNR = Facts(
    name="psnr",
    label="PSNR",
    unit="dB",
    columns=("worst", "most", "median", "mean"),
    digits=1,
    tolerance=0.1,
    exact=60.0,  # less than half a step of 8 bits
)


@PSNR.builds
def psnr() -> Metric:
    """Peak signal-to-noise ratio in dB against a peak of 1; an exact match scores 200 dB."""
    return PSNR.metric(peak_signal_to_noise)


def peak_signal_to_noise(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """-10 log10 of the mean squared error, at most `EXACT`. In float64: 1e-6 dB is within reach of rounding."""
    error = (got.double() - truth.double()).square().flatten(-3).mean(-1)
    return -10 * error.clamp_min(10 ** (-EXACT / 10)).log10()
