"""Journals: what comes back was written, or it is a JournalError. A lie with a right checksum is at worst a record."""

from __future__ import annotations

import json
import math
import random
from dataclasses import fields, replace
from typing import Any
from zlib import crc32

from driver import main, must, mutated

from gradveil.experiment.journal import JournalError, encode, parse
from gradveil.experiment.record import Record

TEXTS = ("", "none", "c\u00e9", "a/b", '"', "\\", "\n", "\x00", "\u2028", "\U0001f600", '","crc":1}', "x" * 200, "}\n{")
PLAIN = Record(
    key="s/none/a/unaware/c/0", status="ok", scenario="s", defense="none", attack="a", attacker="unaware", client="c",
    example=0, seed=0, seconds=0.0, backend="loop",
)  # fmt: skip
BODIES = ("null", "[]", "{}", "1", '""', "NaN", '{"key":1}', '{"scores":{"psnr":1e999}}', "[" * 5000, '{"a":' * 3000)


def one(rng: random.Random) -> None:
    """One journal, changed by chance or by someone who knows how checksums are made, through the parser."""
    if rng.random() < 0.3:
        forged(rng)
    else:
        damaged(rng)


def damaged(rng: random.Random) -> None:
    """Bytes changed anywhere, lines lost, doubled or moved."""
    written = [record(rng, number) for number in range(rng.choice((0, 1, 1, 2, 3, 8)))]
    lines = [encode(one) for one in written]
    if rng.random() < 0.3:
        lines = [rng.choice(lines) for _ in range(rng.randrange(2 * len(lines)))] if lines else lines
    content = b"".join(lines)
    if rng.random() < 0.9:
        content = mutated(content, rng)
    try:
        records, kept = parse(content)
    except JournalError as error:
        must("bad record at byte" in str(error), f"the place is not named: {error}")
        return
    must(all(one in written for one in records), "a record that nobody wrote")
    must(parse(content[:kept]) == (records, kept), "what is kept is read otherwise")


def forged(rng: random.Random) -> None:
    """Lines whose checksum is right and whose content is not."""
    content = b"".join(sealed(body(rng)) for _ in range(rng.choice((1, 2, 3))))
    try:
        records, _ = parse(content)
    except JournalError:
        return
    must(all(isinstance(one, Record) for one in records), "something that is no record")


def sealed(text: str) -> bytes:
    """As `encode` does it, whatever the text is."""
    body = text.encode("utf-8", "surrogatepass")
    return b'%s,"crc":%d}\n' % (body[:-1], crc32(body))


def body(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(BODIES) + rng.choice(("}", ""))
    stored = {one.name: getattr(PLAIN, one.name) for one in fields(Record)}
    for name in rng.sample(list(stored), rng.randrange(4)):
        if rng.random() < 0.3:
            del stored[name]
        else:
            stored[name] = rng.choice((None, 1, -1, 2.5, math.nan, "", "x", [], [1], {}, {"a": 1}, True, 10**30))
    if rng.random() < 0.2:
        stored[rng.choice(TEXTS)] = 1
    return json.dumps(stored, separators=(",", ":"))


def record(rng: random.Random, number: int) -> Record:
    text = lambda: rng.choice(TEXTS)  # noqa: E731
    number_: Any = rng.choice((0.0, -0.0, 1 / 3, 1e-300, 3e38))
    return replace(
        PLAIN,
        key=f"s/{text()}/a/{number}",
        status=rng.choice(("ok", "failed")),
        defense=text(),
        client=text(),
        seed=rng.randrange(2**63),
        seconds=number_,
        scores={text(): number_ for _ in range(rng.randrange(3))},
        loss=rng.choice((None, number_)),
        flags=tuple(text() for _ in range(rng.randrange(3))),
        notes=tuple(text() for _ in range(rng.randrange(2))),
        reason=text(),
    )


if __name__ == "__main__":
    main(one, "fuzz_journal")
