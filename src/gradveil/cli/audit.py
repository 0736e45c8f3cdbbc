"""`gradveil audit`: from options to a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gradveil.config import AuditConfig

METHOD = "NAME[:k=v,...]"


def option(panel: str) -> Callable[..., Any]:
    """Options of one panel of the help page."""

    def of_panel(help: str, *names: str, **more: Any) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)

    return of_panel


WHAT, WHO = option("What is audited"), option("Who attacks")
HOW, OUT = option("How it is computed"), option("What comes out")


def audit(
    config: Annotated[Path | None, typer.Argument(metavar="AUDIT.toml", help="A config; options go over it.")] = None,
    model: Annotated[str | None, WHAT("A name, or path/to/file.py:factory (default lenet).")] = None,
    weights: Annotated[
        str | None, WHAT("A .safetensors file; without it the model is untrained.", metavar="FILE")
    ] = None,
    allow_pickle: Annotated[
        bool, WHAT("Read the tensors of a pickled --weights file, in a process of its own.", "--allow-pickle")
    ] = False,
    data: Annotated[str | None, WHAT("A name, a folder of class folders, .zip or .npz (default photos).")] = None,
    capture: Annotated[
        str | None,
        WHAT("What real clients sent, see docs/captures.md; --data then holds their pictures.", metavar="FILE"),
    ] = None,
    pictures: Annotated[
        str | None, WHAT("Rows of --data that the captured clients hold, client after client.", metavar="N,...")
    ] = None,
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    defense: Annotated[list[str] | None, WHAT("A defense; may be repeated.", metavar=METHOD)] = None,
    images: Annotated[int | None, WHAT("Clients to attack (default 8).")] = None,
    batch_size: Annotated[int | None, WHAT("Pictures per client (default 1).")] = None,
    local_steps: Annotated[int | None, WHAT("1 is FedSGD, more are FedAvg (default 1).")] = None,
    rounds: Annotated[int | None, WHAT("Rounds of the same clients that the attacker may join up (default 1).")] = None,
    also: Annotated[
        list[str] | None, WHAT("Audit other values of a scenario key too; may be repeated.", metavar="KEY=V,...")
    ] = None,
    local_rate: Annotated[float | None, WHAT("Learning rate of the local steps (default 1).")] = None,
    bn: Annotated[str | None, WHAT("How clients normalize (default eval).", metavar="eval|batch|batch-shared")] = None,
    attack: Annotated[list[str] | None, WHO("An attack; may be repeated (default autoattack).", metavar=METHOD)] = None,
    attacker: Annotated[
        str | None, WHO("Who; only the last may change the model.", metavar="eavesdropper|curious|malicious")
    ] = None,
    labels: Annotated[str | None, WHO("What the attacker knows of the labels.", metavar="known|inferred")] = None,
    budget: Annotated[str | None, WHO("How hard attacks try.", metavar="quick|standard|thorough")] = None,
    convergence: Annotated[
        bool | None,
        WHO("Run every attack with twice its steps too (default: unless quick).", "--convergence/--no-convergence"),
    ] = None,
    seed: Annotated[int | None, HOW("Same seed, same result (default 0).")] = None,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[str, HOW("tf32 is faster and rounds more.", metavar="float32|tf32|float64")] = "float32",
    backend: Annotated[str, HOW("All give the same result (default auto).", metavar="auto|loop|vmap|sweep")] = "auto",
    chunk: Annotated[int | None, HOW("Trials at once; measured if not given.")] = None,
    workers: Annotated[int, HOW("Processes, one thread each (default 0: this process, all threads).")] = 0,
    ray: Annotated[str, HOW("Use a Ray cluster: local is one of our own.", metavar="ADDRESS|auto|local")] = "",
    limit: Annotated[
        float | None, HOW("Seconds that a worker may take for a shard before it counts as hanging.", metavar="S")
    ] = None,
    metric: Annotated[
        list[str] | None, OUT("A metric; may be repeated (default psnr, ssim, retrieval and top 5).", metavar=METHOD)
    ] = None,
    lpips_weights: Annotated[str | None, OUT("AlexNet's LPIPS weights, .npz or .safetensors.", metavar="FILE")] = None,
    lpips_vgg_weights: Annotated[str | None, OUT("VGG16's, for lpips-vgg.", metavar="FILE")] = None,
    tagger: Annotated[
        str | None, OUT("EfficientNet-Lite0's weights or path/to/file.py:factory, for jaccard.", metavar="FILE")
    ] = None,
    gallery: Annotated[int | None, OUT("Pictures to find the original among, at most (default 1000).")] = None,
    out: Annotated[Path | None, OUT("A new folder, or that of a run to go on with.", metavar="DIR")] = None,
    claim: Annotated[
        float | None, OUT("Say whether 'at most this share leaks' is supported, 0.01 for 1 %.", metavar="SHARE")
    ] = None,
    strict: Annotated[bool, OUT("Exit with 3 if a verdict is inconclusive.", "--strict")] = False,
    redact: Annotated[bool, OUT("No pictures, names or paths in the report.", "--redact")] = False,
    as_json: Annotated[bool, OUT("Print a summary as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Attack a model's updates under each defense, and report what was reconstructed.

    [bold]Examples[/bold]

    gradveil audit   [dim]built-in photographs, LeNet, three defenses, --budget quick[/dim]

    gradveil audit --data pictures/ --model resnet20-4 --weights w.safetensors --defense none --defense prune:ratio=0.95

    gradveil audit --model mine.py:build --attack invertgrad:steps=2400,restarts=4 --budget thorough --device cuda

    gradveil audit --capture round-3.safetensors --data pictures/   [dim]what real clients sent[/dim]

    gradveil audit audit.toml --out runs/again   [dim]the same command goes on where it stopped[/dim]

    [dim]gradveil list attacks|defenses|metrics|models|data|transforms tells the names and their options.[/dim]
    """
    from gradveil.cli.options import check_claim, check_out, compute_of, config_of
    from gradveil.cli.run import Output, run_and_report
    from gradveil.models.weights import pickles_allowed

    given = {
        "--model": model, "--weights": weights, "--data": data, "--data-option": data_option, "--defense": defense,
        "--images": images, "--batch-size": batch_size, "--local-steps": local_steps, "--local-rate": local_rate,
        "--rounds": rounds, "--capture": capture, "--pictures": pictures,
        "--bn": bn, "--attack": attack, "--attacker": attacker, "--labels": labels, "--budget": budget,
        "--also": also, "--convergence": convergence, "--seed": seed,
        "--metric": metric, "--lpips-weights": lpips_weights, "--lpips-vgg-weights": lpips_vgg_weights,
        "--tagger": tagger, "--gallery": gallery,
    }  # fmt: skip
    check_claim(claim)
    check_out(out)
    compute = compute_of(device, precision, backend, chunk, workers, limit, ray)
    resolved = config_of(config, given)
    output = Output(redact=redact, as_json=as_json, quiet=quiet, claim=claim, strict=strict)
    with pickles_allowed(allow_pickle):
        run_and_report(resolved, out or default_folder(resolved), compute, output)


def default_folder(config: AuditConfig) -> Path:
    """runs/<data>-<model>-<time>"""
    names = (Path(config.scenario.capture).stem or Path(config.scenario.data).name, Path(config.scenario.model).name)
    what = re.sub("[^A-Za-z0-9.+-]+", "_", "-".join(names))
    return Path("runs") / f"{what}-{datetime.now():%Y%m%d-%H%M%S}"
