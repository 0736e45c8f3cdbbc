"""A model of the user's own: `path/to/file.py:factory`, which is run, or one of an installed library."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.models.fill import fill
from gradveil.models.library import is_library_model, load_library_model
from gradveil.models.notes import say_once
from gradveil.models.start import Shape, weights_from


def is_user_model(spec: str) -> bool:
    """`file.py:factory` or something that tries to be one, `timm:NAME`, `torchvision:NAME`, or a folder."""
    return ":" in spec or spec.endswith(".py") or is_library_model(spec)


def load_model(spec: str, *, classes: int, shape: Shape) -> nn.Module:
    """The model that `file.py:factory` makes, told the classes and the shape where its signature asks for them."""
    if is_library_model(spec):
        return load_library_model(spec, classes=classes, shape=shape)
    path, name = _split_spec(spec)
    with _beside(path), _name_faults(path, "running the file"), weights_from(0):
        module = _run(path)
    factory = _find(module, name, path)
    with _beside(path), _name_faults(path, f"{name}()"), weights_from(0):
        agreed, filled = fill(factory, classes, shape)
        model = factory(**agreed, **filled)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{path}: {name}() returned {type(model).__name__}, it must return a torch.nn.Module")
    if filled:
        given = ", ".join(f"{key}={value}" for key, value in filled.items())
        say_once(f"{path}: {name}({given}): filled from the data")
    return model


def _split_spec(spec: str) -> tuple[Path, str]:
    file, colon, name = spec.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ConfigError(f"{spec}: not a model, write path/to/file.py:factory")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, write path/to/file.py:factory")
    return path, name


def _run(path: Path) -> ModuleType:
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


def _find(module: ModuleType, name: str, path: Path) -> Callable[..., object]:
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, nn.Module):
        return found
    if found is not None:
        raise ConfigError(f"{path}: {name} is a {type(found).__name__}, name a function or class that makes the model")
    public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = get_close_matches(name, public, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "define one that returns a torch.nn.Module"
    raise ConfigError(f"{path}: no factory {name!r}, {hint}")


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """The file may import its neighbors; they come last, so none of them shadows an installed package."""
    before = list(sys.path)
    sys.path.append(str(path.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _name_faults(path: Path, doing: str) -> Iterator[None]:
    """Whatever the user's code raises, as one line that names the file. SystemExit: a script that runs on import."""
    try:
        yield
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: {doing} raised {type(error).__name__}: {message}") from error
