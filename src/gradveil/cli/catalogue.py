"""`gradveil list`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

KINDS = ("attacks", "defenses", "metrics", "models", "data", "transforms")
LIBRARY = "ats-code"
FILLED_IN = {  # by the audit itself, so nobody need give them
    "metrics": ("gallery", "weights", "weights_vgg", "features", "tagger"),
    "models": ("classes", "shape", "seed", "mean", "std"),
}


def catalogue(
    kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="Table to print.", show_default=False)] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: name, paper, summary and options of each row.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all tables as one Markdown page, which is docs/catalogue.md.")
    ] = False,
    library: Annotated[
        str,
        typer.Option(
            help="With transforms: the library to list, ats-code, ats-paper or a .toml file.", metavar="NAME|FILE.toml"
        ),
    ] = LIBRARY,
    pictures: Annotated[
        Path | None,
        typer.Option(help="With transforms: also draw every transformation into this file.", metavar="FILE.png"),
    ] = None,
) -> None:
    """List attacks, defenses, metrics, models, data sets or transforms, with their options.

    [bold]Examples[/bold]

    gradveil list attacks

    gradveil list defenses --json

    gradveil list transforms --library ats-paper --pictures transforms.png

    gradveil list --markdown > docs/catalogue.md
    """
    from gradveil.core.errors import ConfigError, unknown

    if markdown:
        from gradveil.cli.catalogue_page import page

        if kind or as_json:
            raise ConfigError("prints all tables, leave out the name of a table and `as_json`", key="markdown")
        typer.echo(page(), nl=False)
        return
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS, "list")
    if kind == "transforms":
        list_transforms(library, as_json, pictures)
        return
    if pictures is not None or library != LIBRARY:
        raise ConfigError(f"list {kind}: --library and --pictures are for transforms, leave them out")
    found = rows(kind)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for row in found:
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        typer.echo(f"{row['name']}: {row['summary']}")
        for title, text in (("options", options), ("paper", row["paper"])):
            if text:
                typer.echo(f"    {title}: {text}")


def list_transforms(library: str, as_json: bool, pictures: Path | None) -> None:
    from gradveil.cli.transforms import transform_lines, transform_rows, write_pictures

    if pictures is not None:
        write_pictures(library, pictures)
    typer.echo(json.dumps(transform_rows(library), indent=2) if as_json else "\n".join(transform_lines(library)))


def rows(kind: str) -> list[dict[str, Any]]:
    """One table, each row `{"name", "paper", "summary", "options"}`; defenses have `"adaptive"` too."""
    hidden = FILLED_IN.get(kind, ())
    found = [row(name, factory, hidden) for name, factory in table(kind).items()]
    if kind == "defenses":
        for one in found:
            one["adaptive"] = adaptive_attacks(one["name"])
    return found


def table(kind: str) -> dict[str, Callable[..., Any]]:
    from gradveil.attacks import ATTACKS
    from gradveil.data import DATASETS
    from gradveil.defenses import DEFENSES
    from gradveil.metrics import METRICS
    from gradveil.models import MODELS

    tables = {"attacks": ATTACKS, "defenses": DEFENSES, "metrics": METRICS, "models": MODELS, "data": DATASETS}
    return dict(tables[kind])


def row(name: str, factory: Callable[..., Any], hidden: tuple[str, ...]) -> dict[str, Any]:
    from gradveil.core.check import options_of
    from gradveil.core.preset import paper_of, summary_of

    options = {key: plain(p.default) for key, p in options_of(factory).items() if key not in hidden}
    return {"name": name, "paper": str(paper_of(factory) or ""), "summary": summary_of(factory), "options": options}


def plain(default: Any) -> Any:
    """A default as JSON can say it."""
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, tuple | list):
        return [plain(item) for item in default]
    return default if default is None or isinstance(default, bool | int | float | str) else str(default)


def adaptive_attacks(defense: str) -> list[str]:
    """The attacks that run a defense's surrogate in their own copy of the client, if the attacker knows it."""
    from gradveil.attacks import ATTACKS

    if defense == "none":
        return []
    return [name for name, factory in ATTACKS.items() if "surrogate" in factory().uses] + decoders(defense)


def decoders(defense: str) -> list[str]:
    """The attacks that undo this defense alone."""
    from gradveil.core.check import options_of
    from gradveil.defenses import DEFENSES

    factory = DEFENSES[defense]
    any_will_do = {"extractor": "lenet:untrained"} if "extractor" in options_of(factory) else {}
    return list(factory(**any_will_do).knowledge().decoders)
