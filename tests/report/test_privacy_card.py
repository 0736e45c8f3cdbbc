"""The card of a defense says what the noise of the audited round is worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import run_of, trial

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.config import build, load
from gradveil.dp import certify_gaussian, epsilon
from gradveil.dp.trade_off import show_bound
from gradveil.report.build import render
from gradveil.report.redact import redact_run

CONFIG = """
metrics = ["psnr"]
convergence = false
lineup = 0
[scenario]
attacker = "curious"
data = "digits"
images = 1
model = "mlp"
[attack.linear]
[defense.none]
[defense.dpsgd]
noise = 0.5
"""


def test_an_audit_keeps_it_and_its_report_shows_it(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")
    (tmp_path / "audit.toml").write_text(CONFIG)
    run_audit(build(load(tmp_path / "audit.toml")), tmp_path / "run")
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    kept, ((scene, certificates),) = provenance["privacy"], provenance["certificates"].items()
    assert [scene] == list(kept)
    assert {label: one["kind"] for label, one in certificates.items()} == {"none": "none", "dpsgd": "gaussian"}
    assert certificates["none"]["at_most"] == 1.0
    among = read_run(tmp_path / "run").gallery
    assert among is not None
    certificate = certify_gaussian(sigma=0.5, kappa=1 / among)
    assert certificates["dpsgd"]["at_most"] == certificate.at_most
    by_hand = epsilon(noise=0.5, sampling_rate=1.0, rounds=1, delta=1e-5)
    assert [set(report) for report in kept.values()] == [{"dpsgd"}]
    means = f"at most {show_bound(certificate.at_most)} identified among {among:,}"
    said = f"epsilon {by_hand.value:.4g}"
    found = read_run(tmp_path / "run")
    for page in (render(found), render(redact_run(found))):
        assert page.count(f"<dd>{said}<small>{means}; this round alone, RDP, delta 1e-05, an example in 1 noisy") == 1


def test_a_provenance_of_another_form_shows_nothing() -> None:
    records = [trial("c", 5.0, defense="dp"), trial("c", 5.0, defense="dp", attacker="adaptive")]
    for privacy in ({"s": {"dp": "5"}}, {"s": {"dp": {"said": "5"}}}, {"s": 3}, "text", None):
        page = render(run_of(*records, provenance={"privacy": privacy}))
        assert "Privacy, per example" not in page
    report = {"said": "<b>5", "of": "this round"}
    assert "&lt;b&gt;5<small>this round" in render(run_of(*records, provenance={"privacy": {"s": {"dp": report}}}))
