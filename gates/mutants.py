"""Mutation testing: which small faults in the verdict, the bounds and the journal do the tests not see?

    python gates/mutants.py --minutes 60 --write docs/mutants.md

Each mutant runs in a process of its own, forked from one that has everything imported but the modules at test, against
the tests of its module, up to the first that fails. Results are kept in a file, so an interrupted run goes on, and a
mutant of code that has not changed is not run again.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from mutate import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
VERDICT = ["tests/audit/verdict", "--ignore=tests/audit/verdict/test_tuning.py"]
MODULES = {  # what is mutated, and the tests that must see it, the quickest first; the first pattern that fits counts
    "src/gradveil/audit/verdict/oracle.py": ["tests/audit/test_oracle.py", *VERDICT],
    "src/gradveil/audit/verdict/masking.py": ["tests/audit/test_masking.py", *VERDICT],
    "src/gradveil/audit/verdict/*.py": VERDICT,
    "src/gradveil/core/interval.py": ["tests/core/test_interval.py", *VERDICT],
    "src/gradveil/experiment/journal.py": ["tests/experiment/test_journal.py", "tests/faults/test_torn.py"],
}
BEFORE = ("pytest", "torch", "numpy", "scipy.special", "scipy.stats", "safetensors.torch", "jinja2", "skimage.metrics",
          "gradveil.attacks", "gradveil.defenses", "gradveil.data", "gradveil.models")  # fmt: skip
PATIENCE = 5.0  # times the processor time that the tests take on the true code


REWRITE = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that are imported already


class Faulty(SourceFileLoader):
    """Loads the mutant instead of the file."""

    def __init__(self, name: str, path: str, code: ast.Module) -> None:
        super().__init__(name, path)
        self.faulty = code

    def get_code(self, fullname: str) -> Any:
        return compile(self.faulty, self.path, "exec")


class Finder:
    """Finds the mutant before anybody finds the file."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = module_name(mutant.module)
        self.loader = Faulty(self.name, str(ROOT / mutant.module), mutant.code)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        package = [str(Path(self.loader.path).parent)] if self.loader.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.loader.path, loader=self.loader, submodule_search_locations=package
        )


