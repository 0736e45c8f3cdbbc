"""The catalogue of defenses: name -> what builds it from keyword arguments."""

from collections.abc import Callable, Mapping

from gradveil.core.check import check_options, missing_options
from gradveil.core.choice import Choice, parse_choice
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, GradveilError, unknown
from gradveil.defenses.ats import Ats
from gradveil.defenses.clip import Clip
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.instahide import instahide
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.local_dp import LocalDp
from gradveil.defenses.loda.loda import PRESETS as LODA_PRESETS
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.oasis import PRESETS as OASIS_PRESETS
from gradveil.defenses.oasis import Oasis
from gradveil.defenses.percentile import Percentile
from gradveil.defenses.precode import Precode
from gradveil.defenses.prune import Prune
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.random_policy import random_policy
from gradveil.defenses.sign import Sign
from gradveil.defenses.soteria import Soteria
from gradveil.defenses.stack import stack
from gradveil.defenses.svt import Svt
from gradveil.defenses.topk import TopK
from gradveil.defenses.uniform import Uniform

DEFENSES: dict[str, Callable[..., Defense]] = {
    "none": Defense,
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "clip": Clip,
    "prune": Prune,
    "topk": TopK,
    "percentile": Percentile,
    "svt": Svt,
    "local-dp": LocalDp,
    "sign": Sign,
    "uniform": Uniform,
    "qsgd": Qsgd,
    "ats": Ats,
    "random-policy": random_policy,
    "oasis": Oasis,
    **OASIS_PRESETS,
    "loda": Loda,
    **LODA_PRESETS,
    "mixup": Mixup,
    "instahide": instahide,
    "dpsgd": Dpsgd,
    "fedcdp": FedCdp,
    "soteria": Soteria,
    "precode": Precode,
    "stack": stack,
}


def find_defense(shapes: Mapping[str, tuple[int, ...]]) -> Choice | None:
    """The defense that changed the model whose weights have these shapes, by name; None: there is no trace of one."""
    classes = {name: row for name, row in DEFENSES.items() if isinstance(row, type)}
    found = ((name, row.find_in(shapes)) for name, row in classes.items())
    return next((Choice(name=name, options=options) for name, options in found if options is not None), None)


def parse_defense(text: str, where: str = "defense") -> Defense:
    """Names, options and ranges checked as by an audit.

    >>> parse_defense("prune:ratio=0.5")
    Prune(ratio=0.5)
    """
    choice = parse_choice(text, where, DEFENSES)
    if choice.name not in DEFENSES:
        raise unknown("defense", choice.name, DEFENSES, where)
    factory = DEFENSES[choice.name]
    options = check_options(factory, choice.options, lambda key: f"{where}: {key}", f"{choice.name}.")
    if missing := missing_options(factory, options):
        raise ConfigError(f"{where}: {choice.name} needs {', '.join(missing)}")
    try:
        return factory(**options)
    except (GradveilError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
