"""gradveil: what can be reconstructed from a federated-learning update, and what to deploy against it.

    import gradveil

    verdict = gradveil.audit("runs/mine", model="net.py:make", weights="w.safetensors", data="pictures/")
    print(verdict.word)

Names are imported when they are first used: `import gradveil` alone imports neither torch nor Flower.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in `_HOME`, for checkers of types; a test holds them together
    from gradveil.attacks import ATTACKS as ATTACKS
    from gradveil.audit.audit import Audit as Audit
    from gradveil.audit.audit import run_audit as run_audit
    from gradveil.audit.results import read_run as read_run
    from gradveil.audit.verdict import Verdict as Verdict
    from gradveil.audit.verdict import judge as judge
    from gradveil.calibrate.calibrate import calibrate as calibrate
    from gradveil.calibrate.outcome import CalibrationOutcome as CalibrationOutcome
    from gradveil.calibrate.settings import CalibrationSettings as CalibrationSettings
    from gradveil.capture import Capture as Capture
    from gradveil.config import AuditConfig as AuditConfig
    from gradveil.config import Choice as Choice
    from gradveil.config import ScenarioConfig as ScenarioConfig
    from gradveil.config import build as build
    from gradveil.config import load as load
    from gradveil.config.audit import audit as audit
    from gradveil.config.invert import Inverted as Inverted
    from gradveil.config.invert import invert as invert
    from gradveil.core.attack import Attack as Attack
    from gradveil.core.attack import Reconstruction as Reconstruction
    from gradveil.core.client import local_update as local_update
    from gradveil.core.compute import Compute as Compute
    from gradveil.core.defense import Defense as Defense
    from gradveil.core.metric import Metric as Metric
    from gradveil.core.observation import Observation as Observation
    from gradveil.core.observation import Truth as Truth
    from gradveil.core.scenario import LocalTraining as LocalTraining
    from gradveil.core.scenario import Scenario as Scenario
    from gradveil.core.scenario import ThreatModel as ThreatModel
    from gradveil.core.seeds import Seed as Seed
    from gradveil.core.server import observe as observe
    from gradveil.core.types import Batch as Batch
    from gradveil.data import DATASETS as DATASETS
    from gradveil.defenses import DEFENSES as DEFENSES
    from gradveil.doctor.diagnose import diagnose as diagnose
    from gradveil.doctor.finding import Diagnosis as Diagnosis
    from gradveil.doctor.finding import Finding as Finding
    from gradveil.dp.certificate import Certificate as Certificate
    from gradveil.dp.certify import certificate as certificate
    from gradveil.flower.curious_server import CuriousServer as CuriousServer
    from gradveil.flower.defense_mod import veil as veil
    from gradveil.lineup.guess import Guess as Guess
    from gradveil.lineup.guess import lineup as lineup
    from gradveil.metrics import METRICS as METRICS
    from gradveil.models import MODELS as MODELS
    from gradveil.protect.offline import protect as protect
    from gradveil.recommend.outcome import Advice as Advice
    from gradveil.recommend.recommend import recommend as recommend
    from gradveil.recommend.settings import RecommendSettings as RecommendSettings
    from gradveil.report.build import write_report as write_report
    from gradveil.report.conclude import conclude as conclude
    from gradveil.search.outcome import SearchOutcome as SearchOutcome
    from gradveil.search.search import search as search
    from gradveil.search.settings import SearchSettings as SearchSettings
    from gradveil.tradeoff.outcome import StudyOutcome as StudyOutcome
    from gradveil.tradeoff.settings import StudySettings as StudySettings
    from gradveil.tradeoff.study import tradeoff as tradeoff
    from gradveil.train.federated import train_federation as train_federation
    from gradveil.train.run import train as train
    from gradveil.train.settings import Federation as Federation
    from gradveil.train.settings import TrainSettings as TrainSettings
    from gradveil.train.state import Trained as Trained

__version__ = "0.1.0"

_HOME = {
    "ATTACKS": "attacks",
    "Advice": "recommend.outcome",
    "Attack": "core.attack",
    "Audit": "audit.audit",
    "AuditConfig": "config",
    "Batch": "core.types",
    "CalibrationOutcome": "calibrate.outcome",
    "CalibrationSettings": "calibrate.settings",
    "Capture": "capture",
    "Certificate": "dp.certificate",
    "Choice": "config",
    "Compute": "core.compute",
    "CuriousServer": "flower",
    "DATASETS": "data",
    "DEFENSES": "defenses",
    "Defense": "core.defense",
    "Diagnosis": "doctor.finding",
    "Federation": "train.settings",
    "Finding": "doctor.finding",
    "Guess": "lineup.guess",
    "Inverted": "config.invert",
    "LocalTraining": "core.scenario",
    "METRICS": "metrics",
    "MODELS": "models",
    "Metric": "core.metric",
    "Observation": "core.observation",
    "RecommendSettings": "recommend.settings",
    "Reconstruction": "core.attack",
    "Scenario": "core.scenario",
    "ScenarioConfig": "config",
    "SearchOutcome": "search.outcome",
    "SearchSettings": "search.settings",
    "Seed": "core.seeds",
    "StudyOutcome": "tradeoff.outcome",
    "StudySettings": "tradeoff.settings",
    "ThreatModel": "core.scenario",
    "TrainSettings": "train.settings",
    "Trained": "train.state",
    "Truth": "core.observation",
    "Verdict": "audit.verdict",
    "build": "config",
    "certificate": "dp.certify",
    "conclude": "report.conclude",
    "diagnose": "doctor.diagnose",
    "invert": "config.invert",
    "judge": "audit.verdict",
    "load": "config",
    "local_update": "core.client",
    "observe": "core.server",
    "read_run": "audit.results",
    "run_audit": "audit.audit",
    "train_federation": "train.federated",
    "veil": "flower",
    "write_report": "report.build",
}
_FUNCTIONS = {  # of packages of the same name: module and function
    "audit": ("config.audit", "audit"),
    "calibrate": ("calibrate.calibrate", "calibrate"),
    "lineup": ("lineup.guess", "lineup"),
    "protect": ("protect.offline", "protect"),
    "recommend": ("recommend.recommend", "recommend"),
    "search": ("search.search", "search"),
    "train": ("train.run", "train"),
    "tradeoff": ("tradeoff.study", "tradeoff"),
}

__all__ = ["__version__", *_HOME, *_FUNCTIONS]  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # a checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _FUNCTIONS:
            return import_module(f"gradveil.{name}")  # which can be called, see below
        if name not in _HOME:
            raise AttributeError(f"module 'gradveil' has no attribute {name!r}")
        return getattr(import_module(f"gradveil.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Portable(ModuleType):
    """A module that can be sent to another process, by its name: closures of a user's script may hold it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


class _CallablePackage(_Portable):
    """`gradveil.audit` is a package and a function: a package that can be called, whichever was asked for first."""

    @property
    def __wrapped__(self) -> Any:
        module, name = _FUNCTIONS[self.__name__.removeprefix("gradveil.")]
        return getattr(import_module(f"gradveil.{module}"), name)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **named)


class _Package(_Portable):
    """Python sets every submodule as an attribute of its package: this is where those become callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
