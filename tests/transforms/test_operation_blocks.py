"""On a CPU operations run in blocks of pictures: not a bit of a result or of a gradient may depend on it."""

from __future__ import annotations

import pytest
import torch

from gradveil.core.seeds import Seed
from gradveil.transforms import operation
from gradveil.transforms.operation import OPERATIONS


@pytest.mark.parametrize("name", OPERATIONS)
def test_blocks_change_nothing(name, monkeypatch):
    monkeypatch.setattr(operation, "AT_ONCE", 1)
    images = torch.rand(3 * operation.FEWEST - 1, 3, 6, 7, generator=Seed(0).rng()).requires_grad_()
    amount = torch.full((len(images),), OPERATIONS[name].amounts[5], dtype=torch.float64)
    whole, blocks = OPERATIONS[name].function(images, amount), OPERATIONS[name].apply(images, amount)
    assert torch.equal(whole, blocks)
    gradients = [torch.autograd.grad(result.square().sum(), images)[0] for result in (whole, blocks)]
    assert torch.equal(*gradients)


def test_a_batch_is_really_cut(monkeypatch):
    sizes = []
    monkeypatch.setattr(operation, "AT_ONCE", 1)
    cut = operation.Operation("own", lambda x, _: sizes.append(len(x)) or x, (0.0,) * 10, False, "as it is")
    images = torch.rand(2 * operation.FEWEST + 1, 1, 2, 2)
    assert torch.equal(cut.apply(images, torch.zeros(len(images))), images)
    assert sizes == [operation.FEWEST, operation.FEWEST, 1]
