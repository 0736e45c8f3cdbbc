"""`gradveil audit --capture` and `gradveil capture show`, from options to a verdict."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradveil.audit.results import read_run
from gradveil.capture import Capture, read, save, simulate
from gradveil.cli import main
from gradveil.config import build, from_tables
from gradveil.config.reproduce import reproduce
from gradveil.core.local_training import LocalTraining
from gradveil.defenses import DEFENSES
from gradveil.experiment import journal

PICTURES = ["--data", "photos", "--data-option", "size=16", "--data-option", "count=30"]
QUICK = ["--attack", "dlg:steps=80,restarts=1", "--budget", "quick", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def undefended() -> Capture:
    return simulate(options={"size": 16}, labels=True)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def verdict(folder: str) -> dict:
    return json.loads(Path(folder, "verdict.json").read_text())


def test_an_undefended_picture_leaks(undefended: Capture) -> None:
    save("c.safetensors", undefended)
    assert run("audit", "--capture", "c.safetensors", *PICTURES, *QUICK, "--out", "run") == 0
    found = verdict("run")
    assert found["verdict"] == "leaks"
    positive = found["controls"]["positive"]
    assert positive["hits"] == positive["attempted"]
    report = found["provenance"]["capture"]
    assert report["replay"]["client-0"].startswith("reproduced, relative error")
    records = journal.read(Path("run/journal.jsonl"))
    own = next(r for r in records if not r.control and r.scenario == "c-b1")
    assert reproduce("run", own.key).identical
    assert "Captured round" in Path("run/report.html").read_text()
    held = [r for r in records if r.control == "lineup"]
    assert {r.scenario for r in held} == {"c-b1"}
    assert all(r.status == "ok" and r.ranks["rank"] == [1] and not r.flags for r in held), "one trial for each picture"


def test_a_client_of_adam_that_shuffles_is_replayed_and_attacked(capsys: pytest.CaptureFixture[str]) -> None:
    training = LocalTraining(optimizer="adam", rate=1e-3, epochs=1, batch_size=2, order="unknown")
    save("c.safetensors", simulate(options={"size": 16}, examples=4, training=training, labels=True))
    assert run("capture", "show", "c.safetensors") == 0
    assert "'optimizer': 'adam'" in capsys.readouterr().out
    search = ["--attack", "lbfgs-cosine:steps=8,restarts=1", *QUICK[2:]]
    assert run("audit", "--capture", "c.safetensors", *PICTURES, *search, "--out", "run") == 0
    assert verdict("run")["provenance"]["capture"]["replay"]["client-0"].startswith("reproduced, relative error")
    scenario = tomllib.loads(Path("run/config.toml").read_text())["scenario"]
    assert (scenario["optimizer"], scenario["epochs"], scenario["order"]) == ("adam", 1, "unknown")
    held = [r for r in journal.read(Path("run/journal.jsonl")) if r.control == "lineup"]
    assert all("line-up-estimated" in record.flags for record in held)
    assert run("audit", "--capture", "c.safetensors", *PICTURES, *search, "--optimizer", "sgd", "--out", "other") == 2
    assert "--optimizer: is 'sgd', the capture says 'adam', leave it out" in capsys.readouterr().err


def test_the_tensors_of_a_capture_are_read_once(undefended: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    save("c.safetensors", undefended)
    reads, plain = [], read._read
    monkeypatch.setattr(read, "_read", lambda path, header: reads.append(path) or plain(path, header))
    config = from_tables({"scenario": {"capture": "c.safetensors"}, "attack": {"dlg": {"name": "dlg"}}})
    assert reads == []
    build(config)
    assert reads == [Path("c.safetensors")]


def test_without_the_pictures_nothing_is_scored(undefended: Capture) -> None:
    save("c.safetensors", undefended)
    quick = ["--attack", "dlg:steps=25,restarts=1", *QUICK[2:]]
    assert run("audit", "--capture", "c.safetensors", *quick, "--out", "run") == 0
    found = verdict("run")
    assert found["verdict"] == "not evaluated"
    assert found["findings"][0]["leaked"] == 0
    assert "no-truth" in found["flags"]
    assert "undefended-holds" not in found["flags"]
    assert found["controls"]["positive"]["attempted"] == 4  # built-in photographs
    own = [r for r in journal.read(Path("run/journal.jsonl")) if r.scenario == "c-b1"]
    assert {tuple(r.scores) for r in own} == {("match",)}
    match = {r.control: r.scores["match"] for r in own}
    assert match[""] > match["prior"]
    pictures = read_run(Path("run")).pictures(own[0])
    assert pictures is not None
    assert pictures.original is None
    page = Path("run/report.html").read_text()
    assert "no leak found" not in page.lower()
    assert "Nothing was scored" in page
    assert 'alt="Original' not in page


def test_the_wrong_pictures_never_show_that_nothing_leaks(undefended: Capture) -> None:
    save("c.safetensors", undefended)
    wrong = [*PICTURES, "--pictures", "8", "--attack", "dlg:steps=5,restarts=1", *QUICK[2:]]
    assert run("audit", "--capture", "c.safetensors", *wrong, "--out", "run") == 0
    (finding,) = verdict("run")["findings"]
    assert finding["verdict"] == "inconclusive"
    assert any("do not reproduce" in reason for reason in finding["reasons"])
    assert "not-replayed" in verdict("run")["flags"]


def test_a_told_defense_meets_both_attackers(undefended: Capture) -> None:
    from gradveil.defenses import DEFENSES

    pruned = simulate(
        options={"size": 16}, labels=True, defense=DEFENSES["prune"](ratio=0.5), stated_defense="prune:ratio=0.5"
    )
    save("c.safetensors", pruned)
    quick = ["--attack", "dlg:steps=3,restarts=1", *QUICK[2:]]
    assert run("audit", "--capture", "c.safetensors", *PICTURES, *quick, "--out", "run") == 0
    audited = [c for c in verdict("run")["cells"] if c["scenario"] == "c-b1"]
    assert {(c["defense"], c["attacker"]) for c in audited} == {("prune", "unaware"), ("prune", "adaptive")}
    assert verdict("run")["provenance"]["capture"]["replay"]["client-0"].startswith("reproduced")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--local-steps", "4"], "--local-steps: is 4, the capture says 1"),
        (["--bn", "batch"], "--bn: is 'batch', the capture says 'eval'"),
        (["--also", "batch_size=1,2"], "--also: what was sent cannot be varied"),
        (["--attacker", "malicious"], "--attacker: the model of a capture is sent already"),
        (["--model", "resnet18"], "c.safetensors: weights/"),
        (["--data", "digits"], "--data: has pictures of"),
        ([*PICTURES, "--pictures", "1,2"], "--pictures: must be 1 rows"),
        (["--capture", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
    ],
)
def test_what_does_not_go_together_is_refused(
    undefended: Capture, options: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    save("c.safetensors", undefended)
    assert run("audit", "--capture", "c.safetensors", *QUICK, *options) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    assert expected in line
    assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]


def test_another_size_than_that_of_the_bottleneck_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save(
        "c.safetensors",
        simulate(options={"size": 16}, defense=DEFENSES["precode"](size=8), stated_defense="precode:size=4"),
    )
    assert run("capture", "show", "c.safetensors") == 0
    assert run("audit", "--capture", "c.safetensors", *PICTURES, *QUICK, "--out", "run") == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("the bottleneck of this model has 8, take size = 8")
    assert not Path("run").exists()


def test_pictures_without_a_capture_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", "--pictures", "1") == 2
    assert "--pictures: is about a captured round, set --capture" in capsys.readouterr().err


def test_show_tells_what_is_there(undefended: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    save("c.safetensors", replace(undefended, defense="ats:3"))
    assert run("capture", "show", "c.safetensors", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["pictures"], found["classes"]) == ("lenet", "3x16x16", 8)
    assert found["clients"]["client-0"]["pictures"] == 1
    assert any("ats:3" in note for note in found["notes"])
    assert run("capture", "show", "c.safetensors") == 0
    assert "client-0: pictures 1" in capsys.readouterr().out


@pytest.mark.slow
def test_show_estimates_the_training(undefended: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    save("c.safetensors", undefended)
    assert run("capture", "show", "c.safetensors", "--estimate") == 0
    printed = capsys.readouterr().out
    assert "local steps and rate estimated: tau = " in printed
    assert "the capture says tau = 1, rate = 1" in printed


def test_show_refuses_weights(undefended: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {name: undefended.weights[name].clone() for name in undefended.updates["client-0"]}
    save("c.safetensors", replace(undefended, updates={"client-0": weights}))
    assert run("capture", "show", "c.safetensors") == 2
    assert "updates/client-0: looks like weights" in capsys.readouterr().err


def test_clients_with_different_numbers_of_pictures_are_scenarios_of_their_own() -> None:
    from gradveil.config import build
    from gradveil.config.load import from_tables

    one, two = simulate(options={"size": 16}), simulate(options={"size": 16}, examples=2)
    updates = {"a": two.updates["client-0"], "b": one.updates["client-0"]}
    save("c.safetensors", replace(one, updates=updates, examples={"a": 2, "b": 1}))
    audit = build(from_tables({"scenario": {"capture": "c.safetensors"}, "attack": {"dlg": {"steps": 3}}}))
    assert [(s.name, s.names) for s in (audit.scenario, *audit.also)] == [("c-b1", ("b",)), ("c-b2", ("a",))]
    assert audit.scenario.received is not None
    assert torch.equal(audit.scenario.received.update["fc.bias"][0], updates["b"]["fc.bias"])
    assert not audit.scenario.threat.knows_labels


def test_rows_are_of_data_and_different(undefended: Capture, capsys) -> None:
    save("c.safetensors", undefended)
    assert run("audit", "--capture", "c.safetensors", "--pictures", "0", "--out", "o") == 2
    assert capsys.readouterr().err == "error: --pictures: names rows of --data, which is not given, add it\n"
    assert not Path("o").exists()


def test_a_capture_is_named_where_it_is_at_fault(undefended: Capture, capsys) -> None:
    save("c.safetensors", replace(undefended, defense="gausian:scale=1"))
    assert run("audit", "--capture", "c.safetensors", "--out", "o") == 2
    printed = capsys.readouterr().err
    assert printed.startswith(
        "error: c.safetensors: defense.gausian.name: unknown name 'gausian', did you mean 'gaussian'?"
    )


def test_show_tells_what_came_with_a_reply(undefended: Capture, capsys) -> None:
    client = next(iter(undefended.updates))
    save("c.safetensors", replace(undefended, metrics={client: {"client": 3.0}}, defense="none"))
    assert run("capture", "show", "c.safetensors") in (0, None)
    printed = capsys.readouterr().out
    assert "metric client 3.0" in printed
    assert "which nobody can check" not in printed


def test_a_label_that_is_no_class_is_refused(undefended: Capture, capsys) -> None:
    client = next(iter(undefended.updates))
    labels = {**undefended.labels, client: torch.full((undefended.examples[client],), 99)}
    save("c.safetensors", replace(undefended, labels=labels))
    assert run("capture", "show", "c.safetensors") == 2
    assert f"c.safetensors: labels/{client}: 99 is no class, number them from 0 to 7" in capsys.readouterr().err
