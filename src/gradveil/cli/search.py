"""`gradveil search`: from options to a policy.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._help import (
    DATA_OPTION,
    DEVICE,
    DEVICE_FORM,
    MODEL,
    MODEL_FORM,
    NORMALIZE,
    NORMALIZE_FORM,
    PAIR_FORM,
    PICTURES,
    PICTURES_FORM,
    QUIET,
    RAY,
    SEED,
    WORKERS,
)
from gradveil.cli._output import print_summary
from gradveil.cli.audit import option

if TYPE_CHECKING:
    from gradveil.search.settings import SearchSettings

WHAT, SCORES = option("What is searched"), option("How policies are scored")
PROOF, HOW, OUT = option("How they are confirmed"), option("How it is computed"), option("What comes out")


def search(
    model: Annotated[
        str | None, WHAT(f"Model whose gradients are scored: {MODEL} (default lenet).", metavar=MODEL_FORM)
    ] = None,
    weights: Annotated[
        str | None,
        WHAT(
            "Weights of the semi-trained model, a .safetensors file (default: trained by this command).", metavar="FILE"
        ),
    ] = None,
    normalize: Annotated[str | None, WHAT(f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = None,
    data: Annotated[
        str | None, WHAT(f"Pictures to search with: {PICTURES} (default photos).", metavar=PICTURES_FORM)
    ] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    library: Annotated[
        str | None,
        WHAT("Transformations that policies are made of (default ats-code).", metavar="ats-code|ats-paper|FILE.toml"),
    ] = None,
    include: Annotated[
        list[str] | None,
        WHAT("A policy to score besides the random ones, such as 3-1-7; repeatable.", metavar="POLICY"),
    ] = None,
    candidates: Annotated[
        int | None, WHAT("Number of random policies to score (default 60; the ATS paper takes 1500).")
    ] = None,
    length: Annotated[
        int | None,
        WHAT("Largest number of transformations in a policy (default 3). With 1 every transformation is scored alone."),
    ] = None,
    top: Annotated[int | None, WHAT("Number of best policies to report (default 5).")] = None,
    hybrid: Annotated[int | None, WHAT("Largest number of policies in the hybrid (default 2).")] = None,
    images: Annotated[
        int | None, SCORES("Number of pictures for the privacy score (default 16; the ATS paper takes 100).")
    ] = None,
    score: Annotated[
        str | None,
        SCORES(
            "Formula of the privacy score: that of the authors' code or that of the paper (default ats-code).",
            metavar="ats-code|ats-paper",
        ),
    ] = None,
    against: Annotated[
        str | None,
        SCORES(
            "The attacker that the privacy score assumes: one who does not know the policy, or "
            "one who does (default unaware).",
            metavar="unaware|adaptive",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        SCORES(
            "full scores every policy on all pictures; race drops the worse half after every few "
            "pictures (default full).",
            metavar="full|race",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        SCORES(
            "Smallest accuracy score per picture, as a number or as a share of policies to keep "
            "such as 90% (default -85/63, from the ATS code).",
            metavar="SCORE|SHARE%",
        ),
    ] = None,
    rounds: Annotated[int | None, SCORES("Number of batches for the accuracy score (default 10).")] = None,
    fsim: Annotated[
        float | None,
        SCORES(
            "Skip policies whose mean FSIM with the original is below this value, 0 to 1 (default: skip none).",
            metavar="MIN",
        ),
    ] = None,
    semi_epochs: Annotated[int | None, SCORES("Epochs of the semi-trained model's training (default 50).")] = None,
    semi_share: Annotated[
        float | None,
        SCORES("Share of the training pictures that the semi-trained model is trained on, 0 to 1 (default 0.1)."),
    ] = None,
    semi_rate: Annotated[float | None, SCORES("Initial learning rate of the semi-trained model (default 0.1).")] = None,
    confirm: Annotated[
        int | None, PROOF("Number of policies to attack afterwards, to test the score; 0 attacks none (default 5).")
    ] = None,
    confirm_steps: Annotated[int | None, PROOF("Steps of each of these attacks (default 120).")] = None,
    confirm_images: Annotated[
        int | None, PROOF("Number of pictures that these attacks reconstruct (default 4).")
    ] = None,
    seed: Annotated[int | None, HOW(SEED)] = None,
    seconds: Annotated[
        float | None,
        HOW("Start no new work after this many seconds. Run the same command again to resume.", metavar="SECONDS"),
    ] = None,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the scores; tf32 is faster on a GPU and less exact (default float32).",
            metavar="float32|tf32|float64",
        ),
    ] = "float32",
    workers: Annotated[int | None, HOW(WORKERS)] = None,
    ray: Annotated[str, HOW(RAY, metavar="ADDRESS|auto|local")] = "",
    out: Annotated[Path, OUT("File to write the best policies to (default policy.json).", metavar="FILE")] = Path(
        "policy.json"
    ),
    folder: Annotated[
        Path | None,
        OUT(
            "Folder of the search's journal; that of an interrupted search is continued (default runs/search-...).",
            metavar="DIR",
        ),
    ] = None,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Search for transformation policies (ATS) that make attacks harder, attack the best ones, and write policy.json.

    [bold]Examples[/bold]

    gradveil search   [dim]built-in photographs, LeNet, 60 candidates: about a minute[/dim]

    gradveil search --model resnet20-4 --data cifar100 --candidates 1500 --images 100 --top 10 --device cuda

    gradveil audit --defense ats:policy.json
    """
    from gradveil.cli._options import check_out, compute_on_all_cores, drop_missing
    from gradveil.core.choice import parse_pairs
    from gradveil.core.time_limit import TimeLimit
    from gradveil.experiment.experiment import default_folder
    from gradveil.experiment.folder import REPORT
    from gradveil.experiment.progress import for_stream
    from gradveil.search.page import COLUMNS, rows, sentences
    from gradveil.search.search import search as run_search
    from gradveil.search.settings import SearchSettings, check_settings

    given = {
        "model": model, "weights": weights, "normalize": normalize, "data": data, "library": library,
        "include": include,
        "candidates": candidates, "length": length, "top": top, "hybrid": hybrid, "images": images, "score": score,
        "against": against, "strategy": strategy, "threshold": threshold, "rounds": rounds, "fsim": fsim,
        "semi_epochs": semi_epochs, "semi_share": semi_share, "semi_rate": semi_rate, "confirm": confirm,
        "confirm_steps": confirm_steps, "confirm_images": confirm_images, "seed": seed,
    }  # fmt: skip
    options = parse_pairs(data_option or [], "--data-option")
    settings = SearchSettings(**drop_missing(given), data_options=options)
    check_settings(settings)
    TimeLimit.of(0.0, seconds)
    compute = compute_on_all_cores(device, precision, workers, ray)
    folder = folder or default_folder("search", settings.data, settings.model, settings.to_tables())
    check_out(folder)
    check_file(out, folder, settings)
    outcome = run_search(settings, folder, compute=compute, progress=for_stream(quiet), seconds=seconds)
    outcome.write(out)
    if not quiet:
        print_summary(COLUMNS, rows(outcome), sentences(outcome))
        typer.echo(f"policy: {out}, page: {folder / REPORT}")


def check_file(out: Path, folder: Path, settings: SearchSettings) -> None:
    """A new file, or the one that this very search has written before."""
    from gradveil.core.errors import ConfigError

    if out.is_symlink() or out.is_dir() or not str(out).isprintable():
        raise ConfigError(f"{out}: not a file, choose another name", key="out")
    if out.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{out} lies in the folder of the search, choose a place outside", key="out")
    if not out.exists():
        return
    try:
        stored = json.loads(out.read_bytes()).get("settings")
    except (ValueError, AttributeError, RecursionError):
        stored = None
    if stored != json.loads(json.dumps(settings.to_tables()["search"])):
        raise ConfigError(f"{out} exists and is not of this search, choose another name", key="out")
