"""What a client can see of a planted model, before it trains on it."""

from gradveil.inspection.examine import inspect, refuse_if_planted
from gradveil.inspection.finding import Inspection, Measurement, PlantedModelError

__all__ = ["Inspection", "Measurement", "PlantedModelError", "inspect", "refuse_if_planted"]
