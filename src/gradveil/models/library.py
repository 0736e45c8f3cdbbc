"""Models of libraries that the user has installed: `timm:NAME`, `torchvision:NAME`, and folders of Hugging Face's.

None of them is a dependency, none is asked for pretrained weights, and none may use the network.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.models.notes import say_once
from gradveil.models.start import Shape, weights_from

NAMED = ("timm:", "torchvision:")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
CONFIG, WEIGHTS = "config.json", "model.safetensors"  # of a folder
LARGEST = 10_000_000  # bytes of a config
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def is_library_model(spec: str) -> bool:
    """Whether a library builds it; no file of the user's is run then."""
    return spec.startswith(NAMED) or is_model_folder(spec)


def is_model_folder(spec: str) -> bool:
    """A folder with a config, as `save_pretrained` writes it."""
    try:
        return bool(spec) and (Path(spec) / CONFIG).is_file()
    except (OSError, ValueError):  # no path at all
        return False


def weights_in(spec: str) -> str:
    """The file of weights in a folder of Hugging Face's; empty where there is none, or another kind of model."""
    path = Path(spec) / WEIGHTS
    return str(path) if is_model_folder(spec) and path.is_file() else ""


def load_library_model(spec: str, *, classes: int, shape: Shape) -> nn.Module:
    """With random weights, for so many classes and pictures of this shape."""
    library, _, name = spec.partition(":")
    if is_model_folder(spec):
        library, name = "transformers", spec
    elif not NAME.fullmatch(name):
        raise ConfigError(f"{spec[:200]}: not a name of {library}, write {library}:NAME with letters, digits and _ . -")
    module = _import(library, spec)
    with weights_from(0):
        try:
            return LIBRARIES[library](module, name, classes, shape)
        except ConfigError:
            raise
        except Exception as error:  # a library raises anything on sizes that it was not made for
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"{spec}: {library} cannot make it for {classes} classes and pictures of {shape} "
                f"({type(error).__name__}: {reason}), choose another size or model"
            ) from error


def _import(library: str, spec: str) -> Any:
    for variable in OFFLINE:
        os.environ[variable] = "1"
    try:
        return importlib.import_module(library)
    except Exception as error:  # one that was built for another torch raises RuntimeError
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{spec}: {library} cannot be imported ({reason}), install one that fits your torch "
            "or give path/to/file.py:factory"
        ) from error


def _unknown(library: str, name: str, known: list[str]) -> ConfigError:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {library}:{near[0]}?" if near else f"{library} knows {len(known)} names"
    return ConfigError(f"{library}:{name}: no such model, {hint}")


def _timm(timm: Any, name: str, classes: int, shape: Shape) -> nn.Module:
    if not timm.is_model(name):
        raise _unknown("timm", name, list(timm.list_models()))
    options = {"pretrained": False, "num_classes": classes, "in_chans": shape[0]}
    model: nn.Module = timm.create_model(name, **options)
    about = getattr(model, "default_cfg", None) or {}
    if about.get("fixed_input_size") and tuple(about.get("input_size", ()))[1:] != shape[1:]:
        model = timm.create_model(name, **options, img_size=shape[1:])
    return model


def _torchvision(torchvision: Any, name: str, classes: int, shape: Shape) -> nn.Module:
    models = importlib.import_module("torchvision.models")
    if name not in models.list_models(module=models):
        raise _unknown("torchvision", name, list(models.list_models(module=models)))
    options: dict[str, Any] = {"weights": None, "num_classes": classes}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": True}  # other outputs than logits, in training alone
    if name.startswith("vit_"):
        options["image_size"] = shape[1]
    if name.startswith("maxvit"):
        options["input_size"] = shape[1:]
    return models.get_model(name, **options)  # type: ignore[no-any-return]


class GivesLogits(nn.Module):
    """A model of transformers that takes pictures and gives logits alone; its weights keep their names."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(pixel_values=images).logits  # type: ignore[misc, no-any-return]


def _transformers(transformers: Any, folder: str, classes: int, shape: Shape) -> nn.Module:
    _check_config(Path(folder) / CONFIG)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    wanted = {"num_labels": classes, "num_channels": shape[0]}
    wanted |= {} if weights_in(folder) else {"image_size": shape[1]}  # learned positions are of one size
    changed = {k: v for k, v in wanted.items() if hasattr(config, k) and getattr(config, k) != v}
    for key, value in changed.items():
        setattr(config, key, value)
    if changed:
        said = ", ".join(f"{key}={value}" for key, value in changed.items())
        say_once(f"{folder}: {said}: filled from the data")
    model = transformers.AutoModelForImageClassification.from_config(config, trust_remote_code=False)
    kind = type(model)
    model.__class__ = type(kind.__name__, (GivesLogits, kind), {"__module__": kind.__module__})
    return model  # type: ignore[no-any-return]


def tensors_of_folder(model: GivesLogits, path: Path) -> dict[str, Tensor]:
    """What the file holds, under the names that this version of transformers has for it: files keep older ones."""
    kind: Any = type(model).__bases__[1]
    options = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
    try:
        loaded, found = kind.from_pretrained(path.parent, config=model.config, output_loading_info=True, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: not the weights of this model ({type(error).__name__}: {reason})") from error
    if lost := [*found["missing_keys"], *found["mismatched_keys"]]:
        raise ConfigError(f"{path}: not the weights of this model, {len(lost)} missing, {str(lost[0])[:200]} for one")
    return dict(loaded.state_dict())


def _check_config(path: Path) -> None:
    """A table that names a kind of model and no code of its own."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size:,} bytes")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a readable config ({str(error)[:200]}), save the model again") from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise ConfigError(f"{path}: names no model_type, save the model again with save_pretrained")
    if "auto_map" in found:
        raise ConfigError(f"{path}: asks for code of its own (auto_map), which is never run; give file.py:factory")


LIBRARIES: dict[str, Callable[[Any, str, int, Shape], nn.Module]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
}
