"""The metrics of a config, each with what it asks for: weights, the gallery, a network to look with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradveil.config.schema import AuditConfig
from gradveil.core.check import options_of
from gradveil.core.choice import Choice, parse_choice
from gradveil.core.errors import ConfigError
from gradveil.data import Dataset
from gradveil.metrics import METRICS, Metric
from gradveil.metrics.features import FeatureGallery, of_alexnet, of_model
from gradveil.metrics.jaccard import Tagger, load_tagger


def metrics_of(config: AuditConfig, dataset: Dataset, model: nn.Module, gallery: Tensor | None) -> tuple[Metric, ...]:
    """In the order of the config. What several of them need is made once."""

    @cache
    def tagger() -> Tagger:
        return load_tagger(config.tagger, dataset.shape, dataset.targets.shape[1])

    @cache
    def features() -> FeatureGallery:
        return feature_gallery(config, tagger, model, gallery)

    offered: dict[str, Callable[[], Any]] = {
        "weights": lambda: config.lpips_weights,
        "weights_vgg": lambda: config.lpips_vgg_weights,
        "gallery": lambda: gallery,
        "tagger": tagger,
        "features": features,
    }
    return tuple(_metric(parse_choice(text, "metrics"), offered, gallery) for text in config.metrics)


def _metric(choice: Choice, offered: dict[str, Callable[[], Any]], gallery: Tensor | None) -> Metric:
    wanted = [name for name in options_of(METRICS[choice.name]) if name in offered]
    if {"gallery", "features"} & set(wanted) and gallery is None:
        raise ConfigError(f"metrics: {choice.name} needs pictures that are not victims, ask for fewer images")
    return METRICS[choice.name](**{name: offered[name]() for name in wanted}, **choice.options)


def feature_gallery(
    config: AuditConfig, tagger: Callable[[], Tagger], model: nn.Module, gallery: Tensor | None
) -> FeatureGallery:
    """Looked at with the best network that there is a file of; without one, with the audited model itself."""
    assert gallery is not None
    if config.tagger:
        found = tagger()
        return FeatureGallery(name=found.name, network=found.features, pictures=gallery, source=found.source)
    if config.lpips_weights:
        network, source = of_alexnet(Path(config.lpips_weights))
        return FeatureGallery(name="AlexNet", network=network, pictures=gallery, source=source)
    return FeatureGallery(name="the audited model", network=of_model(model), pictures=gallery)
