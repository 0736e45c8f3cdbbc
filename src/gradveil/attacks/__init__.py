"""The catalogue of attacks: name -> what builds it from keyword arguments. A new attack is one file and one row."""

from collections.abc import Callable

from gradveil.attacks.base import Attack
from gradveil.attacks.dlg import dlg
from gradveil.attacks.invertgrad import invertgrad, invertgrad_ats
from gradveil.attacks.linear import linear

ATTACKS: dict[str, Callable[..., Attack]] = {
    "invertgrad": invertgrad,
    "invertgrad-ats": invertgrad_ats,
    "dlg": dlg,
    "linear": linear,
}
