"""Models of libraries that need not be there: stand-ins with their documented interface, and one clear line without."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gradveil.capture import preflight
from gradveil.config import build, from_tables, load
from gradveil.core.errors import ConfigError
from gradveil.models import load_model, load_weights
from gradveil.models.user import is_user_model

NET = """
import torch
from torch import nn
def net(channels, classes):
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, classes))
"""
TIMM = """
def list_models(): return ["resnet18", "vit_tiny"]
def is_model(name): return name in list_models()
def create_model(name, pretrained=False, num_classes=1000, in_chans=3, img_size=None):
    assert not pretrained
    model = net(in_chans, num_classes)
    model.default_cfg = {"input_size": (3, 224, 224), "fixed_input_size": name == "vit_tiny"}
    model.size = img_size
    return model
"""
TORCHVISION = """
import sys
def list_models(module=None):
    assert module is sys.modules[__name__]
    return ["resnet18", "vit_b_16", "googlenet"]
def get_model(name, weights=None, **options):
    assert weights is None
    model = net(3, options.pop("num_classes"))
    model.options = options
    return model
"""
TRANSFORMERS = """
import json
from pathlib import Path
from types import SimpleNamespace
class Config(SimpleNamespace): pass
class AutoConfig:
    @staticmethod
    def from_pretrained(folder, *, local_files_only, trust_remote_code):
        assert local_files_only and not trust_remote_code
        return Config(**json.loads((Path(folder) / "config.json").read_text()))
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.layers = config, net(config.num_channels, config.num_labels)
    def forward(self, pixel_values, labels=None):
        return SimpleNamespace(logits=self.layers(pixel_values), loss=None)
    @classmethod
    def from_pretrained(cls, folder, *, config, local_files_only, use_safetensors, trust_remote_code,
                        output_loading_info):
        assert local_files_only and use_safetensors and not trust_remote_code and output_loading_info
        from safetensors.torch import load_file
        found = {name.replace("old.", "layers."): x for name, x in load_file(f"{folder}/model.safetensors").items()}
        model = cls(config)
        missing = [name for name in model.state_dict() if name not in found]
        model.load_state_dict(found, strict=False)
        return model, {"missing_keys": missing, "mismatched_keys": []}
class AutoModelForImageClassification:
    @staticmethod
    def from_config(config, *, trust_remote_code):
        assert not trust_remote_code
        return Net(config)
"""


@pytest.fixture(autouse=True)
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed in front of whatever is really there, and gone afterwards."""
    place = tmp_path / "installed"
    (place / "torchvision").mkdir(parents=True)
    (place / "timm.py").write_text(NET + TIMM)
    (place / "torchvision/__init__.py").write_text("")
    (place / "torchvision/models.py").write_text(NET + TORCHVISION)
    (place / "transformers.py").write_text(NET + TRANSFORMERS)
    for name in ("timm", "torchvision", "torchvision.models", "transformers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(place)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "vit"
    place.mkdir()
    config = {"model_type": "vit", "num_labels": 10, "num_channels": 3, "image_size": 16}
    (place / "config.json").write_text(json.dumps(config))
    return place


def test_timm_is_told_classes_channels_and_a_fixed_size() -> None:
    model = load_model("timm:resnet18", classes=7, shape=(1, 16, 16))
    assert model(torch.zeros(2, 1, 16, 16)).shape == (2, 7)
    assert load_model("timm:vit_tiny", classes=7, shape=(3, 32, 32)).size == (32, 32)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_torchvision_is_told_the_classes() -> None:
    model = load_model("torchvision:resnet18", classes=7, shape=(3, 16, 16))
    assert (model(torch.zeros(2, 3, 16, 16)).shape, model.options) == ((2, 7), {})
    assert load_model("torchvision:vit_b_16", classes=7, shape=(3, 32, 32)).options == {"image_size": 32}
    assert load_model("torchvision:googlenet", classes=7, shape=(3, 32, 32)).options["aux_logits"] is False


def test_weights_repeat() -> None:
    one, other = (load_model("timm:resnet18", classes=7, shape=(3, 16, 16)) for _ in range(2))
    assert torch.equal(next(one.parameters()), next(other.parameters()))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("timm:resnt18", "timm:resnt18: no such model, did you mean timm:resnet18"),
        ("torchvision:nothing", "no such model, torchvision knows 3 names"),
        ("timm:hf-hub:somebody/net", "not a name of timm"),
        ("timm:a/b", "not a name of timm"),
        ("torchvision:", "not a name of torchvision"),
    ],
)
def test_other_names_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_model(spec, classes=7, shape=(3, 16, 16))


