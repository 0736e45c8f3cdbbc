"""A model of the user's own: `path/to/file.py:factory`, which is run, or one of an installed library."""

from __future__ import annotations

from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.core.user_file import beside, find_function, name_faults, run_file, split_spec
from gradveil.models.fill import fill
from gradveil.models.library import is_library_model, load_library_model
from gradveil.models.notes import say_once
from gradveil.models.start import Shape, weights_from

FORM, MAKES = "path/to/file.py:factory", "returns a torch.nn.Module"


def is_user_model(spec: str) -> bool:
    """`file.py:factory` or something that tries to be one, `timm:NAME`, `torchvision:NAME`, or a folder."""
    return ":" in spec or spec.endswith(".py") or is_library_model(spec)


def load_model(spec: str, *, classes: int, shape: Shape) -> nn.Module:
    """The model that `file.py:factory` makes, told the classes and the shape where its signature asks for them."""
    if is_library_model(spec):
        return load_library_model(spec, classes=classes, shape=shape)
    path, name = split_spec(spec, FORM, "model")
    with beside(path), name_faults(path, "running the file"), weights_from(0):
        module = run_file(path)
    factory = find_function(module, name, path, "factory", MAKES)
    if isinstance(factory, nn.Module):
        raise ConfigError(f"{path}: {name} is a {type(factory).__name__}, name a function or class that {MAKES}")
    with beside(path), name_faults(path, f"{name}()"), weights_from(0):
        agreed, filled = fill(factory, classes, shape)
        model = factory(**agreed, **filled)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{path}: {name}() returned {type(model).__name__}, it must return a torch.nn.Module")
    if filled:
        given = ", ".join(f"{key}={value}" for key, value in filled.items())
        say_once(f"{path}: {name}({given}): filled from the data")
    return model
