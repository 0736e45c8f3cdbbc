"""How close pictures are to held-out truth, before and after a network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.metrics.ssim import structural_similarity


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Means over the held-out pictures. `of` names what stands before and what after."""

    of: str
    psnr_before: float
    psnr: float
    ssim_before: float
    ssim: float

    def to_metadata(self) -> dict[str, str]:
        """For the metadata of a file."""
        numbers = {name: f"{value:.4f}" for name, value in vars(self).items() if name != "of"}
        return {"figures": self.of, **numbers}

    def __str__(self) -> str:
        before, after = self.of.split(", ")
        return (
            f"{before}: {self.psnr_before:.2f} dB, SSIM {self.ssim_before:.3f}; "
            f"{after}: {self.psnr:.2f} dB, SSIM {self.ssim:.3f}"
        )


def figures_of(truth: Tensor, *, before: Tensor, after: Tensor, of: str) -> Figures:
    return Figures(
        of=of,
        psnr_before=peak_signal_to_noise(before, truth).mean().item(),
        psnr=peak_signal_to_noise(after, truth).mean().item(),
        ssim_before=structural_similarity(before, truth).mean().item(),
        ssim=structural_similarity(after, truth).mean().item(),
    )
