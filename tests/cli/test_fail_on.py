"""`--fail-on`, `--strict` and `gradveil gate`: a verdict as an exit code."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gradveil.cli import main
from gradveil.cli._fail_on import ANY, WORDS, describe_failures, parse_fail_on
from gradveil.core.errors import ConfigError

TINY = ["--data", "digits", "--model", "mlp", "--images", "2", "--no-convergence", "--quiet"]
EACH = ("leaks", "inconclusive", "not evaluated", "no leak found", "bounded")
SUBSETS = [subset for size in range(1, 4) for subset in combinations(WORDS, size)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def verdict(*words: str) -> Any:
    """One finding for each word, worst first."""
    findings = [
        SimpleNamespace(
            verdict=word,
            reasons=(f"Why {word}.",),
            tally=SimpleNamespace(defense=f"d{i}", scenario=f"s{i}", is_aside=i == 1),
        )
        for i, word in enumerate(words)
    ]
    return SimpleNamespace(judged=tuple(findings), word=words[0] if words else "not evaluated")


@pytest.mark.parametrize("subset", SUBSETS, ids=",".join)
def test_a_word_fails_exactly_where_it_is_named(subset: tuple[str, ...]) -> None:
    fails = parse_fail_on(",".join(subset))
    for word in EACH:
        assert bool(describe_failures(verdict(word), fails)) == (word.replace(" ", "-") in subset)
        assert bool(describe_failures(verdict("no leak found", word), fails)) == (word.replace(" ", "-") in subset)


def test_strict_is_short_for_all_of_them() -> None:
    assert parse_fail_on(None, strict=True) == parse_fail_on(ANY) == set(EACH) - {"no leak found", "bounded"}
    assert parse_fail_on(None) == frozenset()


def test_the_line_names_what_failed_and_why_the_worst_did() -> None:
    line = describe_failures(verdict("leaks", "inconclusive", "no leak found"), parse_fail_on(ANY))
    assert line == "failed: d0: leaks; d1 (s1): inconclusive. Why leaks."
    assert describe_failures(verdict(), parse_fail_on("not-evaluated")) == "failed: not evaluated"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("linkable", "failed: d0: linkable. Linkable: so and so."),
        ("not evaluated", "failed: d0: linkable not evaluated. Linkable: so and so."),
        ("not linkable", ""),
    ],
)
def test_linkable_fails_where_it_is_so_and_where_nobody_knows(answer: str, line: str) -> None:
    found = verdict("no leak found")
    found.judged[0].linkable, found.judged[0].link_sentence = answer, "Linkable: so and so."
    assert describe_failures(found, parse_fail_on("linkable")) == line
    assert describe_failures(found, parse_fail_on("leaks,linkable")) == line
    assert describe_failures(found, parse_fail_on(None, strict=True)) == ""  # of the three words alone


@pytest.mark.parametrize("text", ["", "leak", "leaks,,inconclusive", "no-leak-found", "Leaks", "not evaluated", "none"])
def test_another_word_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be one or more of leaks,inconclusive,not-evaluated,linkable, got"):
        parse_fail_on(text)


def test_another_word_stops_an_audit_before_anything_is_written(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert code("audit", *TINY, "--fail-on", "leaks,maybe", "--out", "run") == 2
    line = capsys.readouterr().err
    assert line == "error: --fail-on: must be one or more of leaks,inconclusive,not-evaluated,linkable, got 'maybe'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_leak_fails_the_audit_and_the_gate(capsys: pytest.CaptureFixture) -> None:
    audit = ["audit", *TINY, "--attack", "linear", "--defense", "none", "--out", "run"]
    assert code(*audit, "--strict") == 1
    line = capsys.readouterr().err
    assert line.startswith("failed: none: leaks. ")
    assert line.count("\n") == 1
    assert code(*audit, "--fail-on", "inconclusive,not-evaluated") == 0
    assert code("gate", "run") == 1
    captured = capsys.readouterr()
    assert captured.err == line
    assert captured.out == ""
    assert code("gate", "run", "--fail-on", "inconclusive") == 0
    assert capsys.readouterr().out.startswith("passed: leaks, under ")


def test_the_gate_writes_nothing_and_refuses_what_is_not_a_finished_run(capsys: pytest.CaptureFixture) -> None:
    assert code("audit", *TINY, "--attack", "linear", "--defense", "none", "--out", "run") == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    code("gate", "run")
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    Path("run/config.toml").write_text("seed = 1\n")
    capsys.readouterr()
    assert code("gate", "run") == 2
    assert code("gate", "nowhere") == 2
    assert [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()] == ["error", "error"]
