"""Real code, changed for as long as one audit runs; and where in the audit the change is felt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from gradveil.audit.plan import Cell

Scope = Callable[[Cell], bool]
SCOPES: dict[str, Scope] = {
    "everywhere": lambda cell: True,
    "defended": lambda cell: not cell.undefended,
    "adaptive": lambda cell: cell.attacker == "adaptive",
    "audited": lambda cell: not cell.control and cell.scenario.name.count("diagnostic") == 0,
}
RUNNER = "gradveil.audit.runner"


@dataclass
class Patch:
    """Changes real code. While `active()` is false a change must do nothing: the cell that runs is out of its scope."""

    monkey: pytest.MonkeyPatch
    scope: str = "everywhere"
    cell: Cell | None = field(default=None, init=False)

    def watch(self) -> None:
        """Note which cell runs."""

        def run_cell(plain: Callable[..., Any], cell: Cell, *rest: Any) -> Any:
            before, self.cell = self.cell, cell
            try:
                return plain(cell, *rest)
            finally:
                self.cell = before

        self.around(f"{RUNNER}.run_cell", run_cell, always=True)

    def active(self) -> bool:
        return self.cell is not None and SCOPES[self.scope](self.cell)

    def draw_scope(self, rng: Random, *among: str) -> None:
        self.scope = rng.choice(among or ("everywhere", "defended"))

    def around(self, target: str, wrapper: Callable[..., Any], always: bool = False) -> None:
        """Put `wrapper(plain, *arguments)` into the place of a function, in every module that has taken it by name."""
        plain, owners, name = _find(target)

        def changed(*args: Any, **kwargs: Any) -> Any:
            if not always and not self.active():
                return plain(*args, **kwargs)
            return wrapper(plain, *args, **kwargs)

        for owner in owners:
            self.monkey.setattr(owner, name, changed)


def _find(target: str) -> tuple[Any, list[Any], str]:
    """`module.function` or `module.Class.method`: the function, who holds it, and under which name."""
    owner, _, name = target.rpartition(".")
    if owner in sys.modules:
        plain = getattr(sys.modules[owner], name)
        modules = [module for key, module in sys.modules.items() if key.startswith("gradveil")]
        return plain, [module for module in modules if vars(module).get(name) is plain], name
    place, _, cls = owner.rpartition(".")
    kind = getattr(sys.modules[place], cls)
    return getattr(kind, name), [kind], name


@contextmanager
def open_patch(inject: Callable[[Patch, Random], Any] | None, rng: Random) -> Iterator[Patch]:
    with pytest.MonkeyPatch.context() as monkey:
        patch = Patch(monkey)
        patch.watch()
        if inject is not None:
            inject(patch, rng)
        yield patch
