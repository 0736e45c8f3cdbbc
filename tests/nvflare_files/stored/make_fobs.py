"""Makes the files beside it with NVFlare's own code: a model as sent, and what two clients sent back.

python tests/nvflare_files/stored/make_fobs.py
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

HOME = Path(__file__).parent
NAMES = {
    "conv.weight": (4, 1, 3, 3),
    "bn.weight": (4,),
    "bn.running_mean": (4,),
    "fc.weight": (3, 144),
    "fc.bias": (3,),
}


def arrays(seed: int, scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (scale * rng.normal(size=shape)).astype(np.float32) for name, shape in NAMES.items()}


def counters(number: int) -> dict[str, np.ndarray]:
    return {"bn.num_batches_tracked": np.array(number, np.int64)}


def main() -> None:
    from nvflare.apis.dxo import DXO, DataKind, MetaKey  # pyright: ignore[reportMissingImports]
    from nvflare.apis.utils.decomposers import flare_decomposers  # pyright: ignore[reportMissingImports]
    from nvflare.app_common.decomposers import common_decomposers  # pyright: ignore[reportMissingImports]
    from nvflare.app_opt.pt.decomposers import TensorDecomposer  # pyright: ignore[reportMissingImports]
    from nvflare.fuel.utils import fobs  # pyright: ignore[reportMissingImports]

    logging.disable(logging.CRITICAL)
    flare_decomposers.register()
    common_decomposers.register()
    fobs.register(TensorDecomposer)
    sent, step = arrays(0, 0.1), arrays(1, 1e-3)
    meta: dict[str, Any] = {MetaKey.NUM_STEPS_CURRENT_ROUND: 3, MetaKey.CURRENT_ROUND: 2}
    metrics = meta | {MetaKey.INITIAL_METRICS: {"accuracy": 0.5}, MetaKey.SITE_NAME: "site-1"}
    DXO(DataKind.WEIGHTS, data={**sent, **counters(7)}).to_file(str(HOME / "sent.fobs"))
    DXO(DataKind.WEIGHT_DIFF, data={**step, **counters(3)}, meta=metrics).to_file(str(HOME / "difference.fobs"))
    after = {name: torch.from_numpy(sent[name] + step[name]) for name in sent}
    whole = DXO(DataKind.WEIGHTS, data={**after, "bn.num_batches_tracked": torch.tensor(10)}, meta=meta)
    fobs.dumpf(whole.to_shareable(), str(HOME / "whole.fobs"))
    fobs.dumpf(DXO(DataKind.METRICS, data={"loss": 0.5}).to_shareable(), str(HOME / "metrics.fobs"))
    large = {name: np.asfortranarray(value) for name, value in sent.items()}
    fobs.dumpf(DXO(DataKind.WEIGHTS, data=large), str(HOME / "sections.fobs"), max_value_size=1024)


if __name__ == "__main__":
    main()
