"""A whole update as one message: a mark, the tensors by name and shape, each in its smallest form, a checksum."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.types import Update
from gradveil.wire.forms import FORMS
from gradveil.wire.reader import Reader, malformed, varint

MARK = b"GVU1"
KINDS = {torch.float32: np.dtype("<f4"), torch.float64: np.dtype("<f8")}
MOST_NUMBERS = 2**27  # that a message may claim to hold
MOST_TENSORS, LONGEST_NAME, MOST_AXES = 100_000, 1000, 16


def encode(update: Update, forms: Sequence[str] = tuple(FORMS), bucket: int = 0) -> bytes:
    """The update as bytes: every tensor in the smallest of the `forms`. `bucket` is QSGD's, if it had any.

    >>> message = encode({"w": torch.tensor([1.0, 0.0, -1.0, 0.0, 0.0])})
    >>> decode(message)["w"].tolist()
    [1.0, 0.0, -1.0, 0.0, 0.0]
    """
    for form in forms:
        if form not in FORMS:
            raise unknown("form", form, FORMS, "encode")
    body = MARK + varint(len(update)) + b"".join(_tensor(name, u, forms, bucket) for name, u in update.items())
    return body + zlib.crc32(body).to_bytes(4, "little")


def encoded_size(update: Update, bucket: int = 0) -> int:
    """Bytes that a client sends."""
    return len(encode(update, bucket=bucket))


def _tensor(name: str, tensor: Tensor, forms: Sequence[str], bucket: int) -> bytes:
    if tensor.dtype not in KINDS:
        raise ConfigError(f"encode: {name} is {tensor.dtype}, convert it to float32 or float64")
    kind = KINDS[tensor.dtype]
    values = np.ascontiguousarray(tensor.detach().cpu().numpy().reshape(-1)).astype(kind, copy=False)
    written = {form: FORMS[form].write(values, bucket) for form in forms}
    fitting = {form: payload for form, payload in written.items() if payload is not None}
    if not fitting:
        raise ConfigError(f"encode: {name} cannot be written as {', '.join(forms)}, allow dense")
    form = min(fitting, key=lambda one: len(fitting[one]))
    head = varint(len(name.encode())) + name.encode() + bytes([list(KINDS).index(tensor.dtype), tensor.dim()])
    return head + b"".join(map(varint, tensor.shape)) + bytes([list(FORMS).index(form)]) + fitting[form]


def decode(data: bytes, most: int = MOST_NUMBERS) -> dict[str, Tensor]:
    """The update again, to the bit. ConfigError for anything else, and for more than `most` numbers."""
    if data[: len(MARK)] != MARK:
        raise malformed("does not begin with its mark")
    body = data[:-4]
    if zlib.crc32(body).to_bytes(4, "little") != data[-4:]:
        raise malformed("its checksum does not match")
    reader, update = Reader(body, len(MARK)), {}
    for _ in range(reader.varint(MOST_TENSORS, "a number of tensors")):
        name, tensor = _read(reader, most)
        if name in update:
            raise malformed("a tensor is there twice")
        most -= tensor.numel()
        update[name] = tensor
    reader.end()
    return update


def _read(reader: Reader, most: int) -> tuple[str, Tensor]:
    try:
        name = reader.take(reader.varint(LONGEST_NAME, "the length of a name")).decode()
    except UnicodeDecodeError as error:
        raise malformed("a name is no text") from error
    dtype, axes = reader.take(2)
    if dtype >= len(KINDS) or axes > MOST_AXES:
        raise malformed(f"a tensor of kind {dtype} with {axes} axes")
    shape = [reader.varint(most, "an axis") for _ in range(axes)]
    count, form = math.prod(shape), reader.take(1)[0]
    if count > most:
        raise malformed(f"{count} numbers, the limit is {most}")
    if form >= len(FORMS):
        raise malformed(f"form {form}")
    values = list(FORMS.values())[form].read(reader, list(KINDS.values())[dtype], count)
    return name, torch.from_numpy(values.copy()).reshape(shape)
