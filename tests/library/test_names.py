"""`import gradveil`: what a user imports is there, typed, and imported when it is first used."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gradveil

HOME = Path(str(gradveil.__file__)).parent
PACKAGES = sorted(gradveil._FUNCTIONS)


def typed_names() -> dict[str, tuple[str, str]]:
    """Name -> module and name there, of the imports that checkers of types read."""
    tree = ast.parse((HOME / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert all(isinstance(node, ast.ImportFrom) for node in block.body)
    return {
        str(a.asname): (str(n.module), a.name) for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names
    }


def test_the_table_and_the_typed_imports_agree() -> None:
    typed = typed_names()
    assert set(typed) == {*gradveil._HOME, *gradveil._FUNCTIONS}
    for name, (module, there) in typed.items():
        found = getattr(gradveil, name)
        found = found.__wrapped__ if inspect.ismodule(found) else found
        assert found is getattr(import_module(module), there)


def test_every_name_is_listed_and_others_are_not_there() -> None:
    assert {*gradveil.__all__} <= {*dir(gradveil)}
    with pytest.raises(AttributeError, match="nonsense"):
        gradveil.nonsense  # type: ignore[attr-defined]  # noqa: B018


def run_alone(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = run_alone("import sys, gradveil; dir(gradveil); print({'torch', 'numpy', 'flwr', 'ray'} & {*sys.modules})")
    assert heavy.strip() == "set()"
    assert (
        run_alone("import sys, gradveil; gradveil.audit, gradveil.run_audit; print('flwr' in sys.modules)") == "False\n"
    )


@pytest.mark.parametrize("first", ["import gradveil.{0}.{1}", "gradveil.{0}", "from gradveil import {0}"])
def test_a_package_of_the_name_of_a_function_is_both(first: str) -> None:
    """Whatever is imported first; in a process of its own, since modules stay."""
    code = ["import gradveil"]
    for name in PACKAGES:
        module = next(file.stem for file in sorted((HOME / name).glob("*.py")) if file.stem != "__init__")
        code += [first.format(name, module), f"import gradveil.{name}.{module} as module"]
        code += [f"print(callable(gradveil.{name}), gradveil.{name}.{module} is module)"]
    assert run_alone("\n".join(code)).splitlines() == ["True True"] * len(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_argument_of_a_function_has_its_clause(name: str) -> None:
    function = getattr(gradveil, name)
    text = function.__wrapped__.__doc__ or ""
    arguments = inspect.signature(function).parameters
    missing = [argument for argument in arguments if not re.search(rf"^ +{argument}: ", text, re.M)]
    assert not missing


@pytest.mark.parametrize("name", ["gradveil", "gradveil.audit"])
def test_a_package_can_be_sent_to_another_process(name: str) -> None:
    """Ray pickles what the functions of a user's script refer to."""
    module = import_module(name)
    assert pickle.loads(pickle.dumps(module)) is module
