"""A redacted page gives nobody away, and says the same of the defenses."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file
from synthetic import CONFIG, PROVENANCE, SCENE, of_run, random_run, run_of, trial, write_run

from gradveil.audit.verdict import judge, to_json
from gradveil.experiment.journal import encode, read
from gradveil.report import read_run, write_report
from gradveil.report.redact import LEFT_OUT, redact_run

CANARIES = {
    "client": "canary-client-anna",
    "reason": "canary-reason-berta",
    "reason path": "canary-log-carla",
    "note": "canary-note-doris",
    "command": "canary-command-emma",
    "class in provenance": "canary-class-frida",
    "class as key": "canary-class-greta",
    "class in options": "canary-class-hanna",
    "host": "canary-host-ida",
    "user": "canary-user-johanna",
    "data": "canary-data-klara",
    "data option": "canary-option-lena",
    "weights": "canary-weights-marie",
    "model": "canary_model_nora",
    "factory": "canary_factory_olga",
    "lpips": "canary-lpips-paula",
    "folder": "canary-folder-rosa",
    "scenario": "canary-scenario-sofia",
    "resumed": "canary-resumed-tina",
    "file": "canary-file-ursula",
    "flag": "canary-flag-vera",
    "method": "CanaryNetWilma",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a canary wherever a name or a path can stand, and a picture that nothing else looks like."""
    folder = write_run(tmp_path / CANARIES["folder"])
    c = CANARIES
    (folder / "config.toml").write_text(
        CONFIG.replace('model = "resnet20"', f'model = "{c["model"]}.py:{c["factory"]}"')
        .replace('weights = ""', f'weights = "{c["weights"]}.safetensors"')
        .replace('data = "photos"', f'data = "{c["data"]}.npz"')
        .replace("[defense.none]", f'[scenario.data_options]\nroot = "{c["data option"]}"\n\n[defense.none]')
        .replace("[scenario]", f'lpips_weights = "{c["lpips"]}.npz"\n\n[scenario]', 1)
        .replace("[scenario.data_options]", f'[scenario.data_options]\nclasses = ["{c["class in options"]}"]')
    )
    about = SCENE | {"name": c["scenario"], "model": c["method"], "weights": c["weights"]}
    provenance = PROVENANCE | {
        "command": f"gradveil audit {c['command']}",
        "class_names": [c["class in provenance"]],
        "counts": {c["class as key"]: 3},
        "hostname": c["host"],
        "by": c["user"],
        "resumed": [{"command": c["resumed"]}],
        "scenarios": {c["scenario"]: about},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance))
    plant_in_records(folder)
    return folder


def plant_in_records(folder: Path) -> None:
    c = CANARIES
    first, *rest = [replace(r, scenario=c["scenario"]) for r in read(folder / "journal.jsonl")]
    failed = {"reason": f"{c['reason']} at /data/{c['reason path']}", "notes": (c["note"],), "flags": (c["flag"],)}
    first = replace(first, client=c["client"], key=f"x/{c['client']}", images=c["file"], **failed)
    second = replace(rest[0], status="failed", scores={}, **failed)
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, map(of_run, [first, second, *rest[1:]]))))
    black = {kind: np.zeros((8, 3, 4, 4), np.float32) for kind in ("original", "fed", "reconstructed")}
    save_file(black, folder / "images" / f"{c['file']}.safetensors")


def as_base64(picture: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def test_no_canary_is_in_the_redacted_page(folder):
    full, hidden = write_report(folder).read_text(), write_report(folder, redact=True).read_text()
    found = {name for name, text in CANARIES.items() if text in full}
    assert found >= {"client", "reason", "note", "command", "host", "weights", "model", "folder", "scenario", "flag"}
    assert not [name for name, text in CANARIES.items() if text in hidden]
    assert "canary" not in hidden.lower()
    assert "Redacted copy" in hidden


def test_no_pixel_is_in_the_redacted_page(folder):
    pixels = as_base64(np.zeros((4, 4, 3), np.uint8))
    full, hidden = write_report(folder).read_text(), write_report(folder, redact=True).read_text()
    assert pixels in full
    assert pixels not in hidden
    assert "data:image" not in hidden
    assert "iVBOR" not in hidden  # how every PNG begins


def test_no_canary_is_in_the_redacted_verdict(folder):
    run = redact_run(read_run(folder))
    content = json.dumps(to_json(run, judge(run)))
    assert not [name for name, text in CANARIES.items() if text in content]


def neutral(content: object) -> object:
    """A verdict without the names that redaction replaces."""
    if isinstance(content, dict):
        return {key: neutral(value) for key, value in content.items() if key not in ("scenario", "provenance")}
    return [neutral(one) for one in content] if isinstance(content, list) else content


@pytest.mark.parametrize("seed", range(30))
def test_the_verdict_of_a_redacted_run_is_the_same(seed):
    run = random_run(seed)
    other = redact_run(run)
    assert neutral(to_json(run, judge(run), 0.05)) == neutral(to_json(other, judge(other), 0.05))


def test_what_differed_still_differs():
    """Two checkpoints have two names, and so the run was not made at a single stage."""
    scenes = {name: SCENE | {"name": name, "weights": f"/data/{name}.bin"} for name in ("b", "a")}
    run = run_of(trial("x", 5.0, scenario="a"), trial("x", 5.0, scenario="b"), provenance={"scenarios": scenes})
    content = redact_run(run).scenarios
    assert list(content) == ["scenario 2", "scenario 1"]  # in the order of the file, numbered in their own
    assert len({about["weights"] for about in content.values()}) == 2
    assert judge(redact_run(run)).flags == judge(run).flags
    assert "single-stage" not in judge(run).flags


def test_an_untrained_model_stays_untrained():
    run = run_of(trial("x", 5.0), config={"scenario": {"weights": "", "model": "lenet", "batch_size": 4}})
    assert redact_run(run).scenario == {"weights": "", "model": "lenet", "batch_size": 4}


def test_clients_are_numbered_in_the_order_of_the_journal():
    hidden = redact_run(run_of(trial("ann", None, reason="ann: bad"), trial("bob", 5.0), trial("ann", 7.0, attack="b")))
    assert [r.client for r in hidden.records] == ["client 1", "client 2", "client 1"]
    assert [r.reason for r in hidden.records] == [LEFT_OUT, "", ""]
    assert {r.key for r in hidden.records} == {""}


def test_the_numbers_stay(folder):
    full, hidden = write_report(folder).read_text(), write_report(folder, redact=True).read_text()
    numbers = re.compile(r"<dd>(\d+\.\d+ dB|\d+ of \d+)</dd>")
    cut = [page.split('<section id="findings">')[1].split("</section>")[0] for page in (full, hidden)]
    assert numbers.findall(cut[0]) == numbers.findall(cut[1]) != []


def test_the_order_of_a_sequence_stays_so_that_nothing_seems_to_be_missing(folder: Path) -> None:
    run = read_run(folder)
    ordered = replace(run, provenance=dict(run.provenance) | {"order": ["dlg", "invertgrad"]})
    assert redact_run(ordered).provenance["order"] == ["dlg", "invertgrad"]
    assert judge(redact_run(ordered)).missing == judge(ordered).missing
