"""All checks on one model: what its weights say, what the client's own pictures say, what a reference says."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.inspection.activations import FEWEST, Reach, reaches
from gradveil.inspection.against_reference import against_reference
from gradveil.inspection.bias_ladder import bias_ladder
from gradveil.inspection.dominance import dominance
from gradveil.inspection.finding import Inspection, Measurement, PlantedModelError
from gradveil.inspection.front_layer import front_layer
from gradveil.inspection.half_negative import half_negative
from gradveil.inspection.one_scalar import one_scalar
from gradveil.inspection.proportional_rows import proportional_rows
from gradveil.inspection.single_sample import single_sample

Reference = nn.Module | Mapping[str, Tensor] | None
WEIGHTS_ALONE = (proportional_rows, bias_ladder, half_negative)
WITH_PICTURES = (single_sample, dominance, one_scalar)


def inspect(model: nn.Module, data: Batch | Tensor | None = None, reference: Reference = None) -> Inspection:
    """Look for structure that a dishonest server plants, in the weights and with pictures [n, c, h, w] in [0, 1]."""
    _require_numbers(model)
    images = data.images if isinstance(data, Batch) else data
    reached, skipped = _reach_neurons(model, images)
    checked: list[Measurement] = [m for check in WEIGHTS_ALONE for m in check(model)]
    checked += front_layer(model, reached)
    if reached is not None:
        checked += [m for check in WITH_PICTURES for m in check(reached)]
    if reference is not None:
        checked += against_reference(model, reference)
    else:
        skipped += ("no reference was given: layers added or replaced since then are not seen",)
    return Inspection(checked=tuple(checked), skipped=skipped)


def refuse_if_planted(model: nn.Module, data: Batch | Tensor | None = None, reference: Reference = None) -> Inspection:
    """For a client before its round: PlantedModelError if something is found, else what was checked."""
    inspection = inspect(model, data, reference)
    if inspection.planted:
        raise PlantedModelError(f"model: {inspection.verdict}; {inspection.findings[0].sentence}; do not train on it")
    return inspection


def _reach_neurons(model: nn.Module, images: Tensor | None) -> tuple[list[Reach] | None, tuple[str, ...]]:
    if images is None:
        return None, ("no pictures were given: what neurons do with them is not seen",)
    if len(images) < FEWEST:
        return None, (f"{len(images)} pictures are too few to compare, {FEWEST} or more are needed",)
    return reaches(model, images), ()


def _require_numbers(model: nn.Module) -> None:
    """A statistic of NaN lies beyond no threshold, so that a model with one would pass."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ConfigError(f"model: {name} holds numbers that are not finite, ask for a sound checkpoint")
