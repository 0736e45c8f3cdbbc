"""The catalogue of attacks: name -> what builds it from keyword arguments. A new attack is one file and one row."""

from collections.abc import Callable

from gradveil.attacks.adam_l1 import adam_l1, adam_l1_ats
from gradveil.attacks.april import april
from gradveil.attacks.april_search import april_search
from gradveil.attacks.autoattack import autoattack
from gradveil.attacks.cah import cah
from gradveil.attacks.coarse_to_fine import coarse_to_fine
from gradveil.attacks.cocktail_party import cocktail_party
from gradveil.attacks.decode_carlini import decode_carlini
from gradveil.attacks.decode_known import decode_known
from gradveil.attacks.dlg import dlg, dlg_code, dlg_joint, dlg_paper
from gradveil.attacks.gradinversion import (
    gradinversion,
    gradinversion_ats,
    gradinversion_full,
    gradinversion_full_paper,
)
from gradveil.attacks.headless import headless
from gradveil.attacks.invertgrad import invertgrad, invertgrad_ats, invertgrad_unsigned
from gradveil.attacks.known_policy import affine, known_policy, shifted, shifted_re_ats
from gradveil.attacks.lbfgs_cosine import lbfgs_cosine, lbfgs_cosine_code
from gradveil.attacks.learned_inverter import learned_inverter
from gradveil.attacks.linear import linear
from gradveil.attacks.linear_model import linear_model
from gradveil.attacks.loda_inverse import loda_inverse, loda_inverse_paper
from gradveil.attacks.portfolio import portfolio
from gradveil.attacks.r_gap import r_gap
from gradveil.attacks.rog import rog, rog_code, rog_paper
from gradveil.attacks.rogs import rogs, rogs_paper
from gradveil.attacks.rtf import rtf
from gradveil.attacks.sgd_cosine import sgd_cosine, sgd_cosine_ats
from gradveil.attacks.spear import spear
from gradveil.attacks.unmix import unmix
from gradveil.core.attack import Attack

ATTACKS: dict[str, Callable[..., Attack]] = {
    "autoattack": autoattack,
    "invertgrad": invertgrad,
    "invertgrad-ats": invertgrad_ats,
    "invertgrad-unsigned": invertgrad_unsigned,
    "headless": headless,
    "coarse-to-fine": coarse_to_fine,
    "portfolio": portfolio,
    "known-policy": known_policy,
    "shifted": shifted,
    "shifted-re-ats": shifted_re_ats,
    "affine": affine,
    "dlg": dlg,
    "dlg-code": dlg_code,
    "dlg-paper": dlg_paper,
    "dlg-joint": dlg_joint,
    "lbfgs-cosine": lbfgs_cosine,
    "lbfgs-cosine-code": lbfgs_cosine_code,
    "adam-l1": adam_l1,
    "adam-l1-ats": adam_l1_ats,
    "gradinversion": gradinversion,
    "gradinversion-ats": gradinversion_ats,
    "gradinversion-full": gradinversion_full,
    "gradinversion-full-paper": gradinversion_full_paper,
    "sgd-cosine": sgd_cosine,
    "sgd-cosine-ats": sgd_cosine_ats,
    "rog": rog,
    "rog-code": rog_code,
    "rog-paper": rog_paper,
    "rogs": rogs,
    "rogs-paper": rogs_paper,
    "learned-inverter": learned_inverter,
    "loda-inverse": loda_inverse,
    "loda-inverse-paper": loda_inverse_paper,
    "linear": linear,
    "april": april,
    "april-search": april_search,
    "spear": spear,
    "cocktail-party": cocktail_party,
    "r-gap": r_gap,
    "linear-model": linear_model,
    "rtf": rtf,
    "cah": cah,
    "decode-known": decode_known,
    "decode-carlini": decode_carlini,
    "unmix": unmix,
}
