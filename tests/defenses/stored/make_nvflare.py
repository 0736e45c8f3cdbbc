"""Makes nvflare.json beside it: what the privacy filters of NVFlare send of fixed updates. Needs nvflare installed.

python tests/defenses/stored/make_nvflare.py
"""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(__file__).parent
PERCENTILES = (
    {"percentile": 10, "gamma": 0.01, "steps": 1},
    {"percentile": 0, "gamma": 10.0, "steps": 1},
    {"percentile": 50, "gamma": 0.003, "steps": 3},
    {"percentile": 33.3, "gamma": 0.001, "steps": 7},
    {"percentile": 99, "gamma": 0.02, "steps": 1},
    {"percentile": 100, "gamma": 1.0, "steps": 2},
)
CHOICES = (  # each option of the filter is away from its default in one of them
    {"steps": 1},
    {"gamma": 0.01, "tau": 0.004, "epsilon": 300.0, "noise_var": 5.0, "steps": 4},
    {"gamma": 0.01, "tau": 0.008, "epsilon": 3000.0, "noise_var": 50.0, "replace": False, "fraction": 0.3, "steps": 1},
    {"gamma": 0.01, "tau": 0.005, "epsilon": 400.0, "epsilon_query": 380.0, "fraction": 0.5, "steps": 1},
    {"gamma": 0.01, "tau": 0.005, "epsilon": 400.0, "epsilon_threshold": 200.0, "fraction": 0.9, "steps": 2},
)
RUNS = 4000
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def update() -> dict[str, np.ndarray]:
    """Of two tensors with ties and zeros, and a single number."""
    rng = np.random.default_rng(0)
    found = {"a": rng.normal(size=(40, 5)) * 0.02, "b": rng.normal(size=30) * 0.005, "s": np.array(0.3)}
    found["a"][1], found["b"][:3] = found["a"][0], 0
    return {name: values.astype(np.float32) for name, values in found.items()}


def send(filter: Any, steps: int) -> dict[str, np.ndarray]:
    from nvflare.apis.dxo import DXO, DataKind, MetaKey  # type: ignore[import-not-found]
    from nvflare.apis.fl_context import FLContext  # type: ignore[import-not-found]
    from nvflare.apis.shareable import Shareable  # type: ignore[import-not-found]

    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
    dxo = DXO(DataKind.WEIGHT_DIFF, data=update(), meta=meta)
    return {name: np.asarray(u) for name, u in filter.process_dxo(dxo, Shareable(), FLContext()).data.items()}


def percentile(case: dict[str, Any]) -> dict[str, Any]:
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy  # type: ignore[import-not-found]

    sent = send(PercentilePrivacy(percentile=case["percentile"], gamma=case["gamma"]), case["steps"])
    return {"options": case, "sent": {name: u.tolist() for name, u in sent.items()}}


def svt(case: dict[str, Any]) -> dict[str, Any]:
    """Of many runs: how often each number is sent, how many are in one, and the spread of what is."""
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy  # type: ignore[import-not-found]

    own = {key: value for key, value in case.items() if key != "steps"}
    runs = [send(SVTPrivacy(**own), case["steps"]) for _ in range(RUNS)]
    rows = np.stack([np.concatenate([sent["a"].ravel(), sent["b"]]) for sent in runs]).astype(np.float64)
    count = (rows != 0).sum(1)
    return {
        "options": case,
        "sent": np.round((rows != 0).mean(0), 4).tolist(),
        "count": {"mean": float(count.mean()), "deviation": float(count.std())},
        "values": np.quantile(rows[rows != 0], SHARES).tolist(),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    np.random.seed(0)  # theirs
    found = {"nvflare": version("nvflare"), "runs": RUNS, "shares": SHARES}
    found |= {"percentile": [percentile(case) for case in PERCENTILES], "svt": [svt(case) for case in CHOICES]}
    (HOME / "nvflare.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
