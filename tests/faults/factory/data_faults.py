"""Faults of the pictures and of the settings: what is audited is not what somebody thinks."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from factory.fault import Tables, fault, has
from gradveil.audit.audit import Audit
from gradveil.core.types import Batch


def with_pictures(audit: Audit, images: Tensor) -> Audit:
    return replace(audit, scenario=replace(audit.scenario, private=Batch(images, audit.scenario.private.labels)))


@fault("data", "audit", "all private pictures are the same one")
def data_identical(audit: Audit, rng: Random) -> Audit:
    images = audit.scenario.private.images
    return with_pictures(audit, images[:1, :1].expand_as(images).clone())


@fault("data", "audit", "the private pictures are blank")
def data_blank(audit: Audit, rng: Random) -> Audit:
    return with_pictures(audit, torch.full_like(audit.scenario.private.images, rng.choice((0.0, 0.5, 1.0))))


@fault("data", "audit", "pixels run from 0 to 255")
def data_not_scaled(audit: Audit, rng: Random) -> Audit:
    return with_pictures(audit, 255 * audit.scenario.private.images)


@fault("data", "audit", "pixels run from -1 to 1")
def data_centered(audit: Audit, rng: Random) -> Audit:
    return with_pictures(audit, 2 * audit.scenario.private.images - 1)


@fault("data", "audit", "pixels are nearly zero")
def data_dark(audit: Audit, rng: Random) -> Audit:
    return with_pictures(audit, audit.scenario.private.images / rng.choice((16, 255)))


@fault("data", "audit", "some private pictures hold numbers that are none")
def data_not_a_number(audit: Audit, rng: Random) -> Audit:
    images = audit.scenario.private.images.clone()
    images[rng.randrange(len(images))] = torch.nan
    return with_pictures(audit, images)


@fault("data", "audit", "the private pictures are noise")
def data_noise(audit: Audit, rng: Random) -> Audit:
    stream = torch.Generator().manual_seed(rng.randrange(2**31))
    return with_pictures(audit, torch.rand(audit.scenario.private.images.shape, generator=stream))


@fault("data", "audit", "the public pictures are the private ones")
def public_is_private(audit: Audit, rng: Random) -> Audit:
    public = Batch(*(x.flatten(0, 1) for x in audit.scenario.private))
    return replace(audit, scenario=replace(audit.scenario, public=public))


@fault("data", "audit", "the model is dead: no unit is ever active")
def model_dead(audit: Audit, rng: Random) -> Audit:
    import copy

    model = copy.deepcopy(audit.scenario.model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(rng.choice((0.0, 1e-6))) if name.endswith("weight") else parameter.fill_(-10)
    return replace(audit, scenario=replace(audit.scenario, model=model))


# settings, as a command line gives them


def set_options(tables: Tables, **options: Any) -> None:
    for choice in tables["attack"].values():
        if choice["name"] != "linear" and choice["name"] != "rtf":
            choice.update({k: v for k, v in options.items() if not (choice["name"] == "dlg" and k == "rate")})


def is_cosine(base: Any) -> bool:
    return base.name.startswith("cosine")


@fault("settings", "settings", "an attack is given a rate of zero, or next to nothing", is_cosine)
def option_rate(tables: Tables, rng: Random) -> None:
    set_options(tables, rate=rng.choice((0.0, 1e-9, 1e-6, 1e-4)))


@fault("settings", "settings", "an attack is given a rate that throws it about", is_cosine)
def option_rate_too_high(tables: Tables, rng: Random) -> None:
    set_options(tables, rate=rng.choice((10.0, 1e3, 1e6)))


@fault("settings", "settings", "an attack is given hardly any steps", has("search"))
def option_steps(tables: Tables, rng: Random) -> None:
    set_options(tables, steps=rng.choice((1, 2, 3, 5)))


@fault("settings", "settings", "an attack's prior drowns the update", has("search"))
def option_prior(tables: Tables, rng: Random) -> None:
    set_options(tables, tv=rng.choice((1.0, 100.0, 1e6)))


@fault("settings", "settings", "an attack may look at hardly anything of the update", has("search"))
def option_only(tables: Tables, rng: Random) -> None:
    set_options(tables, only=[rng.choice(("fc.bias", "*.bias", "conv1.bias"))])


@fault("settings", "settings", "an attack starts gray and stays there", has("search"))
def option_start(tables: Tables, rng: Random) -> None:
    set_options(tables, start=rng.choice(("gray", "black")), steps=1)


@fault("settings", "settings", "a weak attack in the place of a strong one", has("search"))
def option_weak_attack(tables: Tables, rng: Random) -> None:
    attack = {"name": "dlg-code", "restarts": 1, "steps": rng.choice((10, 50))}
    tables["attack"] = {"a": attack}


@fault(
    "settings", "settings", "a weak attack beside a strong one that is not told of the defense", has("search", "-alone")
)
def option_weak_beside_strong(tables: Tables, rng: Random) -> None:
    tables["attack"]["weak"] = {
        "name": "invertgrad",
        "steps": 20,
        "restarts": 1,
        "tv": 1e-3,
        "rate": rng.choice((0.0, 1e-9)),
    }


@fault("settings", "settings", "no search is run longer to see whether it has converged")
def option_convergence(tables: Tables, rng: Random) -> None:
    tables["convergence"] = False
    set_options(tables, steps=rng.choice((1, 3, 10)))


@fault("settings", "settings", "a metric is left out")
def option_metrics(tables: Tables, rng: Random) -> None:
    tables["metrics"] = [rng.choice(("psnr", "retrieval"))]


@fault("settings", "settings", "very few pictures")
def option_images(tables: Tables, rng: Random) -> None:
    tables["scenario"]["images"] = rng.choice((1, 2, 3, 4))


@fault("settings", "settings", "a gallery of one picture or two")
def option_gallery(tables: Tables, rng: Random) -> None:
    tables["gallery"] = rng.choice((1, 2))


@fault("settings", "audit", "no controls are run")
def option_no_controls(audit: Audit, rng: Random) -> Audit:
    return replace(audit, controls=False)


@fault("settings", "settings", "the undefended model is left out")
def option_no_undefended(tables: Tables, rng: Random) -> None:
    if len(tables["defense"]) > 1:
        del tables["defense"]["none"]
    set_options(tables, steps=rng.choice((1, 2, 50)))
