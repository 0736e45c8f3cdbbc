"""Faults of measuring: metrics, the gallery, and which reconstruction is held against which picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from factory.fault import fault
from factory.patch import Patch
from gradveil.audit.audit import Audit
from gradveil.metrics import METRICS
from gradveil.metrics.align import Aligned

Score = Callable[[Tensor, Tensor], Tensor]


def rescore(audit: Audit, change: Callable[[Score], Score], *names: str) -> Audit:
    """The audit with the scores of these metrics changed."""
    metrics = (replace(m, score=change(m.score)) if m.name in names else m for m in audit.metrics)
    return replace(audit, metrics=tuple(metrics))


def choose(names: tuple[str, ...], rng: Random) -> tuple[str, ...]:
    return rng.choice([(names[0],), (names[1],), names])


BOTH = ("psnr", "retrieval")


@fault("metric", "audit", "a metric is clipped")
def metric_clipped(audit: Audit, rng: Random) -> Audit:
    most = rng.choice((5.0, 10.0, 15.0))
    return rescore(audit, lambda score: lambda got, truth: score(got, truth).clamp_max(most), "psnr")


@fault("metric", "audit", "a metric has the wrong direction")
def metric_reversed(audit: Audit, rng: Random) -> Audit:
    names = choose(BOTH, rng)
    audit = rescore(audit, lambda score: lambda got, truth: -score(got, truth), *(n for n in names if n == "psnr"))
    return rescore(audit, lambda score: lambda a, b: 1 - score(a, b), *(n for n in names if n == "retrieval"))


@fault("metric", "audit", "a metric gives no number for some pictures")
def metric_not_a_number(audit: Audit, rng: Random) -> Audit:
    every = rng.choice((1, 2, 3, 5))

    def spoiled(score: Score) -> Score:
        def some_spoiled(got: Tensor, truth: Tensor) -> Tensor:
            found = score(got, truth).clone()
            found[::every] = torch.nan
            return found

        return some_spoiled

    return rescore(audit, spoiled, *choose(BOTH, rng))


@fault("metric", "audit", "a metric gives the same number for everything")
def metric_constant(audit: Audit, rng: Random) -> Audit:
    constant = rng.choice((0.0, 0.0, 1.0, -1.0))
    return rescore(audit, lambda score: lambda got, truth: 0 * score(got, truth) + constant, *choose(BOTH, rng))


@fault("metric", "audit", "a metric compares with the wrong picture")
def metric_of_the_wrong_picture(audit: Audit, rng: Random) -> Audit:
    def wrong(score: Score) -> Score:
        return lambda got, truth: score(got, truth.roll(1, 0) if len(truth) > 1 else truth.flip(-1))

    return rescore(audit, wrong, *choose(BOTH, rng))


@fault("metric", "audit", "a metric is not measured at all")
def metric_missing(audit: Audit, rng: Random) -> Audit:
    gone = rng.choice(BOTH)
    return replace(audit, metrics=tuple(metric for metric in audit.metrics if metric.name != gone))


@fault("metric", "run", "a metric raises an error, here and there")
def metric_raises(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", "defended", "adaptive")
    calls = iter(range(10**9))
    every = rng.choice((1, 2, 3))

    def broken(plain: Any, *args: Any) -> Any:
        if next(calls) % every == 0:
            raise RuntimeError("out of cheese")
        return plain(*args)

    patch.around("gradveil.metrics.psnr.peak_signal_to_noise", broken)


@fault("metric", "run", "reconstructions are matched with the wrong pictures")
def align_wrong_order(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", "defended", "audited")
    axis = rng.choice((0, 1))

    def wrong(plain: Any, *args: Any, **more: Any) -> Aligned:
        found = plain(*args, **more)
        return found._replace(images=found.images.roll(1, axis if found.images.shape[axis] > 1 else 0))

    patch.around("gradveil.metrics.align.align", wrong)


@fault("metric", "run", "reconstructions are lost before they are scored, gray stands in")
def align_loses(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", "defended", "audited")

    def lost(plain: Any, *args: Any, **more: Any) -> Aligned:
        found = plain(*args, **more)
        return found._replace(images=torch.full_like(found.images, 0.5))

    patch.around("gradveil.metrics.align.align", lost)


# the gallery


def with_gallery(audit: Audit, gallery: Tensor) -> Audit:
    metrics = (METRICS["retrieval"](gallery=gallery) if m.name == "retrieval" else m for m in audit.metrics)
    return replace(audit, gallery=gallery, metrics=tuple(metrics))


def victims_of(audit: Audit) -> Tensor:
    return audit.scenario.private.images.flatten(0, 1)


def gallery_of(audit: Audit) -> Tensor:
    assert audit.gallery is not None
    return audit.gallery


@fault("gallery", "audit", "the gallery holds the private pictures themselves")
def gallery_of_victims(audit: Audit, rng: Random) -> Audit:
    alone = rng.random() < 0.5
    return with_gallery(audit, victims_of(audit) if alone else torch.cat([gallery_of(audit), victims_of(audit)]))


@fault("gallery", "audit", "the gallery is empty")
def gallery_empty(audit: Audit, rng: Random) -> Audit:
    return with_gallery(audit, gallery_of(audit)[:0])


@fault("gallery", "audit", "the gallery holds near copies of the private pictures")
def gallery_of_near_copies(audit: Audit, rng: Random) -> Audit:
    apart = rng.choice((1e-4, 1e-3, 1e-2, 3e-2))
    stream = torch.Generator().manual_seed(rng.randrange(2**31))
    near = [victims_of(audit) + apart * torch.randn(victims_of(audit).shape, generator=stream) for _ in range(3)]
    return with_gallery(audit, torch.cat([gallery_of(audit)[:60], *near]).clamp(0, 1))


@fault("gallery", "audit", "the gallery holds one or two pictures")
def gallery_tiny(audit: Audit, rng: Random) -> Audit:
    return with_gallery(audit, gallery_of(audit)[: rng.choice((1, 2))])


@fault("gallery", "audit", "the gallery holds pictures of another scale")
def gallery_of_another_scale(audit: Audit, rng: Random) -> Audit:
    return with_gallery(audit, gallery_of(audit) * rng.choice((255.0, 1 / 255, -1.0)))


@fault("gallery", "audit", "the gallery holds one picture many times")
def gallery_of_one(audit: Audit, rng: Random) -> Audit:
    return with_gallery(audit, gallery_of(audit)[:1].expand(100, -1, -1, -1).clone())
