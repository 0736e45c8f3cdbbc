from __future__ import annotations

import re

import torch
from toys import pictures, scenario

from gradveil.core.compute import Compute
from gradveil.core.hashes import hash_model, hash_tensors
from gradveil.experiment.provenance import hash_data, provenance


def test_one_changed_bit_changes_the_hash() -> None:
    plain = {"a": torch.zeros(3), "b": torch.ones(2, 2)}
    assert hash_tensors(plain) == hash_tensors(dict(reversed(plain.items())))
    changed = [
        {**plain, "a": torch.tensor([0.0, 0.0, 1e-45])},
        {**plain, "a": torch.tensor([0.0, 0.0, -0.0])},
        {**plain, "a": torch.zeros(3, dtype=torch.float64)},
        {**plain, "b": torch.ones(4)},
        {"a": plain["a"], "c": plain["b"]},
        {"a": plain["a"]},
    ]
    assert len({hash_tensors(one) for one in (plain, *changed)}) == 1 + len(changed)


def test_buffers_belong_to_the_model() -> None:
    model = torch.nn.BatchNorm2d(2)
    before = hash_model(model)
    assert model.running_mean is not None
    model.running_mean += 1
    assert hash_model(model) != before


def test_every_picture_and_label_is_hashed() -> None:
    first, gallery = scenario(), pictures(4, 1)
    before = hash_data(first, gallery)
    assert hash_data(scenario(), gallery) == before
    assert hash_data(first, None) != before
    for tensor in (first.private.images, first.private.labels, gallery):
        tensor.flatten()[-1] += 1
        assert hash_data(first, gallery) != before
        tensor.flatten()[-1] -= 1


def test_times_are_utc_and_no_home_folder_is_told() -> None:
    found = provenance(scenario(), None, "seed = 0", 0, Compute())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["started"])
    assert found["finished"] is None
    assert not found["command"].startswith("/")
    assert found["device"].startswith("cpu")
