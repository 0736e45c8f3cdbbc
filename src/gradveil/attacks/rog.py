"""ROG, reconstruction from obfuscated gradients (Yue et al., 2023): a search in fewer numbers, then an enhancer.

Squared distance, Adam at 0.05 with a cosine decay, 100 steps through all local steps of the round. Three presets:

|            | start                          | distance divided by         | decays to | box   | TV   |
|------------|--------------------------------|-----------------------------|-----------|-------|------|
| `rog`      | gray, small                    | the update's own square     | 0.1       | [0,1] | 1e-2 |
| `rog-code` | uniform, small                 | the same: Adam sees no unit | 0.1       | none  | none |
| `rog-paper`| uniform, full size, made small | nothing                     | 0         | none  | none |

The code divides the update by the local rate, which is a factor too. It also evaluates the rate one step late, and its
enhancer is another (`finish = "enhance"` takes the one that `gradveil train-generator enhancer` makes).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import L2, Distance
from gradveil.engine.finish import Enhance, Finish, Sequence, clamp, equalize
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Adam, CosineDecay
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.bicubic import Bicubic
from gradveil.engine.spaces.generator import Decoded
from gradveil.engine.spaces.space import Pixels, Space, Start

PAPER = Paper(
    "Gradient Obfuscation Gives a False Sense of Security in Federated Learning",
    "Yue et al.",
    2023,
    "USENIX Security, arXiv:2206.04055",
)
SpaceName = Literal["bicubic", "autoencoder", "gan", "pixels"]
FinishName = Literal["clamp", "enhance", "equalize", "equalize+enhance"]
RELATIVE = partial(L2, relative=True)
PARTS = ("distance", "floor", "boxed", "encoded")  # of the search; what tells the presets apart
OPTIONS = """
`space`: what is searched, `bicubic` pictures `factor` times smaller, the latents of an `autoencoder` or a `gan`, or
`pixels`; `weights`: the file of the autoencoder or GAN; `finish`: what happens to the pictures at the end, `enhance`
with the network in the file `enhancer`; `rate`: of Adam; `tv`: weight of total variation; `steps`: steps per start;
`restarts`: starts per picture; `start`: the picture to start from, `normal` or `uniform` noise, `gray` or `black`;
`only`, `without`: patterns of the parameters to match or to leave out.
"""


def search_small_pictures(
    *,
    steps: int = 100,
    space: SpaceName = "bicubic",
    factor: int = 4,
    weights: str = "",
    finish: FinishName = "clamp",
    enhancer: str = "",
    rate: float = 0.05,
    tv: float = 0.0,
    restarts: int = 1,
    start: Start = "uniform",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    distance: Callable[..., Distance] = RELATIVE,
    floor: float = 0.1,
    boxed: bool = False,
    encoded: bool = False,
) -> Inversion:
    """Squared distance and Adam over fewer numbers than there are pixels."""
    return Inversion(
        distance=distance(only=only, without=without),
        space=space_of(space, Bicubic(factor=factor, start=start, encoded=encoded, boxed=boxed), weights),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Adam(rate=rate, schedule=CosineDecay(floor=floor)),
        steps=steps,
        restarts=restarts,
        finish=finish_of(finish, enhancer),
    )


rog = Preset(
    search_small_pictures,
    f"ROG with our constants: searches for a small picture, from gray, in [0, 1], with some TV.\n{OPTIONS}",
    fixed=PARTS, boxed=True, start="gray", tv=1e-2,
)  # fmt: skip
rog_code = Preset(
    search_small_pictures,
    f"ROG with the constants of its code: starts from noise, no box, no TV, the rate falls to a tenth.\n{OPTIONS}",
    fixed=PARTS,
)
rog_paper = Preset(
    search_small_pictures,
    f"ROG as its paper describes it: starts from a reduced picture of noise, sum of squares.\n{OPTIONS}",
    fixed=PARTS, distance=L2, floor=0.0, encoded=True,
)  # fmt: skip


def space_of(name: SpaceName, coarse: Bicubic, weights: str) -> Space:
    """What is searched; `pixels` is the ablation without a projection, in the same units and from the same start."""
    if bool(weights) != (name in ("autoencoder", "gan")):
        reason = "space is neither autoencoder nor gan, leave it out" if weights else "none is given, give its file"
        raise ConfigError(reason, key="rog: weights")
    if weights:
        return generator_space(name, weights)
    return coarse if name == "bicubic" else Pixels(start=coarse.start, normalized=False, boxed=coarse.boxed)


def generator_space(name: SpaceName, weights: str) -> Decoded:
    """The space of the pictures that the network in a file can draw."""
    from gradveil.generators.generator import AUTOENCODER, kind_of, load_generator

    kind = kind_of(weights)  # which refuses code: a config never names any
    if (kind == AUTOENCODER) != (name == "autoencoder"):
        raise ConfigError(f"weights: {weights} holds a generator of kind {kind}, which is not {name}", key="rog")
    return Decoded(
        generator=load_generator(weights), start="encoded" if name == "autoencoder" else "normal", file=weights
    )


def finish_of(name: FinishName, enhancer: str) -> Finish:
    """What happens to the pictures at the end."""
    enhances = name.endswith("enhance")
    if enhances != bool(enhancer):
        reason = "none is given, give its file" if enhances else "finish does not enhance, take finish = 'enhance'"
        raise ConfigError(reason, key="rog: enhancer")
    if enhances and not Path(enhancer).is_file():
        raise ConfigError(
            f"enhancer: {enhancer}: no such file, make one with gradveil train-generator enhancer", key="rog"
        )
    if name == "equalize+enhance":
        return Sequence((equalize, Enhance(enhancer)))
    return Enhance(enhancer) if enhances else equalize if name == "equalize" else clamp
