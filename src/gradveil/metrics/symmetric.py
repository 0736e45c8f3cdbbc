"""Identification under symmetries: pictures that are mirrored, turned, shifted, negated or of another contrast.

Two pictures are as alike as their correlation is, at its best over flips, quarter turns (of square pictures) and
circular shifts, without its sign. The mean of each channel does not count. Pictures are shrunk to `SIDE` pixels first,
and all shifts are one Fourier transform.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Facts, Lookup, Metric
from gradveil.core.types import Images
from gradveil.metrics.psnr import EXACT, PSNR
from gradveil.metrics.retrieval import Gallery, check_gallery, check_sizes

SIDE = 16  # pixels of the longer side
ROUNDING = 1e-5  # of a correlation in float32; what is nearer counts for the rival
FLAT = 1e-9  # length of what is left of a picture that shows nothing
AT_ONCE = 2**22  # numbers of a spectrum; bounds the memory, not the result

Flat = Float[Tensor, "picture channel height width"]

RETRIEVAL_SYMMETRIC = Facts(
    name="retrieval-symmetric",
    label="Under symmetries",
    kind="rate",
    lookup=Lookup(top=1, by="symmetry"),
    as_fed=False,
)
PSNR_SYMMETRIC = replace(PSNR, name="psnr-symmetric", label="PSNR under symmetries", columns=("worst",), as_fed=False)


@RETRIEVAL_SYMMETRIC.builds
def retrieval_symmetric(*, gallery: Gallery) -> Metric:
    """As `retrieval`, mirrored, turned, shifted, negated or in another contrast, all pictures alike."""
    check_gallery(gallery)
    search = SymmetricSearch(gallery)
    return RETRIEVAL_SYMMETRIC.metric(
        search.find, among=lambda other: retrieval_symmetric(gallery=other), floors={PSNR_SYMMETRIC.name: search.floor}
    )


@PSNR_SYMMETRIC.builds
def psnr_symmetric() -> Metric:
    """PSNR after the best flip, turn and shift, with gain and offset fitted; at most 16 pixels a side are compared."""
    return PSNR_SYMMETRIC.metric(lambda got, truth: to_decibels(truth, likeness(got, truth)))


class Likeness(NamedTuple):
    """Correlations, 0 to 1, one for each picture."""

    own: Tensor  # with the original
    rival: Tensor  # with the picture of the gallery that is most alike, copies of the original left out


@dataclass(eq=False)
class SymmetricSearch:
    """A gallery, and how alike reconstructions are to it. What was compared last is remembered, for the next score."""

    gallery: Tensor = field(repr=False)
    last: tuple[Tensor, Tensor, Likeness] | None = field(default=None, repr=False)

    @cached_property
    def pictures(self) -> Tensor:
        return unit(self.gallery)

    @cached_property
    def spectra(self) -> Tensor:
        """[frequency, channel, other], conjugate."""
        return torch.fft.rfft2(self.pictures.float()).flatten(-2).permute(2, 1, 0).conj().resolve_conj().contiguous()

    def find(self, got: Images, truth: Images) -> Float[Tensor, "*client example"]:
        """1 where the original is more alike than the whole gallery; a tie counts for the rival."""
        own, rival = self.compare(got, truth)
        return torch.where(own.isnan(), own, (own > rival + ROUNDING).to(own))

    def floor(self, got: Images, truth: Images) -> Float[Tensor, "*client example"]:
        """The PSNR that a picture has which is as much like the original as the nearest rival is like it."""
        return to_decibels(truth, self.compare(got, truth).rival)

    def compare(self, got: Images, truth: Images) -> Likeness:
        last = self.last
        if last is None or last[0] is not got or last[1] is not truth:
            check_sizes(got, self.gallery)
            own = likeness(got, truth)
            rival = self._rivals(unit(got), unit(truth), own.flatten()).reshape(own.shape)
            self.last = last = (got, truth, Likeness(own, rival))
        return last[2]

    def _rivals(self, guesses: Flat, originals: Flat, own: Tensor) -> Tensor:
        size = guesses.shape[-2:]
        count = len(_symmetries(guesses[:1]))
        some = max(1, AT_ONCE // (count * self.spectra.shape[0] * len(self.pictures)))
        found = []
        for first in range(0, len(guesses), some):
            here = slice(first, first + some)
            alike = _most(self.spectra, guesses[here].nan_to_num().float(), size)
            found.append(self._without_copies(alike, originals[here], own[here]).amax(1))
        return torch.cat(found).to(own)

    def _without_copies(self, alike: Tensor, originals: Flat, own: Tensor) -> Tensor:
        """A copy of the original, mirrored or not, is exactly as alike as the original is."""
        ties = ((alike - own[:, None]).abs() <= ROUNDING) & (own[:, None] > ROUNDING)
        for row, column in ties.nonzero().tolist():
            if likeness(self.pictures[column], originals[row]) >= 1 - ROUNDING:
                alike[row, column] = 0
        return alike


def likeness(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """The largest correlation over all symmetries; 0 for a flat picture, NaN for one that is not a number."""
    guess, original = unit(got), unit(truth)
    spectrum = torch.fft.rfft2(original).conj()
    found = []
    for turned in _symmetries(guess.nan_to_num()):
        product = (torch.fft.rfft2(turned) * spectrum).sum(1)
        found.append(_largest(torch.fft.irfft2(product, s=original.shape[-2:])))
    best = torch.stack(found).amax(0).clamp_max(1)
    return torch.where(guess.flatten(1).isnan().any(1), torch.nan, best).reshape(got.shape[:-3])


def _most(spectra: Tensor, guesses: Flat, size: torch.Size) -> Float[Tensor, "picture other"]:
    """Of every guess with every picture of the gallery, the largest correlation over all symmetries."""
    turned = torch.stack(_symmetries(guesses))
    mine = torch.fft.rfft2(turned).flatten(-2).flatten(0, 1).permute(2, 0, 1)  # [frequency, turned, channel]
    product = (mine @ spectra).permute(1, 2, 0).unflatten(-1, (size[0], size[1] // 2 + 1))
    return _largest(torch.fft.irfft2(product, s=size)).unflatten(0, turned.shape[:2]).amax(0)


def _largest(correlations: Tensor) -> Tensor:
    """Over all shifts, whatever the sign."""
    low, high = correlations.flatten(-2).aminmax(dim=-1)
    return torch.maximum(high, -low)


def _symmetries(pictures: Flat) -> list[Tensor]:
    """Flips, and of square pictures quarter turns as well."""
    flips = [pictures, pictures.flip(-1), pictures.flip(-2), pictures.flip(-1, -2)]
    square = pictures.shape[-1] == pictures.shape[-2]
    return [*flips, *(one.transpose(-1, -2) for one in flips)] if square else flips


def unit(images: Images) -> Flat:
    """Shrunk, without the mean of each channel, of length 1 over all channels; nothing where the picture is flat."""
    left = _centered(images)
    length = left.flatten(1).norm(dim=1)
    return torch.where(length <= FLAT, 0.0, 1 / length)[:, None, None, None] * left


def _centered(images: Images) -> Flat:
    pictures = shrink(images.detach().double().cpu().reshape(-1, *images.shape[-3:]), SIDE)
    return pictures - pictures.mean((-1, -2), keepdim=True)


def shrink(pictures: Flat, most: int) -> Flat:
    """To means over areas, so that the longer side has no more pixels than this."""
    longer = max(pictures.shape[-2:])
    if longer <= most:
        return pictures
    height, width = (max(1, round(side * most / longer)) for side in pictures.shape[-2:])
    return F.adaptive_avg_pool2d(pictures, (height, width))


def to_decibels(truth: Images, alike: Tensor) -> Float[Tensor, "*client example"]:
    """The PSNR of a picture that correlates so with the truth, gain and offset fitted."""
    power = _centered(truth).square().flatten(1).mean(1).reshape(truth.shape[:-3])
    error = power * (1 - alike.double().square())
    return -10 * error.clamp_min(10 ** (-EXACT / 10)).log10()