def module_name(path: str) -> str:
    return ".".join((ROOT / path).relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def all_mutants() -> Iterator[tuple[Mutant, list[str]]]:
    suites: dict[str, list[str]] = {}
    for pattern, tests in MODULES.items():
        for path in sorted(ROOT.glob(pattern)):
            suites.setdefault(path.relative_to(ROOT).as_posix(), tests)
    for name, tests in sorted(suites.items()):
        yield from ((mutant, tests) for mutant in mutants_of(name, (ROOT / name).read_text()))


def run_tests(tests: Sequence[str], mutant: Mutant | None, limit: float) -> tuple[str, float]:
    """`killed`, `survived` or `timeout`, and the seconds that it took."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(in_child(tests, mutant, limit))
    _, status, used = os.wait4(child, 0)
    seconds = time.monotonic() - start
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return "timeout" if late else "killed", seconds
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed", used.ru_utime + used.ru_stime


def in_child(tests: Sequence[str], mutant: Mutant | None, limit: float) -> int:
    import resource

    import pytest

    whole = max(2, round(limit))
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(20 * whole)  # one that waits uses no processor time
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if mutant is not None:
        sys.meta_path.insert(0, Finder(mutant))  # type: ignore[arg-type]
    os.chdir(ROOT)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", REWRITE, "-m", "not slow and not more"]
    try:
        return int(pytest.main([*options, *tests]))
    except BaseException:
        return 1


def preload() -> None:
    """Everything but the modules at test, which each mutant imports anew."""
    for name in BEFORE:
        __import__(name)
    tested = {module_name(p.relative_to(ROOT).as_posix()) for pattern in MODULES for p in ROOT.glob(pattern)}
    if there := tested & sys.modules.keys():
        raise SystemExit(f"{', '.join(sorted(there))}: imported too early, mutants of it would not be seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="mutants, drawn at random (default: all)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", help="modules whose path contains this")
    parser.add_argument("--state", type=Path, default=ROOT / "runs" / "mutants.jsonl", help="where results are kept")
    parser.add_argument("--write", type=Path, help="page to write, such as docs/mutants.md")
    given = parser.parse_args()
    preload()
    everything = [(m, tests) for m, tests in all_mutants() if given.only in m.module]
    drawn = draw(everything, given.sample or len(everything), given.seed)
    results = work(drawn, given.state, given.minutes)
    chosen = sorted((one for one in drawn if one[0].key in results), key=lambda one: (one[0].module, one[0].place))
    print(summary(chosen, results))
    if given.write:
        given.write.write_text(page(everything, chosen, results, given.seed))


def draw(everything: list[tuple[Mutant, list[str]]], count: int, seed: int) -> list[tuple[Mutant, list[str]]]:
    """In the order in which they are drawn: those that were run when the time is up are a random sample as well."""
    return random.Random(seed).sample(everything, min(count, len(everything)))


def work(chosen: list[tuple[Mutant, list[str]]], state: Path, minutes: float) -> dict[str, str]:
    """Run what is not known yet; the true code first, which must pass."""
    state.parent.mkdir(parents=True, exist_ok=True)
    results = dict(json.loads(line) for line in state.read_text().splitlines()) if state.exists() else {}
    limits: dict[str, float] = {}
    end = time.monotonic() + 60 * minutes
    with state.open("a") as file:
        for number, (mutant, tests) in enumerate(chosen):
            if mutant.key in results:
                continue
            if time.monotonic() > end:
                break
            suite = " ".join(tests)
            if suite not in limits:
                limits[suite] = measure(tests)
            results[mutant.key], seconds = run_tests(tests, mutant, limits[suite])
            file.write(json.dumps([mutant.key, results[mutant.key]]) + "\n")
            file.flush()
            place = f"{mutant.module}:{mutant.line}"
            print(
                f"{number + 1}/{len(chosen)} {results[mutant.key]} {seconds:.1f} s {place} {mutant.after}", flush=True
            )
    return results


def measure(tests: list[str]) -> float:
    outcome, seconds = run_tests(tests, None, 600)
    if outcome != "survived":
        raise SystemExit(f"{' '.join(tests)}: fails without a fault, mend it first")
    return PATIENCE * seconds + 5


def summary(chosen: list[tuple[Mutant, list[str]]], results: dict[str, str]) -> str:
    counts = Counter(results[mutant.key] for mutant, _ in chosen)
    found = counts["killed"] + counts["timeout"]
    return f"{found} of {len(chosen)} mutants killed ({100 * found / max(1, len(chosen)):.1f} %)"


def page(
    everything: list[tuple[Mutant, list[str]]],
    chosen: list[tuple[Mutant, list[str]]],
    results: dict[str, str],
    seed: int,
) -> str:
    """docs/mutants.md"""
    verdict = summary(chosen, results)
    drawn = f"A random sample of {len(chosen):,} (seed {seed})" if len(chosen) < len(everything) else "All"
    lines = [
        "# Mutants",
        "",
        "A mutant is the code with one small fault: another comparison, constant, operator, condition or result, or a "
        "statement less. A test that fails kills it. One that survives is a fault that the tests do not see, or a "
        "change that makes no difference. Texts are not mutated.",
        "",
        f"{drawn} of {len(everything):,} mutants of the verdict, the bounds and the journal: {verdict}. "
        "Made by `make mutants`.",
        "",
        "| module | mutants | run | killed | by the time limit | survived |",
        "|---|---|---|---|---|---|",
    ]
    for module in dict.fromkeys(mutant.module for mutant, _ in everything):
        total = sum(mutant.module == module for mutant, _ in everything)
        counts = Counter(results[mutant.key] for mutant, _ in chosen if mutant.module == module)
        numbers = [total, counts.total(), counts["killed"], counts["timeout"], counts["survived"]]
        lines.append(f"| `{module.removeprefix('src/gradveil/')}` | {' | '.join(map(str, numbers))} |")
    lines += ["", "## Survivors", ""]
    for mutant, _ in chosen:
        if results[mutant.key] == "survived":
            where = f"{mutant.module.removeprefix('src/gradveil/')}:{mutant.line}"
            lines.append(f"- {where}, {mutant.kind}: `{mutant.before}` → `{mutant.after}`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
