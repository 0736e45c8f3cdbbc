"""Configs: what they hold (`AuditConfig`), how they are read (`load`) and what they become (`build`)."""

from gradveil.config.build import build
from gradveil.config.load import dumps, from_tables, load
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import Choice

__all__ = ["AuditConfig", "Choice", "ScenarioConfig", "build", "dumps", "from_tables", "load"]
