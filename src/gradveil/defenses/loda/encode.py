"""Many pictures: those that are in the cache are read, the others encoded, a fixed number at a time.

Steps of one length never settle: they enlarge a difference in the last bit until it can be seen. A library takes
another algorithm, and so rounds otherwise, for another number of pictures. So this number is always the same for one
size of pictures, the last ones being filled up with copies, and a picture has one encoding, alone and among others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.threads import threads, wait_for
from gradveil.defenses.loda.cache import Cache
from gradveil.defenses.loda.starts import hash_of

ON_A_CPU, ON_A_GPU, SMALL = 4, 256, 32 * 32  # pictures at once, of so many pixels; fewer if they are larger
Encode = Callable[[Tensor, list[str]], Tensor]  # pictures and their hashes -> encodings


def at_once(pictures: Tensor) -> int:
    """By their size and device alone."""
    most, pixels = ON_A_GPU if pictures.is_cuda else ON_A_CPU, pictures.shape[-2:].numel()
    return max(1, most * SMALL // max(SMALL, pixels))


def encode_all(pictures: Tensor, encode: Encode, cache: Cache | None) -> Tensor:
    """Every picture's encoding, in order. A picture that is there twice is encoded once."""
    hashes = [hash_of(picture) for picture in pictures]
    places = {hashed: place for place, hashed in reversed(list(enumerate(hashes)))}
    found = {} if cache is None else _read_cached(pictures, places, cache)
    missing = [hashed for hashed in places if hashed not in found]
    missing.sort(key=places.__getitem__)
    size = at_once(pictures)
    parts = [missing[first : first + size] for first in range(0, len(missing), size)]

    def work(part: list[str]) -> None:
        full = part + part[-1:] * (size - len(part))
        made = encode(pictures[[places[hashed] for hashed in full]], full).cpu()  # once, not one by one
        for hashed, encoding in zip(part, made, strict=False):
            found[hashed] = encoding
            if cache is not None:
                cache.keep(hashed, encoding)

    _side_by_side(work, parts, pictures.is_cuda)
    return torch.stack([found[hashed] for hashed in hashes]).to(pictures)


def _side_by_side(work: Callable[[list[str]], None], parts: list[list[str]], on_gpu: bool) -> None:
    """On a CPU one part per core, each on one thread: so a sum is rounded alike on any number of cores."""
    cores = 1 if on_gpu else max(1, min(torch.get_num_threads(), len(parts)))
    with threads(cores, of_torch=1) as submit:
        for result in [submit(work, part) for part in parts]:
            wait_for(result)


def _read_cached(pictures: Tensor, places: dict[str, int], cache: Cache) -> dict[str, Tensor]:
    kept = {hashed: cache.read(hashed, pictures[place]) for hashed, place in places.items()}
    return {hashed: encoding for hashed, encoding in kept.items() if encoding is not None}


def refuse_encodings(pictures: Tensor, cache: Cache) -> None:
    """Encoded twice, a picture has the features of its encoding and no longer those of its own."""
    for place, picture in enumerate(pictures):
        if cache.is_encoding(hash_of(picture)):
            raise ConfigError(f"loda: picture {place} is an encoding already, give the pictures that it was made from")
