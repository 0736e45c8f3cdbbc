"""The catalogue of defenses: name -> what builds it from keyword arguments."""

from collections.abc import Callable

from gradveil.defenses.ats import Ats
from gradveil.defenses.base import Defense
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.precode import Precode
from gradveil.defenses.prune import Prune
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.random_policy import random_policy
from gradveil.defenses.sign import Sign
from gradveil.defenses.soteria import Soteria
from gradveil.defenses.stack import stack
from gradveil.defenses.topk import TopK
from gradveil.defenses.uniform import Uniform

DEFENSES: dict[str, Callable[..., Defense]] = {
    "none": Defense,
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "prune": Prune,
    "topk": TopK,
    "sign": Sign,
    "uniform": Uniform,
    "qsgd": Qsgd,
    "ats": Ats,
    "random-policy": random_policy,
    "dpsgd": Dpsgd,
    "fedcdp": FedCdp,
    "soteria": Soteria,
    "precode": Precode,
    "stack": stack,
}
