"""A loss of the user's own: a function of outputs and targets that returns the mean over the pictures.

It is text, `path/to/file.py:name`, wherever a loss is named (TOML, captures, journals), and brings its function along
where somebody gave it. What a capture or a config names is a name alone: only who starts a run may have code run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.user_file import beside, find_function, name_faults, run_file, split_spec

FORM = "path/to/file.py:name"
DOES = "takes outputs and targets and returns the mean loss"
LossFunction = Callable[[Any, Tensor], Tensor]  # outputs as the model gives them, targets [example, ...]


class OwnLoss(str):
    """The name of a loss and, where it was given, the function."""

    function: LossFunction | None

    def __new__(cls, name: str, function: LossFunction | None = None) -> OwnLoss:
        made = super().__new__(cls, name)
        made.function = function
        return made

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        if self.function is None:
            raise ConfigError(f"{self} is the client's own and was not given, add `loss = {FORM}`", key="loss")
        return self.function(outputs, targets)

    def __deepcopy__(self, memo: Any) -> OwnLoss:
        return self

    def __reduce__(self) -> Any:
        return OwnLoss, (str(self), self.function)


def is_own_loss(name: str) -> bool:
    """`file.py:name`, or something that tries to be one.

    >>> is_own_loss("unet.py:dice"), is_own_loss("cross-entropy")
    (True, False)
    """
    return ":" in name or name.endswith(".py")


def is_same_loss(one: str, other: str) -> bool:
    """The same function of a file of the same name, wherever the file lies.

    >>> is_same_loss("here/unet.py:dice", "unet.py:dice")
    True
    """
    return Path(one).name == Path(other).name


def load_loss(spec: str) -> OwnLoss:
    """The function that `file.py:name` names. The file is run, once unless it was changed."""
    path, _ = split_spec(spec, FORM, "loss")
    about = path.stat()
    return _load(spec, str(path.resolve()), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=16)
def _load(spec: str, *_stamp: object) -> OwnLoss:
    path, name = split_spec(spec, FORM, "loss")
    with beside(path), name_faults(path, "running the file"):
        module = run_file(path)
    found = find_function(module, name, path, "loss", DOES)
    with name_faults(path, f"{name}()"):
        function = found() if isinstance(found, type) else found
    if not callable(function):
        raise ConfigError(f"{path}: {name}() is a {type(function).__name__}, name a function that {DOES}")
    return OwnLoss(spec, cast(LossFunction, function))


def as_own_loss(loss: str | LossFunction) -> OwnLoss:
    """A function under the name of its file and its own; text is a name alone, and no file is run for it."""
    if isinstance(loss, OwnLoss):
        return loss
    if isinstance(loss, str):
        if not is_own_loss(loss) or not loss.isprintable():
            raise ConfigError(f"must be cross-entropy, binary-cross-entropy or {FORM}, got {loss[:60]!r}", key="loss")
        return OwnLoss(loss)
    name = getattr(loss, "__qualname__", type(loss).__name__)
    return OwnLoss(f"{getattr(sys.modules.get(loss.__module__), '__file__', None) or '.py'}:{name}", loss)
