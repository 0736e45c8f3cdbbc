"""docs/catalogue.md: every table of methods, out of the code's own one-line summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gradveil.cli.catalogue import LIBRARY, rows, table
from gradveil.cli.transforms import transform_rows

ABOUT = {
    "attacks": (
        "An attack reconstructs pictures from updates. `autoattack` is the default. The columns quick, standard and "
        "thorough are the steps x restarts of each budget (`--budget`); options that you set yourself override them."
    ),
    "defenses": "A defense is what clients do to pictures, gradients or updates. `none` is the undefended client.",
    "metrics": "A metric compares a reconstruction with the original. Some need weights: [metrics.md](metrics.md).",
    "models": "Models with random weights. `--model FILE.py:FACTORY` takes one of your own.",
    "data": "Data sets. None is downloaded: `root` is where its files lie.",
}
SOURCES = (  # form of a reference and the address that it stands for
    (r"(?:arXiv:|arxiv\.org/abs/)(\d{4}\.\d{4,5})", "https://arxiv.org/abs/"),
    (r"(?:doi:|doi\.org/)(10\.\S+)", "https://doi.org/"),
)
HEAD = """# Catalogue

Every attack, defense, metric, model, data set and transformation of this version, with its options and their defaults.
This page is generated. To renew it, run `gradveil list --markdown > docs/catalogue.md`.
`gradveil list attacks` prints one table in a terminal, with papers; `--json` prints it for programs.

An option is given after the name: `--defense prune:ratio=0.95`, `--data-option root=DIR`. An option without a value
here is off, or the method chooses its value.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(kind) for kind in ABOUT), transforms()])


def section(kind: str) -> str:
    """One table under its heading."""
    budgets = ("quick", "standard", "thorough") if kind == "attacks" else ()
    lines = [
        format_row(
            f"`{row['name']}`",
            with_source(row),
            ", ".join(format_option(name, value) for name, value in row["options"].items()),
            *(effort_of(row["name"], budget) for budget in budgets),
        )
        for row in rows(kind)
    ]
    head = format_row(kind if kind == "data" else kind.removesuffix("s"), "what it is", "options", *budgets)
    return "\n".join([f"## {kind.capitalize()}\n", f"{ABOUT[kind]}\n", *table_of(head, lines)])


def transforms() -> str:
    """The library that policies take their numbers from."""
    found = transform_rows(LIBRARY)
    lines = [format_row(str(row["options"]["index"]), f"`{row['name']}`", row["summary"]) for row in found]
    about = f"The library `{LIBRARY}`: a policy such as 3-1-7 is a list of these numbers. See [ATS](methods/ats.md)."
    return "\n".join(["## Transforms\n", f"{about}\n", *table_of(format_row("number", "name", "what it does"), lines)])


def table_of(head: str, lines: Iterable[str]) -> list[str]:
    return [head, "|" + "---|" * (head.count(" | ") + 1), *lines, ""]


def format_row(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def with_source(row: dict[str, Any]) -> str:
    """The summary, with a link to the paper where it has an address."""
    for form, address in SOURCES:
        if found := re.search(form, row["paper"]):
            return f"{row['summary']} ([paper]({address}{found[1]}))"
    return row["summary"]


def format_option(name: str, default: Any) -> str:
    """An option with its default, as it is written on the command line."""
    if default in (None, "", []):
        return f"`{name}`"
    return f"`{name}` (required)" if default == "required" else f"`{name}={format_value(default)}`"


def format_value(default: Any) -> str:
    if isinstance(default, list):
        return f"[{', '.join(map(format_value, default))}]"
    return str(default).lower() if isinstance(default, bool) else str(default)


def effort_of(name: str, budget: Any) -> str:
    """Steps x restarts of an attack in a budget."""
    from gradveil.config.effort import apply_effort

    factory = table("attacks")[name]
    attack: Any = factory(**apply_effort(budget, factory, {}))
    steps, restarts = getattr(attack, "steps", None), getattr(attack, "restarts", None)
    if steps is not None and restarts is None:
        return f"{steps:,}, a race"
    if steps is None or restarts is None:
        return "its stages" if hasattr(attack, "stages") else "closed form"
    return f"{steps:,} x {restarts}"
