"""Results of different attacks on the same updates, held against each other by what the attacker sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradveil.core.attack import Reconstruction
from gradveil.core.observation import Observation
from gradveil.engine.distance import Cosine
from gradveil.engine.finish import ROUGHNESS, SMOOTHEST
from gradveil.engine.matcher import Loop, OneTrial
from gradveil.engine.priors.prior import TotalVariation


def compare(got: Reconstruction, seen: Observation) -> Reconstruction:
    """With 1 - cosine over all layers as its loss, whatever the attack minimized; one that broke down stays so.

    Its own labels count, given ones too: a closed form may find a batch in another order. What it supposes to have been
    fed is left out: of several attacks only some suppose anything.
    """
    like = next(iter(seen.update.values()))
    seen = replace(seen, labels=got.labels.to(like))
    matcher, images = Loop(OneTrial.of(seen, Cosine())), got.images.to(like).nan_to_num(0, 0, 0)
    views = seen.knowledge.views  # an attack reports the picture as fed or before that
    match = torch.stack([matcher(images)[0], *(matcher(view.apply(images))[0] for view in views)]).amin(0)
    return replace(got, loss=match.masked_fill(~got.loss.isfinite().to(match.device), torch.nan), fed=None)


def score_of(got: Reconstruction) -> Tensor:
    """match * roughness ** ROUGHNESS of each client, lower is better; not a number where the attack broke down or says
    that it has found nothing: a gray picture is smooth, and would beat the search that sees a batch as a blur."""
    rough = TotalVariation().of(got.images.float()).clamp_min(SMOOTHEST) ** ROUGHNESS
    score = got.loss.clamp_min(1e-12) * rough
    return score.masked_fill(~got.found.any(1).to(score.device), torch.nan).float().cpu()


def keep_better(
    best: Reconstruction, got: Reconstruction, score: Tensor, left: Sequence[int]
) -> tuple[Reconstruction, Tensor]:
    """Where a result on the clients `left` has the lower score and explains no less, it takes the place."""
    new = score_of(got)
    explains = got.loss.cpu() <= best.loss.cpu()[list(left)]
    better = [
        place
        for place, client in enumerate(left)
        if new[place] < score[client] and (explains[place] or score[client].isinf())  # false for NaN
    ]
    to = [left[place] for place in better]

    def take_better(old: Tensor, fresh: Tensor) -> Tensor:
        old = old.clone()
        old[to] = fresh[better].to(old)
        return old

    fields = ("images", "labels", "found", "loss", "converged", "broke")
    both = {name: (getattr(best, name), getattr(got, name)) for name in fields}
    merged = {name: None if a is None or b is None else take_better(a, b) for name, (a, b) in both.items()}
    backend = best.backend if got.backend in best.backend else f"{best.backend}, {got.backend}"
    fell_back = best.fell_back or got.fell_back
    return replace(best, **merged, backend=backend, fell_back=fell_back), take_better(score, new)
