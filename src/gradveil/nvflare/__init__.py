"""NVFlare: a filter that applies a defense to what a client sends, and its files as captures.

Names are imported when they are first used. Reading files does not need NVFlare itself.
"""

from importlib import import_module
from typing import Any

_NAMES = {"DefenseFilter": "defense_filter", "convert": "conversion", "defend_difference": "difference"}

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'gradveil.nvflare' has no attribute {name!r}")
    try:
        return getattr(import_module(f"gradveil.nvflare.{_NAMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nvflare":
            raise
        from gradveil.core.errors import ConfigError

        raise ConfigError(f"gradveil.nvflare.{name}: NVFlare is not installed, install gradveil[nvflare]") from error
