"""EfficientNet-Lite0, taggers and the Jaccard similarity of their tags."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gradveil.core.errors import ConfigError
from gradveil.metrics import METRICS
from gradveil.metrics.efficientnet_lite0 import EfficientNetLite0, Same, as_trained
from gradveil.metrics.jaccard import Tagger, load_tagger, tags
from gradveil.models.start import weights_from

LOGITS = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]])


def report(table: torch.Tensor) -> Tagger:
    """A tagger that looks up what it says by the first pixel."""
    return Tagger(
        name="table", network=lambda x: table[x[:, 0, 0, 0].long()], features=lambda x: x.flatten(1), source=None
    )


def picture(row: int) -> torch.Tensor:
    return torch.full((1, 1, 2, 2), float(row))


def test_jaccard_is_the_share_of_common_tags():
    for top, expected in ((1, 0.0), (3, 0.0), (4, 2 / 6), (5, 4 / 6), (9, 1.0)):
        metric = METRICS["jaccard"](tagger=report(LOGITS), top=top)
        assert metric.score(picture(0), picture(1)).item() == pytest.approx(expected)
        assert metric.score(picture(1), picture(1)).item() == 1


def test_a_threshold_takes_as_many_tags_as_are_sure():
    assert tags(LOGITS, threshold=0.5).sum(1).tolist() == [3, 3]
    assert tags(LOGITS, threshold=0.2).sum(1).tolist() == [5, 5]  # sigmoid(-2) = 0.12, sigmoid(-1) = 0.27
    assert METRICS["jaccard"](tagger=report(LOGITS), threshold=0.99).score(picture(0), picture(0)).item() == 0


def test_not_a_number_has_no_tags():
    assert METRICS["jaccard"](tagger=report(LOGITS * torch.nan)).score(picture(0), picture(1)).isnan().all()


@pytest.mark.parametrize("options", [{"top": 0}, {"threshold": 1.0}, {"threshold": -0.1}])
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError, match=r"metrics\.jaccard"):
        METRICS["jaccard"](tagger=report(LOGITS), **options)


def test_the_network_has_the_published_size():
    """Tan and Le's Lite0: 4.7 million parameters, 16 blocks."""
    network = EfficientNetLite0()
    assert sum(p.numel() for p in network.parameters()) == 4_652_008
    assert len(network._blocks) == 16
    assert network._blocks[15]._project_conv.weight.shape == (320, 1152, 1, 1)


@pytest.mark.parametrize(("size", "stride", "side"), [(224, 2, 3), (7, 1, 5), (15, 2, 5), (14, 2, 3)])
def test_same_padding_is_tensorflows(size, stride, side):
    """As many places as fit ceil(size / stride); where the padding is odd, the first pixel is not padded."""
    layer = Same(1, 1, side, stride)
    layer.weight.data.fill_(1.0)
    found = layer(torch.ones(1, 1, size, size))
    assert found.shape[-1] == -(-size // stride)
    missing = max((-(-size // stride) - 1) * stride + side - size, 0)
    assert found[0, 0, 0, 0].item() == (side - missing // 2) ** 2


def test_pictures_of_any_size_and_color_are_made_to_fit():
    assert as_trained(torch.rand(2, 1, 8, 12)).shape == (2, 3, 224, 224)
    levels = as_trained(torch.tensor([0.0, 127 / 255, 1.0]).view(3, 1, 1, 1).expand(3, 3, 224, 224))
    np.testing.assert_allclose(levels[:, 0, 0, 0].numpy(), [-127 / 128, 0, 1], atol=1e-6)


def test_a_file_of_weights_is_read_and_unknown_ones_are_noted(tmp_path: Path):
    with weights_from(0):
        network = EfficientNetLite0().eval()
    save_file(network.state_dict(), tmp_path / "tagger.safetensors")
    tagger = load_tagger(str(tmp_path / "tagger.safetensors"), (3, 32, 32), 10)
    assert tagger.source is not None
    assert not tagger.source.known
    pictures = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(tagger.logits(pictures), network(pictures))
        assert tagger.features(pictures).shape == (2, 1280)
    with pytest.raises(ConfigError, match=r"absent\.safetensors"):
        load_tagger(str(tmp_path / "absent.safetensors"), (3, 32, 32), 10)


def test_a_classifier_of_the_users_own(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build(classes, shape):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))\n"
    )
    tagger = load_tagger(f"{tmp_path / 'mine.py'}:build", (3, 8, 8), 7)
    assert tagger.logits(torch.rand(4, 3, 8, 8)).shape == (4, 7)
    assert tagger.features(torch.rand(4, 3, 8, 8)).shape == (4, 192)
    assert tagger.source is None
