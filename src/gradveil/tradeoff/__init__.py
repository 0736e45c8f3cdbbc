"""Accuracy against leakage: defenses trained and attacked alike, their front, and whether they beat noise."""

from gradveil.tradeoff.outcome import Outcome, Point
from gradveil.tradeoff.page import page
from gradveil.tradeoff.settings import Study
from gradveil.tradeoff.study import run

__all__ = ["Outcome", "Point", "Study", "page", "run"]
