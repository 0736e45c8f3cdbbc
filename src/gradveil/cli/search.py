"""`gradveil search`: from options to a policy.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gradveil.cli.audit import option

WHAT, SCORES = option("What is searched"), option("How policies are scored")
PROOF, HOW, OUT = option("How they are confirmed"), option("How it is computed"), option("What comes out")


def search(
    model: Annotated[str | None, WHAT("A name, or path/to/file.py:factory (default lenet).")] = None,
    weights: Annotated[
        str | None, WHAT("Of the semi-trained model, .safetensors; without them it is trained.", metavar="FILE")
    ] = None,
    data: Annotated[str | None, WHAT("A name, a folder of class folders, or an .npz file (default photos).")] = None,
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    library: Annotated[str | None, WHAT("(default ats-code)", metavar="ats-code|ats-paper|FILE.toml")] = None,
    include: Annotated[
        list[str] | None, WHAT("A policy to try besides the random ones; may be repeated.", metavar="3-1-7")
    ] = None,
    candidates: Annotated[int | None, WHAT("Random policies (default 60; ATS: 1500).")] = None,
    length: Annotated[int | None, WHAT("Transformations in a policy, at most (default 3); 1 tries each alone.")] = None,
    top: Annotated[int | None, WHAT("The best so many (default 5).")] = None,
    hybrid: Annotated[int | None, WHAT("Policies in the hybrid, at most (default 2).")] = None,
    images: Annotated[int | None, SCORES("Pictures of the privacy score (default 16; ATS: 100).")] = None,
    score: Annotated[str | None, SCORES("(default ats-code)", metavar="ats-code|ats-paper")] = None,
    against: Annotated[str | None, SCORES("Who is imagined to attack.", metavar="unaware|adaptive")] = None,
    strategy: Annotated[
        str | None, SCORES("race drops the worse half after a few pictures (default full).", metavar="full|race")
    ] = None,
    threshold: Annotated[
        str | None,
        SCORES(
            "Least accuracy score per picture, or the share to keep (default -85/63, as published).", metavar="T|P%"
        ),
    ] = None,
    rounds: Annotated[int | None, SCORES("Batches of the accuracy score (default 10).")] = None,
    fsim: Annotated[
        float | None, SCORES("Least likeness to the picture, 0 to 1; else not tried.", metavar="MIN")
    ] = None,
    semi_epochs: Annotated[int | None, SCORES("Of the semi-trained model (default 50).")] = None,
    semi_share: Annotated[float | None, SCORES("Of the training pictures that it sees (default 0.1).")] = None,
    semi_rate: Annotated[float | None, SCORES("Its first learning rate (default 0.1).")] = None,
    confirm: Annotated[int | None, PROOF("Policies to attack for real, 0 for none (default 5).")] = None,
    confirm_steps: Annotated[int | None, PROOF("Steps of these attacks (default 120).")] = None,
    confirm_images: Annotated[int | None, PROOF("Pictures that are attacked (default 4).")] = None,
    seed: Annotated[int | None, HOW("Same seed, same result (default 0).")] = None,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[str, HOW("tf32 is faster and rounds more.", metavar="float32|tf32|float64")] = "float32",
    workers: Annotated[int | None, HOW("Processes, one thread each (default: one per core; 0: this process).")] = None,
    ray: Annotated[str, HOW("Use a Ray cluster: local is one of our own.", metavar="ADDRESS|auto|local")] = "",
    out: Annotated[Path, OUT("The file (default policy.json).", metavar="FILE")] = Path("policy.json"),
    folder: Annotated[
        Path | None, OUT("Journal of the search, to go on with (default runs/search-...).", metavar="DIR")
    ] = None,
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Search transformation policies (ATS) that hide pictures, attack the best, and write policy.json.

    [bold]Examples[/bold]

    gradveil search   [dim]built-in photographs, LeNet, 60 candidates: about a minute[/dim]

    gradveil search --model resnet20-4 --data cifar100 --candidates 1500 --images 100 --top 10 --device cuda

    gradveil audit --defense ats:policy.json
    """
    from gradveil.cli.search_run import asked_of, compute_for, default_folder, run_and_tell

    given = {
        "model": model, "weights": weights, "data": data, "library": library, "include": include,
        "candidates": candidates, "length": length, "top": top, "hybrid": hybrid, "images": images, "score": score,
        "against": against, "strategy": strategy, "threshold": threshold, "rounds": rounds, "fsim": fsim,
        "semi_epochs": semi_epochs, "semi_share": semi_share, "semi_rate": semi_rate, "confirm": confirm,
        "confirm_steps": confirm_steps, "confirm_images": confirm_images, "seed": seed,
    }  # fmt: skip
    asked = asked_of(given, data_option or [])
    compute = compute_for(device, precision, workers, ray)
    run_and_tell(asked, folder or default_folder(asked), out, compute, ray, quiet)
