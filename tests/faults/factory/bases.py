"""What is audited: settings that leak, and settings that do not though the attacks work."""

from __future__ import annotations

from random import Random

from factory import defenses as own
from factory.base import Tables, base, settings

LINEAR = {"name": "linear"}


def dlg(steps: int = 50, **more: object) -> dict[str, object]:
    return {"name": "dlg", "steps": steps, "restarts": 1, **more}


def invertgrad(steps: int = 200) -> dict[str, object]:
    return {"name": "invertgrad", "steps": steps, "restarts": 1, "tv": 1e-3}


def weak_noise(rng: Random) -> dict[str, object]:
    return {"name": rng.choice(("gaussian", "laplacian")), "scale": rng.choice((1e-4, 3e-4, 1e-3))}


def strong_noise(rng: Random) -> dict[str, object]:
    return {"name": rng.choice(("gaussian", "laplacian")), "scale": rng.choice((5.0, 10.0, 30.0))}


# that leak


@base("leaks", "closed", "alone")
def linear_undefended(rng: Random) -> Tables:
    return settings(rng, LINEAR, None)


@base("leaks", "closed")
def linear_noise(rng: Random) -> Tables:
    return settings(rng, LINEAR, weak_noise(rng))


@base("leaks", "closed")
def linear_prune(rng: Random) -> Tables:
    return settings(rng, LINEAR, {"name": "prune", "ratio": rng.choice((0.05, 0.1, 0.2))})


@base("leaks", "closed", "batch")
def linear_batch(rng: Random) -> Tables:
    return settings(rng, LINEAR, {"name": "gaussian", "scale": 1e-5}, batch_size=rng.choice((2, 3)))


@base("leaks", "search")
def search_noise(rng: Random) -> Tables:
    return settings(rng, dlg(), weak_noise(rng), model=rng.choice(("mlp", "lenet")))


@base("leaks", "search")
def search_prune(rng: Random) -> Tables:
    ratio = rng.choice((0.5, 0.8))
    defense = rng.choice(({"name": "prune", "ratio": ratio}, {"name": "topk", "keep": 1 - ratio}))
    return settings(rng, dlg(), defense, model="lenet")


@base("leaks", "search", "alone")
def search_undefended(rng: Random) -> Tables:
    return settings(rng, dlg(), None, model="lenet")


@base("leaks", "search")
def cosine_noise(rng: Random) -> Tables:
    return settings(rng, invertgrad(), weak_noise(rng), images=8)


@base("leaks", "search", "batch")
def search_batch(rng: Random) -> Tables:
    return settings(rng, dlg(80), weak_noise(rng), model="lenet", batch_size=2, images=8)


@base("leaks", "search")
def search_fedavg(rng: Random) -> Tables:
    return settings(rng, dlg(), weak_noise(rng), local_steps=2, local_rate=0.1, images=8)


@base("leaks", "search")
def search_little_private_noise(rng: Random) -> Tables:
    return settings(rng, dlg(), {"name": "dpsgd", "clip": 1.0, "noise": rng.choice((1e-4, 1e-3))}, images=8)


@base("leaks", "closed", "planted", "batch")
def planted_noise(rng: Random) -> Tables:
    return settings(
        rng, {"name": "rtf", "neurons": 64}, weak_noise(rng), attacker="malicious", batch_size=rng.choice((2, 4))
    )


@base("leaks", "closed", "planted", "batch", "as-fed")
def planted_policy(rng: Random) -> Tables:
    return settings(
        rng, {"name": "rtf", "neurons": 64}, {"name": "ats", "policy": "3-1-7"}, attacker="malicious", batch_size=2
    )


@base("leaks", "closed", "as-fed")
def linear_policy(rng: Random) -> Tables:
    return settings(rng, LINEAR, {"name": "ats", "policy": rng.choice(("3-1-7", "21-13-3"))})


@base("leaks", "search", "as-fed")
def search_policy(rng: Random) -> Tables:
    return settings(rng, dlg(), {"name": "ats", "policy": "3-1-7"}, images=8)


