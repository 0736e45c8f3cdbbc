"""The efforts by which a run with limited time searches: the same attack with a share of its steps, then with more.

Each effort is an attack label of its own in the journal, `portfolio@1/16` beside `portfolio` for the whole one. The
shares do not depend on the time, so that a longer run adds to a shorter one. A smaller effort can show that a picture
leaks, and is no evidence that one does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gradveil.core.attack import Attack

RUNGS = (1024, 256, 64, 16, 4)  # one in so many steps
MARK = "@1/"  # no label that a user gives holds it


def rung_of(label: str) -> int:
    """One in how many steps: 1 for the whole attack.

    >>> rung_of("portfolio@1/16"), rung_of("portfolio")
    (16, 1)
    """
    _, mark, share = label.rpartition(MARK)
    return int(share) if mark and share.isdigit() and int(share) > 1 else 1


def base_of(label: str) -> str:
    """The label of the whole attack.

    >>> base_of("portfolio@1/16"), base_of("portfolio")
    ('portfolio', 'portfolio')
    """
    return label if rung_of(label) == 1 else label.rpartition(MARK)[0]


def is_whole(label: str) -> bool:
    """Whether these are all the steps of an attack."""
    return rung_of(label) == 1


def effort_of(label: str) -> Fraction:
    return Fraction(1, rung_of(label))


def name_rung(label: str, rung: int) -> str:
    return f"{label}{MARK}{rung}"


def takes_steps(attack: Attack) -> bool:
    """Whether there is less of it to be had."""
    return attack.evaluations is not None and attack.scaled(1 / RUNGS[-1]) is not None


def count_most(attack: Attack) -> int:
    """How often it plays a client's round again at most; 1 where that is not a matter of steps."""
    return attack.evaluations[1] if attack.evaluations else 1


def rungs_of(attacks: Mapping[str, Attack], rung: int) -> dict[str, Attack]:
    """The attacks that take steps with one in so many of them, where that is less than the next larger effort."""
    found: dict[str, Attack] = {}
    for label, attack in attacks.items():
        shorter, longer = (attack.scaled(1 / one) if one > 1 else attack for one in (rung, rung // 4))
        if takes_steps(attack) and shorter and longer and count_most(shorter) < count_most(longer):
            found[name_rung(label, rung)] = shorter
    return found
