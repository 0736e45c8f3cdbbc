"""The catalogue of defenses: name -> what builds it from keyword arguments."""

from collections.abc import Callable

from gradveil.defenses.base import Defense
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.prune import Prune
from gradveil.defenses.stack import stack

DEFENSES: dict[str, Callable[..., Defense]] = {
    "none": Defense,
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "prune": Prune,
    "stack": stack,
}
