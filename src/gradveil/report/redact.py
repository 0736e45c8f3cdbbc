"""A run without pictures and without any text that could name someone: for readers who must not see them.

What stays is listed, not what goes: numbers, the words of the catalogues, the labels of defenses and attacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from gradveil.attacks import ATTACKS
from gradveil.audit.flags import FLAGS
from gradveil.audit.results import Run
from gradveil.audit.verdict.certified import read_certificate
from gradveil.core.own_loss import is_own_loss
from gradveil.data import DATASETS
from gradveil.defenses import DEFENSES
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS
from gradveil.models import MODELS

LEFT_OUT = "[left out]"
NAME = "redacted run"
CATALOGUED = {*ATTACKS, *DEFENSES, *DATASETS, *METRICS, *MODELS}
# keys whose text is one of ours
OWN_WORDS = {"role", "regime", "batchnorm", "loss", "labels", "attacker", "budget", "split", "declared"}
SETTINGS = ("seed", "budget", "metrics", "convergence", "limit_named", "scenario", "also", "defense", "attack")
VERSIONS = ("gradveil", "torch", "python", "device", "precision", "backend")
HASHES = ("model_sha256", "data_sha256", "config_sha256")
TRUST = ("versions", "sealed_again")
NUMBERS = ("schema", "seed", "gallery", "shard", "trials", "declared", "metric_weights", "piece", "seconds", "spent")
KEPT = (*VERSIONS, *HASHES, *TRUST, *NUMBERS, "order", "uses", "searches", "started", "finished")


class _Hidden:
    """The same text has the same number everywhere, so that what differed still differs and a verdict stays."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        number = self.numbers.setdefault(text, len(self.numbers) + 1)
        return f"[left out {number}]" if text else ""


def redact_run(run: Run) -> Run:
    """The same measurements and the same verdict. Clients and scenarios are numbered."""
    hide, scenes = _Hidden(), _number({r.scenario for r in run.records} | run.scenarios.keys())
    known = [*(r.client for r in run.records), *chain.from_iterable(run.plan.get("clients", {}).values())]
    clients = {name: f"client {n}" for n, name in enumerate(dict.fromkeys(known), 1)}
    about = {scenes[name]: _about(scenes[name], table, scenes, hide) for name, table in run.scenarios.items()}
    stays = {key: value for key, value in run.provenance.items() if key in KEPT}
    command = {"command": LEFT_OUT} if "command" in run.provenance else {}
    return replace(
        run,
        name=NAME,
        records=tuple(_record(record, clients, scenes) for record in run.records),
        config={key: _value(run.config[key], key, hide) for key in SETTINGS if key in run.config},
        provenance=stays
        | command
        | {"scenarios": about, **_plan(run, scenes, clients), **_hide_scenarios(run, scenes), **_metrics(run)},
        redacted=True,
    )


def _about(name: str, table: Mapping[str, Any], scenes: Mapping[str, str], hide: _Hidden) -> dict[str, Any]:
    other = table.get("control_of")
    return _value(table, "", hide) | {"name": name} | ({"control_of": scenes.get(other, LEFT_OUT)} if other else {})


def _plan(run: Run, scenes: Mapping[str, str], clients: Mapping[str, str]) -> dict[str, Any]:
    """What was planned, by the numbers of scenarios and clients."""
    if not run.plan:
        return {}
    names = {scenes[s]: [clients[c] for c in them] for s, them in run.plan.get("clients", {}).items() if s in scenes}
    cells = [[scenes[cell[0]], *cell[1:]] for cell in run.plan.get("cells", ()) if cell[0] in scenes]
    return {"plan": {"clients": names, "cells": cells}}


def _hide_scenarios(run: Run, scenes: Mapping[str, str]) -> dict[str, Any]:
    """What is known by scenario and defense."""
    tables = {key: run.provenance.get(key) for key in ("update_bytes", "privacy")}
    found = {key: table.items() if isinstance(table, Mapping) else () for key, table in tables.items()}
    plain = {key: {scenes[name]: value for name, value in rows if name in scenes} for key, rows in found.items()}
    return plain | {"certificates": _certificates(run, scenes)}


def _certificates(run: Run, scenes: Mapping[str, str]) -> dict[str, Any]:
    """Their numbers without their words."""
    table = run.provenance.get("certificates")
    rows = table.items() if isinstance(table, Mapping) else ()
    return {
        scenes[name]: {
            label: certificate.to_json() for label in own if (certificate := read_certificate(run, name, label))
        }
        for name, own in rows
        if name in scenes and isinstance(own, Mapping)
    }


def _metrics(run: Run) -> dict[str, Any]:
    """How metrics of the user's own are read, without their words."""
    stated = run.provenance.get("metrics")
    names = stated if isinstance(stated, Mapping) else ()
    facts = {name: replace(run.facts(name), label=name, unit="") for name in names}
    return {"metrics": {name: one.to_json() for name, one in facts.items()}} if facts else {}


def _number(names: Iterable[str]) -> dict[str, str]:
    """In their own order, which a verdict sorts by."""
    ordered = sorted(names)
    digits = len(str(len(ordered)))
    return {name: f"scenario {number:0{digits}d}" for number, name in enumerate(ordered, 1)}


def _record(record: Record, clients: Mapping[str, str], scenes: Mapping[str, str]) -> Record:
    """Reasons and notes go as a whole: they may quote anything, a path or a class among it."""
    return replace(
        record,
        key="",
        scenario=scenes[record.scenario],
        client=clients[record.client],
        reason=LEFT_OUT if record.reason else "",
        flags=tuple(flag if flag in FLAGS else LEFT_OUT for flag in record.flags),
        notes=(),
        backend="",
        images="",
    )


def _value(value: Any, key: str, hide: _Hidden) -> Any:
    if isinstance(value, Mapping):
        return {name: _value(inner, name, hide) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_value(inner, key, hide) for inner in value]
    if not isinstance(value, str) or value in CATALOGUED:
        return value
    if key in OWN_WORDS and not is_own_loss(value):
        return value
    return hide(value)
