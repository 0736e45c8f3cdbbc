"""One-to-one matching of reconstructions with originals."""

from itertools import permutations

import pytest
import torch

from gradveil.metrics import align


def scene(clients=3, examples=5):
    rng = torch.Generator().manual_seed(7)
    truth = torch.rand(clients, examples, 3, 6, 6, generator=rng)
    return truth + 0.3 * torch.randn(truth.shape, generator=rng), truth


def test_permuting_a_batch_changes_nothing():
    got, truth = scene()
    want = align(got, truth)
    for seed in range(5):
        order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(align(got[:, order], truth).images, want.images)
        assert torch.equal(align(got, truth[:, order]).images, want.images[:, order])
    assert want.matched.all()


def test_the_total_error_is_the_least_of_all_orders():
    got, truth = scene(clients=1)
    cost = (align(got, truth).images - truth).square().sum()
    least = min((got[:, list(order)] - truth).square().sum() for order in permutations(range(5)))
    torch.testing.assert_close(cost, least)


def test_a_single_batch_needs_no_client_axis():
    got, truth = scene()
    assert torch.equal(align(got[0], truth[0]).images, align(got, truth).images[0])


def test_too_few_leave_gray_and_say_so():
    _, truth = scene(clients=1)
    images, matched, _ = align(truth[:, [3, 1]], truth)
    assert matched.tolist() == [[False, True, False, True, False]]
    assert torch.equal(images[matched], truth[matched])
    assert (images[~matched] == 0.5).all()


def test_too_many_leave_the_worst_out():
    _, truth = scene(clients=2)
    got = torch.cat([1 - truth, truth], 1)
    images, matched, _ = align(got, truth)
    assert torch.equal(images, truth)
    assert matched.all()


def test_what_was_not_found_is_not_matched():
    _, truth = scene(clients=2)
    found = torch.ones(2, 5, dtype=torch.bool)
    found[0, 2] = False
    found[1] = False
    images, matched, _ = align(truth, truth, found)
    assert torch.equal(matched, found)
    assert (images[1] == 0.5).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_broken_reconstruction_takes_the_place_that_is_left(bad):
    _, truth = scene(clients=1)
    got = truth[:, [4, 3, 2, 1, 0]].clone()
    got[0, 1] = bad
    images, matched, _ = align(got, truth)
    assert matched.all()
    assert not images[0, 3].isfinite().any()
    assert torch.equal(images[0, [0, 1, 2, 4]], truth[0, [0, 1, 2, 4]])
