"""What the commands share that train a network to a file: train-extractor, train-generator and train-gan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradveil.core.errors import ConfigError, DiskError, Interrupted

EVERY = 2.0  # seconds between lines


def check_file(out: Path) -> None:
    if out.suffix != ".safetensors" or not str(out).isprintable():
        raise ConfigError(f"{out}: expected a file name that ends in .safetensors", key="out")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out}: exists, choose another name", key="out")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: {out.parent} is no folder, choose another name", key="out")


def read_source(text: str, key: str = "data") -> tuple[str, dict[str, Any]]:
    """Name and options of `DATA[:k=v,...]`; a path that exists may have a colon in it."""
    from gradveil.core.choice import parse_choice

    if Path(text).exists():
        return text, {}
    choice = parse_choice(text, key)
    return choice.name, dict(choice.options)


def print_now_and_then(quiet: bool) -> Callable[[str, float, bool], None] | None:
    """Prints a line if the last is two seconds old, or if it is the last of all."""
    if quiet:
        return None
    last = [-float("inf")]

    def print_line(text: str, seconds: float, ends: bool) -> None:
        if seconds - last[0] >= EVERY or ends:
            last[0] = seconds
            print(text, file=sys.stderr, flush=True)

    return print_line


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """An interruption keeps the last checkpoint: the message says so."""
    from gradveil.experiment.folder import BROKEN, FULL

    try:
        yield
    except KeyboardInterrupt:
        saved = Path(f"{out}.resume").exists() or Path(f"{out}.simulated").exists()
        what = "the last checkpoint is kept, give the same command again" if saved else "nothing was saved yet"
        raise Interrupted(what) from None
    except OSError as error:
        if error.errno not in FULL + BROKEN:
            raise
        raise DiskError(f"{out}: {error.strerror}, make room and give the same command again") from error
