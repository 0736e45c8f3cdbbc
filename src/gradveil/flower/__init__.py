"""Flower: a defense as a client mod, a server that records what it sees, training by Flower.

Names are imported when they are first used: `import gradveil.flower` alone does not import flwr.
"""

from importlib import import_module
from typing import Any

_FLOWER = {
    "CuriousServer": "curious_server",
    "FlowerServer": "server",
    "Protocol": "round_capture",
    "client_app": "client",
    "defense_of": "defense_mod",
    "local_update": "defense_mod",
    "refuse_planted": "check_mod",
    "server_app": "server",
    "veil": "defense_mod",
}

__all__ = list(_FLOWER)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _FLOWER:
        raise AttributeError(f"module 'gradveil.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(f"gradveil.flower.{_FLOWER[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        from gradveil.core.errors import ConfigError

        raise ConfigError(f"gradveil.flower.{name}: Flower is not installed, install gradveil[flower]") from error
