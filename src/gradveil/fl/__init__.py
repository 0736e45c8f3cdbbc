"""Federated training: many clients, one model, any defense, and the checkpoints that an audit starts from.

Names of the Flower part are imported when they are first used: `import gradveil.train` alone does not import flwr.
"""

from importlib import import_module
from typing import Any

_FLOWER = {
    "CuriousServer": "curious",
    "FlowerServer": "flower_server",
    "Protocol": "round_capture",
    "client_app": "flower_client",
    "local_update": "veiled_round",
    "refuse_planted": "check_mod",
    "server_app": "flower_server",
    "veil": "client_mod",
    "veiled": "veiled_round",
}

__all__ = list(_FLOWER)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _FLOWER:
        raise AttributeError(f"module 'gradveil.train' has no attribute {name!r}")
    try:
        return getattr(import_module(f"gradveil.train.{_FLOWER[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        from gradveil.core.errors import ConfigError

        raise ConfigError(f"gradveil.train.{name}: Flower is not installed, install gradveil[flower]") from error
