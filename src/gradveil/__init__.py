"""gradveil: what can be reconstructed from a federated-learning update, and what to deploy against it.

    from gradveil import build, conclude, load, run

    run(build(load("audit.toml")), "runs/mine")
    print(conclude("runs/mine").word)

Names are imported when they are first used: `import gradveil` alone does not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Attack": "core.attack",
    "Audit": "audit.audit",
    "AuditConfig": "config",
    "Batch": "core.types",
    "Choice": "config",
    "Compute": "core.compute",
    "Defense": "core.defense",
    "LocalTraining": "core.scenario",
    "Observation": "core.server",
    "Reconstruction": "core.attack",
    "Scenario": "core.scenario",
    "ScenarioConfig": "config",
    "Seed": "core.seeds",
    "ThreatModel": "core.scenario",
    "Truth": "core.server",
    "Verdict": "audit.verdict",
    "build": "config",
    "conclude": "report.conclude",
    "judge": "audit.verdict",
    "load": "config",
    "local_update": "core.client",
    "observe": "core.server",
    "read_run": "audit.results",
    "run": "audit.audit",
    "write_report": "report.build",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gradveil' has no attribute {name!r}")
    return getattr(import_module(f"gradveil.{_HOME[name]}"), name)
