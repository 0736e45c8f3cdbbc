"""The defense that a recommendation names, for whoever deploys it."""

from __future__ import annotations

import json
from pathlib import Path

from gradveil.core.errors import ConfigError

RESULT = "recommendation.json"
PREFIX = "recommended:"


def read_deployed(run: str | Path) -> str:
    """As `NAME[:k=v,...]`. ConfigError where the folder holds no recommendation, or one that says deploy nothing."""
    if not str(run):
        raise ConfigError("names no run, write recommended:RUN with the folder of a recommendation", key="recommended")
    path = Path(run) / RESULT
    if not path.is_file():
        raise ConfigError(f"{run}: no {RESULT} is there, give the folder of a finished recommendation")
    try:
        deploy = json.loads(path.read_text(encoding="utf-8"))["deploy"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: cannot be read, restore the file") from error
    if deploy is None:
        raise ConfigError(f"{run}: recommends no defense, allow more accuracy to be lost or more pictures to be named")
    if not isinstance(deploy, str) or deploy.startswith(PREFIX):
        raise ConfigError(f"{path}: deploy names no defense, restore the file")
    return deploy
