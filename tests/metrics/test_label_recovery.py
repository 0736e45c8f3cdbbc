"""Label recovery as a metric."""

import pytest
import torch
import torch.nn.functional as F

from gradveil.metrics import METRICS
from gradveil.metrics.labels import labels_right


def soft(*rows: list[int]) -> torch.Tensor:
    return F.one_hot(torch.tensor(rows), 5).float()


@pytest.mark.parametrize(
    ("got", "truth", "share"),
    [
        ([0, 1, 2], [2, 0, 1], 1.0),  # order does not count
        ([0, 0, 1], [0, 1, 1], 2 / 3),  # how often does
        ([3, 3, 3], [0, 1, 2], 0.0),
        ([0, 1], [0, 1, 2], 2 / 3),  # one was not found
        ([0, 1, 2, 3], [0, 1, 2], 3 / 4),  # one too many
    ],
)
def test_the_share_is_of_a_multiset(got, truth, share):
    assert labels_right(soft(got), soft(truth)).item() == pytest.approx(share)


def test_every_picture_of_a_client_has_the_clients_share():
    metric = METRICS["labels"]()
    assert metric.about == "labels"
    assert metric.score(soft([0, 1], [0, 0]), soft([1, 0], [0, 1])).tolist() == [[1.0, 1.0], [0.5, 0.5]]
