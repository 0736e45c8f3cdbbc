"""Names and options against the catalogues, and the budget spent: after this, building can hardly fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradveil.attacks import ATTACKS
from gradveil.attacks.autoattack import LEARNED, STAGES, planted_stages, transforms_of
from gradveil.config.effort import apply_effort
from gradveil.config.normalization import parse_normalization
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.config.training import check_training
from gradveil.core.check import Where, check_options, complete, missing_options, options_of
from gradveil.core.choice import Choice, parse_choice
from gradveil.core.errors import ConfigError, GradveilError, unknown
from gradveil.data import DATASETS
from gradveil.defenses import DEFENSES
from gradveil.metrics import METRICS
from gradveil.metrics.weights import WHERE
from gradveil.models import MODELS
from gradveil.models.library import weights_in
from gradveil.models.user import is_user_model

Catalogue = Mapping[str, Callable[..., Any]]
FILES = {  # by the option of a metric that takes a file: the key of the config, and what the file holds
    "weights": ("lpips_weights", "AlexNet's LPIPS weights"),
    "weights_vgg": ("lpips_vgg_weights", "VGG16's LPIPS weights"),
    "tagger": ("tagger", "the weights of EfficientNet-Lite0 or your own classifier"),
}
FILLED_IN = (*FILES, "gallery", "features")  # the options that an audit itself gives to its metrics


def resolve(config: AuditConfig, where: Where = str) -> AuditConfig:
    """The same config with every option checked, the budget spent and the defaults written out."""
    _check_metrics(config, where)
    defenses = {label: _check_choice(c, DEFENSES, f"defense.{label}", where) for label, c in config.defense.items()}
    config = _expand_autoattack(replace(config, defense=defenses), where)
    attacks = {label: _check_choice(c, ATTACKS, f"attack.{label}", where) for label, c in config.attack.items()}
    for kind, chosen in (("defense", defenses), ("attack", attacks)):
        if not chosen:
            raise ConfigError(f"{where(kind)}: none is given, give at least one")
    attacks = {
        k: replace(c, options=apply_effort(config.budget, ATTACKS[c.name], c.options)) for k, c in attacks.items()
    }
    return replace(
        config,
        scenario=_check_scenario(config.scenario, where),
        defense={k: replace(c, options=_read_files(c.name, c.options)) for k, c in defenses.items()},
        attack={k: replace(c, options=complete(ATTACKS[c.name], c.options)) for k, c in attacks.items()},
    )


def _read_files(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option; where one named a file, what the defense read there, so that a run does not need the file again."""
    full = complete(DEFENSES[name], options)
    return DEFENSES[name](**full).record_options(full)


def _expand_autoattack(config: AuditConfig, where: Where) -> AuditConfig:
    """`autoattack` as the sequence of its stages, so that a config says what is run."""
    attacks: dict[str, Choice] = {}
    for label, choice in config.attack.items():
        if choice.name != "autoattack":
            attacks[label] = choice
            continue
        checked = _check_choice(choice, ATTACKS, f"attack.{label}", where)
        for stage, method in (_stages(config.scenario, config.defense) | _learned_stages(checked)).items():
            options = {k: v for k, v in checked.options.items() if k in options_of(ATTACKS[method.name])}
            stage = stage if stage not in config.attack else f"{label}.{stage}"
            attacks[stage] = replace(method, options={**method.options, **options})
    whole = any(choice.name == "autoattack" for choice in config.attack.values())
    return replace(config, attack=attacks, sequence=config.sequence or whole)


def _learned_stages(autoattack: Choice) -> dict[str, Choice]:
    """What draws by a trained network, where one is given."""
    learned = LEARNED if autoattack.options.get("inverter") else {}
    return {stage: Choice(name="learned-inverter", options=options) for stage, options in learned.items()}


def _stages(scenario: ScenarioConfig, defenses: Mapping[str, Choice]) -> dict[str, Choice]:
    """Those that plant first, where the server may, since they are cheap and see most; last what undoes a defense."""
    built = [DEFENSES[choice.name](**choice.options) for choice in defenses.values()]
    examples, copies = scenario.batch_size * scenario.aggregate, max((one.copies for one in built), default=1)
    planted = planted_stages(examples, copies, transforms_of(built)) if scenario.attacker == "malicious" else {}
    stages = {stage: Choice(name=name, options=options) for stage, (name, options) in planted.items()}
    decoders = {name: Choice(name=name) for defense in built for name in defense.knowledge().decoders}
    return stages | {stage: Choice(name=stage) for stage in STAGES} | decoders


