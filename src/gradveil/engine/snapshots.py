"""An attack watched on its way: the pictures that it feeds to its copy of the model after so many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images
from gradveil.engine.backend import choose
from gradveil.engine.descent import eager
from gradveil.engine.inversion import Inversion
from gradveil.engine.priors.prior import applicable


def trace_search(
    attack: Inversion, seen: Observation, seed: Seed, compute: Compute = Compute(), *, at: Sequence[int]
) -> Images:
    """The first restart of every client [client, moment, example, ...], at steps in ascending order, 0 the start.

    The same way that `reconstruct` goes; an attacker who knows the defense is watched as if it did not.
    """
    seen = replace(seen.unaware(), labels=attack.infer_labels(seen))
    attack = replace(attack, priors=applicable(attack.priors, seen)[0])
    with compute.active(), torch.no_grad():
        backend = choose(seen, attack.distance, compute.backend)
        descent, start = attack.prepare(seen, seed, backend, [(client, 0) for client in range(len(seen.names))])
        carry = descent.begin(start)
        step, taken, looks = eager(descent, carry), 0, []
        for moment in at:
            while taken < moment:
                carry, taken = step(), taken + 1
            z = {name.removeprefix("z."): x for name, x in carry.items() if name.startswith("z.")}
            looks.append(descent.objective.space.decode(z))
    return torch.stack(looks, 1)
