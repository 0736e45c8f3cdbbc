"""What PIL makes of a picture: AutoAugment's transformations in its own words, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image, ImageEnhance, ImageOps

Picture = Image.Image
NEAREST, BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BICUBIC


def affine(picture: Picture, *matrix: float, resample: Image.Resampling = NEAREST) -> Picture:
    black = (0, 0, 0) if picture.mode == "RGB" else 0
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample, fillcolor=black)


def rotated(picture: Picture, degrees: float) -> Picture:
    turned = picture.convert("RGBA").rotate(degrees)
    grey = Image.new("RGBA", turned.size, (128, 128, 128, 128))
    return Image.composite(turned, grey, turned).convert(picture.mode)


PIL: dict[str, Callable[[Picture, float], Picture]] = {
    "shearX": lambda picture, m: affine(picture, 1, m, 0, 0, 1, 0, resample=BICUBIC),
    "shearY": lambda picture, m: affine(picture, 1, 0, 0, m, 1, 0, resample=BICUBIC),
    "translateX": lambda picture, m: affine(picture, 1, 0, m * picture.width, 0, 1, 0),
    "translateY": lambda picture, m: affine(picture, 1, 0, 0, 0, 1, m * picture.height),
    "rotate": rotated,
    "color": lambda picture, m: ImageEnhance.Color(picture).enhance(1 + m),
    "posterize": lambda picture, m: ImageOps.posterize(picture, int(m)),
    "solarize": lambda picture, m: ImageOps.solarize(picture, m),  # type: ignore[arg-type]
    "contrast": lambda picture, m: ImageEnhance.Contrast(picture).enhance(1 + m),
    "sharpness": lambda picture, m: ImageEnhance.Sharpness(picture).enhance(1 + m),
    "brightness": lambda picture, m: ImageEnhance.Brightness(picture).enhance(1 + m),
    "autocontrast": lambda picture, m: ImageOps.autocontrast(picture),
    "equalize": lambda picture, m: ImageOps.equalize(picture),
    "invert": lambda picture, m: ImageOps.invert(picture),
}
