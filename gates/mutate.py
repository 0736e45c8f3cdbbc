"""Small faults in a module, one at a time: another comparison, constant, operator or result, or a statement less."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
CONDITIONS = (ast.If, ast.IfExp, ast.While, ast.comprehension)


@dataclass(frozen=True)
class Mutant:
    """One fault: `code` is the whole module with it, `before` and `after` the part that differs."""

    module: str
    line: int
    kind: str
    before: str
    after: str
    place: int  # among all faults of the module
    code: ast.Module

    @property
    def key(self) -> str:
        """The same as long as the function around it is the same and there is no other fault like it before it."""
        text = f"{self.module}|{self.kind}|{self.before}|{self.after}|{self.place}|{ast.dump(self.code)}"
        return blake2b(text.encode(), digest_size=8).hexdigest()


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every fault of the module, in the order of its text."""
    tree = ast.parse(source)
    nodes = list(mutable(tree))
    place = 0
    for number, node in enumerate(nodes):
        for change in range(len(list(changes(node)))):
            faulty = copy.deepcopy(tree)
            target = list(mutable(faulty))[number]
            kind, apply = list(changes(target))[change]
            before = first_line(target)
            apply()
            ast.fix_missing_locations(faulty)
            line = getattr(target, "lineno", 0) or getattr(getattr(target, "iter", None), "lineno", 0)
            yield Mutant(module, line, kind, before, first_line(target), place, faulty)
            place += 1


def first_line(node: ast.AST) -> str:
    return ast.unparse(node).strip().splitlines()[0]


def mutable(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of the code itself: no annotations, no decorators, no texts, nothing that only a type checker reads."""
    waiting: list[ast.AST] = list(reversed(tree.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom) or is_for_types(node):
            continue
        yield node
        waiting += reversed(list(children(node)))


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.JoinedStr):
            continue  # texts
        each = value if isinstance(value, list) else [value]
        yield from (one for one in each if isinstance(one, ast.AST))


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """What can be done to one node."""
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            if type(operator) in COMPARE:
                yield "comparison", Change(node.ops, number, COMPARE[type(operator)]())
    if isinstance(node, ast.BoolOp):
        yield "boolean", Change(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY and not is_text(node):
        yield "arithmetic", Change(node, "op", BINARY[type(node.op)]())
    if isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        yield "arithmetic", Change(node, "op", BINARY[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "condition", Change(node, "op", ast.UAdd())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "constant", Change(node, "value", other_number(node.value))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield "call", Change(node.func, "id", CALLS[node.func.id])
    yield from of_statements(node)


def of_statements(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition", Change(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension):
        for number, test in enumerate(node.ifs):
            yield "condition", Change(node.ifs, number, ast.UnaryOp(ast.Not(), test))
    if isinstance(node, ast.Return) and node.value is not None and not is_none(node.value):
        yield "result", Change(node, "value", ast.Constant(None))
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        yield "statement", Change(node, "value", ast.Constant(None))


def is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def other_number(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 2 + 0.01


@dataclass(frozen=True)
class Change:
    """Another value in one field, or at one place of a list."""

    where: object
    at: str | int
    value: object

    def __call__(self) -> None:
        if isinstance(self.where, list) and isinstance(self.at, int):
            self.where[self.at] = self.value
        else:
            setattr(self.where, str(self.at), self.value)
