"""A function out of a Python file of the user's own: `path/to/file.py:name`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from gradveil.core.errors import ConfigError


def split_spec(spec: str, form: str, what: str) -> tuple[Path, str]:
    """The file and the name in it. `form`: how it is written, `what`: what it should be, for errors."""
    file, colon, name = spec.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ConfigError(f"{spec}: not a {what}, write {form}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, write {form}")
    return path, name


def run_file(path: Path) -> ModuleType:
    """Import under a name of its own, so that a file called torch.py cannot stand in for anything."""
    name = "gradveil_user_model_" + blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the suffix is .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles inside the file look themselves up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # the file may have taken itself out
        raise
    return module


def find_function(module: ModuleType, name: str, path: Path, what: str, does: str) -> Callable[..., object]:
    """What the file calls so. `what`: `factory` or `loss`; `does`: what such a function does, for errors."""
    found = getattr(module, name, None)
    if callable(found):
        return found
    if found is not None:
        raise ConfigError(f"{path}: {name} is a {type(found).__name__}, name a function or class that {does}")
    public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = get_close_matches(name, public, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"define one that {does}"
    raise ConfigError(f"{path}: no {what} {name!r}, {hint}")


@contextmanager
def beside(path: Path) -> Iterator[None]:
    """The file may import its neighbors; they come last, so none of them shadows an installed package."""
    before = list(sys.path)
    sys.path.append(str(path.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def name_faults(path: Path, doing: str) -> Iterator[None]:
    """Whatever the user's code raises, as one line that names the file. SystemExit: a script that runs on import."""
    try:
        yield
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: {doing} raised {type(error).__name__}: {message}") from error
