"""How far encodings are from their pictures: for each weight c (tables 5, 6) and each reading of equation 4.

The tables give scores of what an attack has read off gradients, which can only be farther than the encodings are.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from study import Study
from training import Cells, trained

from gradveil.core.types import Batch
from gradveil.train.centralized import accuracy

WEIGHTS = (10.0, 20.0, 30.0, 40.0, 50.0)
PRESETS = {"loda-1": 20.0, "loda-2": 30.0}
TABLES = {  # accuracy in %, mean PSNR in dB, mean LPIPS: table 5, table 6
    "loda-1": {
        10: (93.02, 6.39, 0.539),
        20: (89.50, 5.77, 0.589),
        30: (83.46, 5.73, 0.610),
        40: (78.48, 5.83, 0.626),
        50: (71.86, 5.82, 0.626),
    },
    "loda-2": {
        10: (93.95, 9.72, 0.453),
        20: (93.49, 8.07, 0.503),
        30: (91.78, 7.41, 0.566),
        40: (89.40, 6.55, 0.581),
        50: (87.78, 6.05, 0.602),
    },
}


def ablation(study: Study) -> Cells:
    count = study.asked.ablated
    cells = product(PRESETS, WEIGHTS)
    return {f"{preset}, c = {c:g}": partial(encoded, study, preset, {"c": c}, count) for preset, c in cells}


def readings(study: Study) -> Cells:
    """The paper says neither whether squares are summed or averaged nor in which units pixels are."""
    ways = product(PRESETS, ("sum", "mean"), ("unit", "normalized"))
    return {
        f"{preset}, {reduce}, {units}": partial(
            encoded, study, preset, {"c": PRESETS[preset], "reduce": reduce, "units": units}, study.asked.readings
        )
        for preset, reduce, units in ways
    }


def encoded(study: Study, preset: str, options: dict[str, Any], count: int) -> dict[str, Any]:
    """Pictures against their encodings and, if asked for, the accuracy of a network trained on encodings."""
    defense, learns = study.defense(preset, **options), study.asked.ablate_accuracy
    made, seconds = study.encodings(defense, len(study.private.images) if learns else count)
    report = dict(zip(("accuracy", "psnr", "lpips"), TABLES[preset][int(options["c"])], strict=True))
    row = {"paper": report, "encode_seconds": round(seconds, 1)}
    row |= study.compared(made[:count], study.private.images[:count], each=False)
    if learns:
        model = trained(study, study.network("resnet18"), made)
        row["accuracy"] = 100 * accuracy(model, Batch(study.test.images, study.test.targets))
    return row
