"""Accuracy against leakage: defenses trained and attacked alike, their front, and whether they beat noise."""

from gradveil.tradeoff.outcome import Point, StudyOutcome
from gradveil.tradeoff.settings import StudySettings
from gradveil.tradeoff.study import tradeoff

__all__ = ["Point", "StudyOutcome", "StudySettings", "tradeoff"]