def _check_metrics(config: AuditConfig, where: Where) -> None:
    at = where("metrics")
    if not config.metrics:
        raise ConfigError(f"{at}: none is given, give at least one")
    chosen = [parse_choice(text, at) for text in config.metrics]
    for metric in chosen:
        if metric.name not in METRICS:
            raise unknown("metric", metric.name, METRICS, at)
        check_options(METRICS[metric.name], metric.options, where, f"metrics.{metric.name}.", FILLED_IN)
    names = [metric.name for metric in chosen]
    if len(set(names)) < len(names):
        raise ConfigError(f"{at}: a metric is given twice")
    for name in names:
        _check_file(name, config, where)


def _check_file(metric: str, config: AuditConfig, where: Where) -> None:
    for key, what in needed_files(metric):
        if not getattr(config, key):
            raise ConfigError(f"{metric} needs {what}, give the path of the file; {WHERE}", key=where(key))


def needed_files(metric: str) -> list[tuple[str, str]]:
    """The keys of the config that a metric needs a file in, each with what the file holds."""
    return [FILES[option] for option in options_of(METRICS[metric]) if option in FILES]


def _check_scenario(scenario: ScenarioConfig, where: Where) -> ScenarioConfig:
    if scenario.capture and not scenario.model:
        raise ConfigError(
            "the capture does not name one, set `model` to a name or to file.py:factory", key=where("scenario.model")
        )
    if not is_user_model(scenario.model) and scenario.model not in MODELS:
        raise unknown("model", scenario.model, MODELS, where("scenario.model"))
    check_training(scenario, where)
    parse_normalization(scenario.normalize, where("scenario.normalize"))
    if not scenario.weights and not scenario.capture:
        scenario = replace(scenario, weights=weights_in(scenario.model))
    if scenario.capture and not scenario.data:
        return scenario
    loader, options = _loader_options(scenario.data, scenario.data_options, where)
    return replace(scenario, data_options=complete(loader, options))


def check_data_options(data: str, options: Mapping[str, Any], where: Where = str) -> dict[str, Any]:
    """The options of a data set, each known to it and of its type; without its defaults.

    where: turns the keys `data` and `data_options` into what an error names.
    """
    return _loader_options(data, options, lambda key: where(key.removeprefix("scenario.")))[1]


def _loader_options(data: str, options: Mapping[str, Any], where: Where) -> tuple[Callable[..., Any], dict[str, Any]]:
    loader, given = _loader(data, where("scenario.data"))
    checked = check_options(loader, options, where, "scenario.data_options.", given)
    if missing := missing_options(loader, checked, given):
        raise ConfigError(f"{data} needs {', '.join(missing)}", key=where("scenario.data_options"))
    return loader, checked


def _loader(spec: str, where: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """What `gradveil.data.load` will call, and the option that the spec itself fills."""
    if spec in DATASETS:
        return DATASETS[spec], ()
    if Path(spec).is_dir():
        return DATASETS["image-folder"], ("root",)
    if Path(spec).suffix == ".zip":
        return DATASETS["image-zip"], ("root",)
    if Path(spec).suffix == ".npz":
        return DATASETS["npz"], ("path",)
    if len(Path(spec).parts) > 1 or Path(spec).exists():
        raise ConfigError(f"{where}: {spec}: no such folder, .zip or .npz file")
    raise unknown("data", spec, DATASETS, where)


def _check_choice(choice: Choice, table: Catalogue, key: str, where: Where) -> Choice:
    if choice.name not in table:
        raise unknown(key.partition(".")[0], choice.name, table, where(f"{key}.name"))
    factory = table[choice.name]
    options = check_options(factory, choice.options, where, f"{key}.")
    if missing := missing_options(factory, options):
        raise ConfigError(f"{where(key)}: {choice.name} needs {', '.join(missing)}")
    try:
        factory(**options)  # ranges are the method's own business; ask it now rather than after the data is loaded
    except (GradveilError, ValueError, TypeError) as error:
        at, message = where(key), str(error)
        own = f"{choice.name}: "  # what is at fault may have named itself, as the place already does
        raise ConfigError(f"{at}: {message.removeprefix(own) if at.endswith(choice.name) else message}") from error
    return replace(choice, options=options)