@base("leaks", "search", "surrogate", change=own.use(own.Scrambled))
def search_scrambled(rng: Random) -> Tables:
    """Only who knows the public signs sees anything."""
    return settings(rng, dlg(), None, model=rng.choice(("mlp", "lenet")))


@base("leaks", "search", "surrogate", change=own.use(own.Halved))
def search_halved(rng: Random) -> Tables:
    """Public constants in half of the places; who does not know them fits those, too."""
    return settings(rng, dlg(), None, model=rng.choice(("mlp", "lenet")))


@base("leaks", "closed", "search")
def two_attacks(rng: Random) -> Tables:
    tables = settings(rng, LINEAR, weak_noise(rng), images=8)
    return tables | {"attack": {"a": LINEAR, "b": dlg()}}


@base("leaks", "search", change=own.use(own.NamedStrong))
def named_strong(rng: Random) -> Tables:
    """A defense that does nothing."""
    return settings(rng, dlg(), None)


# that do not


@base("no leak found", "search")
def search_strong_noise(rng: Random) -> Tables:
    return settings(rng, dlg(), strong_noise(rng), model=rng.choice(("mlp", "lenet")))


@base("no leak found", "search")
def cosine_strong_noise(rng: Random) -> Tables:
    return settings(rng, invertgrad(), strong_noise(rng), images=8)


@base("no leak found", "search")
def search_much_private_noise(rng: Random) -> Tables:
    return settings(rng, dlg(), {"name": "dpsgd", "clip": 1.0, "noise": rng.choice((10.0, 30.0))})


@base("no leak found", "search", "batch")
def search_batch_strong_noise(rng: Random) -> Tables:
    return settings(rng, dlg(80), strong_noise(rng), model="lenet", batch_size=2)


@base("no leak found", "search")
def two_attacks_strong_noise(rng: Random) -> Tables:
    tables = settings(rng, LINEAR, strong_noise(rng))
    return tables | {"attack": {"a": LINEAR, "b": dlg()}}


@base("no leak found", "search", change=own.use(own.Fresh))
def search_fresh_noise(rng: Random) -> Tables:
    """The client sends noise as long as its update, and nothing else."""
    return settings(rng, dlg(), None, model=rng.choice(("mlp", "lenet")))


@base("no leak found", "search")
def search_fedavg_strong_noise(rng: Random) -> Tables:
    return settings(rng, dlg(80), strong_noise(rng), local_steps=2, local_rate=0.1, images=8)


@base("no leak found", "search")
def search_rounds_strong_noise(rng: Random) -> Tables:
    return settings(rng, dlg(), strong_noise(rng), model="lenet", rounds=2)


@base("no leak found", "search")
def search_much_noise_by_ratio(rng: Random) -> Tables:
    ratio = rng.choice(({"relative": 100.0}, {"snr": -40.0}))
    return settings(rng, dlg(), {"name": rng.choice(("gaussian", "laplacian")), **ratio})


@base("no leak found", "search")
def search_much_noise_by_layer(rng: Random) -> Tables:
    return settings(rng, dlg(), {"name": "fedcdp", "clip": 1.0, "noise": rng.choice((10.0, 30.0))}, model="lenet")


@base("no leak found", "search")
def search_stack_strong_noise(rng: Random) -> Tables:
    parts = [{"name": "prune", "ratio": 0.5}, {"name": "gaussian", "scale": 10.0}]
    return settings(rng, dlg(), {"name": "stack", "of": parts}, model="lenet")


# that are bounded, whatever attacks do


@base("bounded", "search")
def search_private_noise_bounded(rng: Random) -> Tables:
    """Noise of the size of the clip: among 1,001 candidates at most 1.8 % are named, by anybody."""
    tables = settings(rng, dlg(20), {"name": "dpsgd", "clip": 1.0, "noise": 1.0}, images=8)
    return tables | {"gallery": 1000, "limit_named": 0.1}


@base("bounded", "closed")
def linear_private_noise_bounded(rng: Random) -> Tables:
    """No attack that takes account of the noise is there at all."""
    tables = settings(rng, LINEAR, {"name": "dpsgd", "clip": 1.0, "noise": rng.choice((1.0, 2.0))}, images=8)
    return tables | {"gallery": 1000, "limit_named": 0.1}