@pytest.mark.parametrize("fault", ["raise ImportError('no such thing')", "raise RuntimeError('operator nms')"])
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_without_the_library_one_line_says_so(library: str, fault: str, tmp_path: Path) -> None:
    """A library that was built for another torch raises RuntimeError."""
    path = tmp_path / "installed" / ("timm.py" if library == "timm" else "torchvision/__init__.py")
    path.write_text(fault)
    with pytest.raises(ConfigError, match=f"^{library}:resnet18: {library} cannot be imported .*, install one"):
        load_model(f"{library}:resnet18", classes=7, shape=(3, 16, 16))


def test_a_folder_gives_logits_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_model(str(folder), classes=7, shape=(1, 32, 32))
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 7)
    assert next(iter(model.state_dict())) == "layers.0.weight"
    filled = "num_labels=7, num_channels=1, image_size=32: filled from the data"
    assert capsys.readouterr().err == f"{folder}: {filled}\n"


def test_weights_of_a_folder_are_read_under_their_older_names(folder: Path) -> None:
    model = load_model(str(folder), classes=10, shape=(3, 16, 16))
    trained = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    save_file({name.replace("layers.", "old."): x for name, x in trained.items()}, folder / "model.safetensors")
    load_weights(model, folder / "model.safetensors")
    assert all(torch.equal(trained[name], tensor) for name, tensor in model.state_dict().items())
    (folder / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        load_weights(model, folder / "model.safetensors")
    save_file({"old.0.weight": trained["layers.0.weight"]}, folder / "model.safetensors")
    with pytest.raises(ConfigError, match=r"not the weights of this model, 3 missing, layers\.0\.bias"):
        load_weights(model, folder / "model.safetensors")


def test_the_weights_beside_a_config_are_the_weights_of_the_audit(folder: Path) -> None:
    model = load_model(str(folder), classes=8, shape=(3, 16, 16))
    save_file({**model.state_dict(), "layers.3.bias": torch.arange(8.0)}, folder / "model.safetensors")
    scenario = {"model": str(folder), "data_options": {"size": 16, "count": 40}, "images": 2, "normalize": "imagenet"}
    audit = build(from_tables({"scenario": scenario}))
    assert audit.scenario.trained
    assert torch.equal(audit.scenario.model.get_parameter("layers.3.bias"), torch.arange(8.0))
    assert audit.settings["scenario"]["weights"] == str(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "vit", "auto_map": {"AutoModel": "code.Net"}}', "asks for code of its own"),
        ('{"num_labels": 3}', "names no model_type"),
        ("[" * 100_000, "not a readable config"),
        ("[]", "names no model_type"),
        ('{"model_type": "vit"}', "transformers cannot make it for 7 classes"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line(folder: Path, config: str, message: str) -> None:
    (folder / "config.json").write_text(config)
    with pytest.raises(ConfigError, match=message) as caught:
        load_model(str(folder), classes=7, shape=(3, 16, 16))
    assert "\n" not in str(caught.value)


def test_a_config_file_may_name_a_library_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('[scenario]\nattacker = "curious"\nmodel = "timm:resnet18"\n')
    assert load(path).scenario.model == "timm:resnet18"
    path.write_text('[scenario]\nattacker = "curious"\nmodel = "mine.py:make"\n')
    with pytest.raises(ConfigError, match="a model file is never taken from a config"):
        load(path)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("lenet", False), ("", False), ("\0", False), ("a" * 5000, False), ("net.py", True), ("timm:x", True)],
)
def test_what_is_a_model_of_the_users(spec: str, expected: bool) -> None:
    assert is_user_model(spec) == expected
    assert preflight.is_user_model is is_user_model
