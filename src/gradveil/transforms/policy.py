"""Transformation policies (ATS, Gao et al., 2021): what a client does to its pictures before it trains on them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, overload

import torch
from PIL import Image
from torch import Generator, Tensor

from gradveil.core.errors import ConfigError
from gradveil.transforms.library import Entry, Library, Spec, library_of
from gradveil.transforms.operation import OPERATIONS
from gradveil.transforms.picture import from_bytes, from_picture, to_bytes, to_picture

IDENTITY = "none"
NUMBERS = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})*")
LONGEST = 1000  # letters of a text


class Draw(NamedTuple):
    """For every picture the alternative that it goes through, and the sign of each of its slots.

    It stays on the CPU wherever the pictures are: to ask a GPU which pictures go where would make everybody wait.
    """

    choice: Tensor  # [count], whole numbers
    signs: Tensor  # [count, slots], -1 or 1, of every slot: those that have no sign do not look at it


@dataclass(frozen=True)
class Policy:
    """Numbers of a library, applied from left to right; of several alternatives each picture draws one.

    In the text of ATS: `3-1-7`, the hybrid `3-1-7+43-18-18`, and `none` for the identity. Every signed entry draws its
    sign for each picture.

    >>> policy = Policy.parse("3-1-7+43-18-18")
    >>> policy.alternatives, len(policy.draws())
    (((3, 1, 7), (43, 18, 18)), 16)
    """

    library: Library
    alternatives: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.alternatives:
            raise ConfigError(f"policy: no alternative, take ((),), or {IDENTITY!r} as text, for the identity")
        size = len(self.library.entries)
        for place in (place for slots in self.alternatives for place in slots):
            if not 0 <= place < size:
                name = self.library.name
                raise ConfigError(f"policy {self}: {place} is not in the library {name}, take 0 to {size - 1}")

    @classmethod
    def parse(cls, text: str, library: Spec | Library = "ats-code") -> Policy:
        """The policy that a text says."""
        return cls(library_of(library), tuple(_slots(part, text) for part in text[:LONGEST].split("+")))

    def __str__(self) -> str:
        return "+".join("-".join(map(str, slots)) or IDENTITY for slots in self.alternatives)

    @property
    def slots(self) -> int:
        """Of the longest alternative."""
        return max(map(len, self.alternatives))

    def draw(self, count: int, rng: Generator | None = None) -> Draw:
        """Alternative and signs for so many pictures; what a picture draws does not depend on how many follow it."""
        drawn = torch.rand(count, 1 + self.slots, generator=rng)
        choice = (drawn[:, 0] * len(self.alternatives)).long()
        return Draw(choice, torch.where(drawn[:, 1:] < 0.5, -1.0, 1.0))

    def draws(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Every (alternative, signs) that can be told from the others, once."""
        found: dict[object, tuple[int, tuple[int, ...]]] = {}
        for choice, slots in enumerate(self.alternatives):
            entries = [self.library.entries[place] for place in slots]
            for signs in product(*((1, -1) if entry.is_signed else (1,) for entry in entries)):
                pairs = zip(entries, signs, strict=True)
                seen = tuple((entry.function, sign) for entry, sign in pairs if entry.function is not None)
                found.setdefault(seen, (choice, signs))
        return tuple(found.values())

    def count_draws(self) -> int:
        """At most how many `draws` there are, without writing them out."""
        entries = self.library.entries
        return sum(2 ** sum(entries[place].is_signed for place in slots) for slots in self.alternatives)

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Pictures [N, C, H, W] in [0, 1], each as was drawn for it. Differentiable."""
        if len(self.alternatives) == 1:
            return self._through(images, 0, draw.signs.to(images.device).unbind(1))
        for slot in range(self.slots):
            places = [slots[slot] if slot < len(slots) else None for slots in self.alternatives]
            entries = [None if place is None else self.library.entries[place] for place in places]
            images = run_slot(images, entries, draw.choice, draw.signs[:, slot])
        return images

    def apply_one(self, images: Tensor, choice: int, signs: Sequence[int]) -> Tensor:
        """Pictures [..., C, H, W], all as one of `draws`. No number is sent to the device: a CUDA graph can hold it."""
        flat = images.reshape(-1, *images.shape[-3:])
        each = [torch.full(flat.shape[:1], float(sign), device=images.device) for sign in signs]
        return self._through(flat, choice, each).reshape(images.shape)

    def _through(self, images: Tensor, choice: int, signs: Sequence[Tensor]) -> Tensor:
        """One alternative on all pictures; `signs` of each slot, each [N]."""
        for slot, place in enumerate(self.alternatives[choice]):
            entry = self.library.entries[place]
            sign = signs[slot].double() if entry.is_signed else signs[slot].double().abs()
            images = entry.does.apply(images, entry.amount * sign)
        return images

    def name_of(self, choice: int, signs: Sequence[int]) -> str:
        """One of `draws` in words.

        >>> Policy.parse("3-11").name_of(0, (-1, 1))
        '-translateX9 posterize5'
        """
        entries = [self.library.entries[place] for place in self.alternatives[choice]]
        marks = [f"{sign:+d}"[0] if e.is_signed else "" for e, sign in zip(entries, signs, strict=True)]
        return " ".join(f"{mark}{entry}" for mark, entry in zip(marks, entries, strict=True)) or "as it is"

    @overload
    def __call__(self, images: Tensor, rng: Generator | None = None) -> Tensor: ...
    @overload
    def __call__(self, images: Image.Image, rng: Generator | None = None) -> Image.Image: ...
    def __call__(self, images: Tensor | Image.Image, rng: Generator | None = None) -> Tensor | Image.Image:
        """Draw and apply, as a transform of a `Dataset`: what comes in goes out, transformed.

        A picture of PIL's, or a tensor C x H x W or N x C x H x W, of floats in [0, 1] or of bytes. Without `rng` the
        draws are those of torch's own generator, which a `DataLoader` seeds in each of its workers.
        """
        if isinstance(images, Image.Image):
            return to_picture(self._draw_and_apply(from_picture(images), rng))
        if images.dtype == torch.uint8:
            return to_bytes(self._draw_and_apply(from_bytes(images), rng))
        return self._draw_and_apply(images, rng)

    def _draw_and_apply(self, images: Tensor, rng: Generator | None) -> Tensor:
        if images.dim() not in (3, 4) or not images.is_floating_point():
            got = f"{tuple(images.shape)} of {images.dtype}"
            raise ConfigError(f"policy {self}: expected C x H x W or N x C x H x W, floats or bytes, got {got}")
        batch = images if images.dim() == 4 else images.unsqueeze(0)
        return self.apply(batch, self.draw(len(batch), rng)).reshape(images.shape)

    def canonical(self) -> Policy:
        """One for all policies that are the same entry by entry: equal ones need scoring once.

        Identities are left out, entries are the first of their kind, alternatives are sorted and as few as they can be.

        >>> str(Policy.parse("47-28-22").canonical()), str(Policy.parse("39+39").canonical())
        ('0-9', 'none')
        """
        often = Counter(self._first_alike(slots) for slots in self.alternatives)
        share = math.gcd(*often.values())
        return Policy(self.library, tuple(slots for slots in sorted(often) for _ in range(often[slots] // share)))

    def _first_alike(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        alike = (self.library.alike[place] for place in slots)
        return tuple(place for place in alike if place is not None)


def _slots(part: str, text: str) -> tuple[int, ...]:
    if part == IDENTITY:
        return ()
    if len(text) > LONGEST or not NUMBERS.fullmatch(part):
        raise ConfigError(
            f"policy {text!r:.100}: expected numbers of the library such as 3-1-7, a hybrid such as 3-1-7+43-18-18, "
            f"or {IDENTITY}"
        )
    return tuple(map(int, part.split("-")))


def run_slot(images: Tensor, entries: Sequence[Entry | None], choice: Tensor, signs: Tensor) -> Tensor:
    """One slot: pictures [N, C, H, W], each through the entry of the alternative that it drew; None leaves it as it is.

    Every operation runs once, on all pictures that ask for it, each by its own amount. So a policy of a hundred
    alternatives costs what one of fourteen does, the number of operations there are.
    """
    kinds = list(dict.fromkeys(entry.operation for entry in entries if entry is not None))
    kind = torch.tensor([0 if entry is None else 1 + kinds.index(entry.operation) for entry in entries])[choice]
    order = kind.argsort(stable=True)
    counts = kind.bincount(minlength=1 + len(kinds)).tolist()
    groups = images[order.to(images.device)].split(counts)
    amounts = amounts_of(entries, choice, signs)[order].to(images.device).split(counts)
    parts = [groups[0]]
    for name, group, amount in zip(kinds, groups[1:], amounts[1:], strict=True):
        parts.append(OPERATIONS[name].apply(group, amount) if len(group) else group)
    return torch.cat(parts)[order.argsort().to(images.device)]


def amounts_of(entries: Sequence[Entry | None], choice: Tensor, signs: Tensor) -> Tensor:
    """What each picture's operation is given, [N] in float64."""
    amount = torch.tensor([0.0 if entry is None else entry.amount for entry in entries], dtype=torch.float64)[choice]
    signed = torch.tensor([entry is not None and entry.is_signed for entry in entries])[choice]
    return torch.where(signed, amount * signs, amount)
