"""What a client can see of a planted model, before it trains on it."""

from gradveil.inspection.examine import Inspection, Measurement, PlantedModelError, inspect, refuse_if_planted

__all__ = ["Inspection", "Measurement", "PlantedModelError", "inspect", "refuse_if_planted"]
