"""A row of a catalogue: what builds a method, or a preset of it, with its one-line summary and its paper.

A catalogue (`ATTACKS`, `DEFENSES`) maps a name to a factory: a function, a class or a `Preset`. A preset is a factory
with other defaults: values in a table, where a function would repeat the signature. Its options are those of the
factory (`gradveil.core.check.options_of` reads them), less those in `fixed`. What a list of methods shows of a row:
`summary_of(row)` is the first line of its docstring or of the preset's text, `paper_of(row)` the `PAPER` of the module
in which the factory or the preset is written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Preset(Generic[P, T]):
    """A factory with other default values.

    `text` is its docstring, of which the first line is the summary; `fixed` names options that keep their value and
    are not offered; `defaults` are the values that differ.

    >>> def spin(*, speed: float = 1.0, axis: str = "x") -> str:
    ...     return f"{speed} around {axis}"
    >>> fast = Preset(spin, "Fast around y.", fixed=("axis",), speed=9.0, axis="y")
    >>> fast(), fast(speed=2.0), inspect.signature(fast)
    ('9.0 around y', '2.0 around y', <Signature (*, speed: 'float' = 9.0) -> 'str'>)
    """

    def __init__(self, factory: Callable[P, T], text: str, /, *, fixed: tuple[str, ...] = (), **defaults: Any) -> None:
        signature = inspect.signature(factory)
        if strange := {*fixed, *defaults} - set(signature.parameters):
            raise TypeError(f"the preset sets {', '.join(sorted(strange))}, which its factory does not take")
        parameters = [
            parameter.replace(default=defaults.get(name, parameter.default))
            for name, parameter in signature.parameters.items()
            if name not in fixed
        ]
        self.factory, self.fixed, self.defaults = factory, fixed, defaults
        self.__wrapped__ = factory  # where annotations are found
        self.__signature__ = signature.replace(parameters=parameters)
        self.__doc__ = text
        self.__module__ = sys._getframe(1).f_globals["__name__"]  # where it is written, whose `PAPER` is its own

    def __call__(self, *args: P.args, **options: P.kwargs) -> T:
        given = self.__signature__.bind(*args, **options).arguments  # TypeError for what it does not take
        return self.factory(**{**self.defaults, **given})  # type: ignore[call-arg]


def summary_of(row: Callable[..., Any]) -> str:
    """One line on what a row of a catalogue builds."""
    return (inspect.getdoc(row) or "").partition("\n")[0]


def fact_of(row: object, name: str, default: T) -> T:
    """What the class of a method states of itself, such as `stronger` of a defense; also where a row is a preset of it.

    >>> class Spin:
    ...     stronger = ("speed",)
    >>> fact_of(Preset(Spin, "A preset."), "stronger", ()), fact_of(len, "stronger", ())
    (('speed',), ())
    """
    return getattr(inspect.unwrap(row), name, default) if callable(row) else default


def paper_of(row: Callable[..., Any]) -> Any:
    """The paper that a row comes from: `PAPER` of its module, or None."""
    return getattr(sys.modules[row.__module__], "PAPER", None)
