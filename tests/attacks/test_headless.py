"""The last layer is left out of the match, whatever its name, and labels are still read off it."""

from __future__ import annotations

import pytest
import torch
from scenes import scene, seen_in, smooth
from torch import nn

from gradveil.attacks.headless import headless
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import ThreatModel
from gradveil.core.seeds import Seed

SHORT = {"steps": 12, "tv": 1e-2}


def test_it_is_invertgrad_without_that_layer() -> None:
    seen = seen_in(scene(smooth(), 2, 1))
    last = [name for name, layer in seen.model.named_modules() if isinstance(layer, nn.Linear)][-1]
    got, same = (a.reconstruct(seen, Seed(1)) for a in (headless(**SHORT), invertgrad(without=(f"{last}.*",), **SHORT)))
    whole = invertgrad(**SHORT).reconstruct(seen, Seed(1))
    assert torch.equal(got.images, same.images)
    assert not torch.equal(got.images, whole.images)


def test_labels_are_read_off_the_layer_all_the_same() -> None:
    hidden = seen_in(scene(smooth(), 2, 1, threat=ThreatModel(knows_labels=False)))
    known = seen_in(scene(smooth(), 2, 1))
    got = headless(**SHORT).reconstruct(hidden, Seed(1))
    assert known.labels is not None
    assert torch.equal(got.labels, known.labels)


def test_its_control_looks_at_no_layer() -> None:
    seen = seen_in(scene(smooth(), 1, 1))
    blind = headless(**SHORT).prior_only().reconstruct(seen, Seed(1))
    assert torch.equal(blind.images, invertgrad(**SHORT).prior_only().reconstruct(seen, Seed(1)).images)


def test_a_model_without_such_a_layer_is_told_in_a_line() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()).double()
    with pytest.raises(NotApplicableError, match="headless: the model has no linear layer with 5 outputs to leave out"):
        headless(**SHORT).reconstruct(seen_in(scene(model, 1, 1)), Seed(1))
