"""Hostile names in the report: the page has the same tags and attributes as with plain names, and none that acts."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from driver import main, must

from gradveil.audit.plan import attack_seed
from gradveil.audit.results import read_run
from gradveil.core import toml
from gradveil.core.seeds import Seed
from gradveil.experiment.journal import encode
from gradveil.experiment.record import Record
from gradveil.report.build import render

FOLDER = tempfile.TemporaryDirectory(prefix="gradveil-fuzz-")
PIECES = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onmouseover="alert(1)', "' onfocus='alert(1)",
    "<svg/onload=alert(1)>", "<a href=//x>", "javascript:alert(1)", "data:text/html,<script>", "<b>", "</title>",
    "</td></tr></table>", "</style><style>*{display:none}", "<!--", "-->", "]]>", "<![CDATA[", "<?php", "&lt;",
    "&#60;script&#62;", "&#x3c;img&#x3e;", "{{ 7 * 7 }}", "{% include 'x' %}", "{# #}", "${7*7}", "`", "``", "*", "_",
    "|", "\\", "/", "..", "=cmd|' /C calc'!A0", "\x00", "\x1b[2J", "\n", "\t", "\u202e", "\u2028", "\ufeff",
    "\U0001f600", "a" * 300, " ", "0",
)  # fmt: skip
COUNT = 16
ACTING = ("script", "iframe", "object", "embed", "form", "link", "base")


class Skeleton(HTMLParser):
    """Tags with the names of their attributes, in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, ...]] = []
        self.values: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.values += [value or "" for name, value in attrs if name in ("href", "src", "action", "style")]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("!comment",))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("!declaration",))


def one(rng: random.Random) -> None:
    """The same run twice, once with hostile and once with plain names."""
    hostile = sorted({"".join(rng.choices(PIECES, k=rng.choice((1, 1, 2, 4)))) for _ in range(COUNT)})
    plain = [f"name{number:02}" for number in range(len(hostile))]  # in the same order, so that nothing moves
    seed = rng.randrange(2**32)
    expected, got = skeleton(plain, seed), skeleton(hostile, seed)
    must(got.tags == expected.tags, difference(expected.tags, got.tags))
    acting = [tag for tag in got.tags if tag[0] in ACTING or any(name.startswith("on") for name in tag[1:])]
    leading = [value for value in got.values if value.strip().lower().startswith(("javascript:", "//", "http:"))]
    must(not acting and not leading, f"tags that act: {acting}, values that lead away: {leading}")


def difference(expected: Sequence[Any], got: Sequence[Any]) -> str:
    place = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(len(expected), len(got))
    )
    return f"tag {place}: expected {expected[place : place + 4]}, got {got[place : place + 4]}"


def skeleton(names: Sequence[str], seed: int) -> Skeleton:
    """The tags of the page of a run in which these names stand wherever a name can stand."""
    folder = Path(FOLDER.name)
    rng = random.Random(seed)
    (folder / "journal.jsonl").write_bytes(b"".join(encode(one) for one in records(rng, names)))
    (folder / "config.toml").write_text(toml.dump(config(rng, names)), encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps(provenance(rng, names)), encoding="utf-8")
    page = Skeleton()
    page.feed(render(read_run(folder)))
    page.close()
    return page


def records(rng: random.Random, names: Sequence[str]) -> list[Record]:
    pick = lambda: rng.choice(names)  # noqa: E731
    scenario, attacks, metric = pick(), ("linear", pick()), pick()
    cells = [
        (defense, attack) for defense in dict.fromkeys(("none", pick(), pick())) for attack in dict.fromkeys(attacks)
    ]
    found = []
    for defense, attack in cells:
        for number in range(2):
            failed = rng.random() < 0.2
            found.append(
                Record(
                    key=f"{scenario}/{defense}/{attack}/unaware/{names[number]}/0",
                    status="failed" if failed else "ok",
                    scenario=scenario,
                    defense=defense,
                    attack=attack,
                    attacker="unaware",
                    client=names[number],
                    example=0,
                    seed=attack_seed(Seed(0), scenario, defense, attack).at(names[number]).number(),
                    seconds=1.0,
                    backend=pick(),
                    scores={} if failed else {"psnr": rng.uniform(5, 40), "ssim": 0.5, metric: 1.0},
                    loss=0.1,
                    flags=(pick(), pick()),
                    notes=(pick(),),
                    reason=pick() if failed else "",
                )
            )
    return found


def config(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    pick = lambda: rng.choice(names)  # noqa: E731
    scenario = {
        "model": pick(),
        "data": pick(),
        "weights": pick(),
        "attacker": "curious",
        "labels": "known",
        "images": 2,
    }
    return {
        "seed": 0,
        "metrics": ["psnr", pick()],
        pick(): pick(),
        "scenario": scenario | {pick(): pick()},
        "defense": {"none": {"name": "none"}} | {name: {"name": pick(), pick(): pick()} for name in names[:4]},
        "attack": {name: {"name": pick(), "steps": 10, pick(): [pick(), pick()]} for name in names[4:8]},
    }


def provenance(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    pick = lambda: rng.choice(names)  # noqa: E731
    known = ("gradveil", "torch", "device", "command", "precision", "model_sha256", "platform")
    return {key: pick() for key in known} | {pick(): {pick(): [pick()]}, "started": "2026-01-01T00:00:00+00:00"}


if __name__ == "__main__":
    main(one, "fuzz_names")
