"""No attack identifies more than as many best guesses of the line-up, whatever the defense: a violation is a bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.config import AuditConfig, ScenarioConfig, build
from gradveil.core.choice import Choice, parse_choices
from gradveil.defenses import DEFENSES
from gradveil.recommend.settings import STACKS

LODA = "extractor=lenet:untrained,layers=all,steps=5,cache=false,public=digits"
GIVEN = {
    "ats": "policy=3-1-7", "random-policy": "length=1", "precode": "size=16", "gaussian": "scale=0.01",
    "laplacian": "scale=0.01", "dpsgd": "clip=1,noise=0.05", "fedcdp": "clip=1,noise=0.05", "topk": "sparsity=0.5",
    "percentile": "percentile=50", "svt": "gamma=0.1,noise_var=100,fraction=0.5", "local-dp": "epsilon=500",
    "prune": "ratio=0.5", "loda": LODA, "loda-1": LODA, "loda-2": LODA, "loda-3": LODA,
}  # fmt: skip
MIXED = ("mixup", "instahide")
STRONG = ("gaussian:scale=10", "dpsgd:clip=1,noise=3", "sign:scaled=true", *STACKS[2:])


def texts() -> dict[str, str]:
    """Every row of the catalogue that is one, mild enough that attacks see something, and a few that hide."""
    rows = [name for name in DEFENSES if name != "stack"]
    return {name: f"{name}:{GIVEN[name]}" if name in GIVEN else name for name in rows} | {t: t for t in STRONG}


@pytest.mark.slow
@pytest.mark.parametrize("name", texts())
def test_default_attacks_stay_below_the_line_up(name: str, tmp_path: Path) -> None:
    """Of single pictures, or of four where a defense mixes those of one client: closed forms and a short search."""
    scenario = ScenarioConfig(
        model="mlp", data="digits", data_options={"size": 8}, images=3, batch_size=4 if name in MIXED else 1
    )
    config = AuditConfig(
        scenario=scenario, gallery=40, convergence=False, metrics=("psnr", "retrieval"),
        defense=parse_choices(dict.fromkeys(("none", texts()[name])), "defense", DEFENSES),
        attack={"default": Choice(name="autoattack", options={"steps": 20})},
    )  # fmt: skip
    run_audit(build(config), tmp_path)
    verdict = judge(read_run(tmp_path))
    assert not {"attack-above-line-up", "leaks-and-bounded"} & set(verdict.flags)
    for one in verdict.findings:
        result = one.bounds.lineup
        assert result is not None, (one.tally.defense, one.reasons)
        assert not one.bounds.exceeded, (one.tally.defense, one.tally.identified, result.ceiling(result.top))
        assert not one.bounds.doubts.foreign, (one.tally.defense, one.bounds.doubts)
        assert not one.bounds.doubts.blind, (one.tally.defense, one.bounds.doubts)
    undefended = next(one for one in verdict.findings if one.tally.defense == "none")
    assert undefended.tally.identified > 0, "attacks that see nothing exceed nothing"
