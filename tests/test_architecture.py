"""What the documents say about the structure of the code, held by the code itself: layers, cycles, doors and names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src/gradveil"

# A room imports from layers above its own alone, and never from a neighbor on the same line.
LAYERS = """
core
data models transforms
metrics defenses
generators dp wire
lineup
engine
attacks
experiment
audit
report
capture
config
doctor
inspection
train
search protect calibrate
tradeoff
recommend
flower nvflare
bench
cli
"""
RANK = {room: rank for rank, line in enumerate(LAYERS.split("\n")) for room in line.split()}
ALONE = {"flwr": "flower/", "nvflare": "nvflare/", "dp_accounting": "dp/", "ray": "experiment/parallel/"}
PARTICIPLE = re.compile(
    r"_?(told|said|held|kept|made|seen|found|moved|checked|asked|prepared|trained|written|taken|given|drawn|joined|"
    r"sorted|stacked|shifted|changed|known|left|put|cut|split|read_off|compared|built|shown|named|counted|ordered|"
    r"turned|filled|closed|opened)"
)
OPTION = re.compile(r"(?<![\w(<!-])--[a-z]")  # not: `var(--x)`, `<!--note-->`


@cache
def trees() -> dict[str, ast.Module]:
    """Every file by its path in the package."""
    return {str(file.relative_to(SOURCE)): ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}


@cache
def modules() -> dict[str, str]:
    """Every module by its dotted name."""
    return {f"gradveil/{f}".removesuffix(".py").removesuffix("/__init__").replace("/", "."): f for f in trees()}


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Dotted names: of `from a import b` the module `a.b`, where there is one, else `a`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules() else str(node.module) for name in whole)


def imports(file: str) -> list[str]:
    """All of a file, those inside functions and those for checkers of types too."""
    return list(imported(ast.walk(trees()[file])))


def at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What runs when a module is imported."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            for inner in ("body", "orelse", "finalbody", "handlers"):
                yield from at_import(getattr(node, inner, []))


def files_with(finds: Callable[[ast.AST], bool]) -> set[str]:
    return {file for file, tree in trees().items() if any(finds(node) for node in ast.walk(tree))}


def test_imports_go_one_way() -> None:
    ours = [(f, name) for f in trees() if "/" in f for name in imports(f) if name.split(".")[0] == "gradveil"]
    assert len(ours) > 1000
    rooms = [(file, name, file.split("/")[0], f"{name}.".split(".")[1]) for file, name in ours]
    assert not [
        (file, name) for file, name, here, there in rooms if here != there and RANK[here] <= RANK.get(there, 99)
    ]


def test_no_module_needs_itself() -> None:
    needs = {name: set(imported(at_import(trees()[file].body))) & set(modules()) for name, file in modules().items()}
    while free := {name for name, others in needs.items() if not others - {name}}:
        needs = {name: others - free for name, others in needs.items() if name not in free}
    assert not needs, "a cycle among these, or what imports them"


@pytest.mark.parametrize(("library", "home"), ALONE.items())
def test_one_room_alone_knows_the_library(library: str, home: str) -> None:
    users = {file for file in trees() if any(name.split(".")[0] == library for name in imports(file))}
    assert users
    assert all(file.startswith(home) for file in users), users


def test_options_are_written_by_the_command_line_alone() -> None:
    found = files_with(lambda node: isinstance(node, ast.Constant) and bool(OPTION.search(str(node.value))))
    assert not {file for file in found if not file.startswith("cli/")}


def test_an_attack_cannot_reach_the_truth() -> None:
    def names_it(node: ast.AST) -> bool:
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        return "Truth" in [*names, getattr(node, "id", ""), getattr(node, "attr", "")]

    assert not {file for file in files_with(names_it) if file.startswith(("attacks/", "engine/"))}


@pytest.mark.parametrize("kind", ["Observation", "Truth"])
def test_what_an_attack_sees_has_one_maker(kind: str) -> None:
    def makes_it(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and kind in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))

    assert files_with(makes_it)
    assert files_with(makes_it) <= {"core/server.py", "core/observation.py"}


def test_every_room_says_what_it_is_and_stands_in_the_layers() -> None:
    rooms = [file for file in trees() if file.endswith("__init__.py")]
    assert all(ast.get_docstring(trees()[file]) for file in rooms)
    assert {file.split("/")[0] for file in rooms if "/" in file} == set(RANK)
    assert {str(file.relative_to(SOURCE)) for file in SOURCE.iterdir() if file.is_file()} <= {
        "__init__.py",
        "__main__.py",
        "py.typed",
    }


def test_functions_are_verbs() -> None:
    assert not files_with(
        lambda node: isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and bool(PARTICIPLE.fullmatch(node.name))
    )


def test_nothing_is_named_told() -> None:
    def names_it(node: ast.AST) -> bool:
        return "told" in (getattr(node, field, "") for field in ("id", "attr", "arg", "name", "asname"))

    assert not files_with(names_it)
