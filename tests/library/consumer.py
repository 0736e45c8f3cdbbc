"""What a user's program looks like to a checker of types that takes nothing on trust.

Never run. `test_consumer.py` checks it with pyright, strict: a line that ends in `# error` must be one, no other may.
"""

from pathlib import Path
from typing import assert_type

import torch

import gradveil
from gradveil import (
    ATTACKS,
    DATASETS,
    DEFENSES,
    METRICS,
    MODELS,
    AuditConfig,
    Batch,
    CalibrationOutcome,
    CalibrationSettings,
    Capture,
    Certificate,
    Choice,
    Compute,
    Defense,
    Federation,
    RecommendSettings,
    ScenarioConfig,
    SearchOutcome,
    SearchSettings,
    Seed,
    StudyOutcome,
    StudySettings,
    Verdict,
    build,
    conclude,
    load,
    read_run,
    run_audit,
)


def program() -> None:
    verdict: Verdict = gradveil.audit(
        "runs/mine",
        model="net.py:make",
        weights="w.safetensors",
        data="folder/",
        defenses=["none", "gaussian:scale=1e-3"],
        compute=Compute(device="cuda"),
    )
    print(verdict.word.upper())
    gradveil.audit("runs/mine", nonsense=3)  # error
    gradveil.audit("runs/mine", images="8")  # error
    gradveil.audit("runs/mine", labels="guessed")  # error

    config = AuditConfig(seed=1, scenario=ScenarioConfig(model="lenet"), defense={"none": Choice(name="none")})
    run_audit(build(config), Path("runs/mine"))
    assert_type(conclude("runs/mine", claim=0.01), Verdict)
    assert_type(load("audit.toml").seed, int)
    AuditConfig(nonsense=3)  # error
    ScenarioConfig(attacker="friendly")  # error
    run_audit(1, 2, 3)  # error
    print(verdict.words)  # error
    print(read_run(Path("runs/mine")).records[0].scores["psnr"] + 1.0)

    assert_type([*ATTACKS, *DEFENSES, *METRICS, *MODELS, *DATASETS], list[str])
    defense: Defense = DEFENSES["gaussian"](scale=1e-3)
    int(Seed(0).at("client", 3))  # error

    assert_type(gradveil.certificate("dpsgd:noise=0.5", candidates=101, attacks=3), Certificate)
    print(gradveil.certificate(defense, model=torch.nn.Flatten(), rounds=2).at_most + 0.5)
    gradveil.certificate(defense, rounds="2")  # error
    gradveil.certificate(defense, nonsense=3)  # error
    print(gradveil.certificate(defense).at_mots)  # error

    capture = Capture.load("round-3.safetensors")
    assert_type(Capture.simulate(clients=2).save("round-0.safetensors"), Path)
    capture.save(3)  # error

    pictures = Batch(torch.zeros(4, 1, 8, 8), torch.eye(4))
    print(gradveil.train_federation(torch.nn.Flatten(), pictures, pictures, Federation(rounds=2), defense).model)
    gradveil.train_federation(torch.nn.Flatten(), pictures)  # error
    print(gradveil.train("runs/pruned", defense="prune:ratio=0.9", rounds=5).accuracy)
    gradveil.train(nonsense=3)  # error
    print(gradveil.protect("pictures/", "ats:3-1-7", "encoded")["data"])
    assert_type(gradveil.search(SearchSettings(candidates=1500), "runs/search"), SearchOutcome)
    gradveil.search(SearchSettings(nonsense=3), "runs/search")  # error
    assert_type(gradveil.tradeoff(StudySettings(defenses=("ats",)), "runs/study"), StudyOutcome)
    gradveil.tradeoff("runs/study")  # error
    assert_type(gradveil.calibrate(CalibrationSettings(defense="gaussian"), "runs/calibrate"), CalibrationOutcome)
    gradveil.calibrate(CalibrationSettings(named_at_most=0.01), "runs/calibrate")  # error
    assert_type(gradveil.recommend(RecommendSettings(spare=2.0), "runs/recommend").deploy, str)
    gradveil.recommend("runs/recommend")  # error
    print(gradveil.no_such_name)  # error
