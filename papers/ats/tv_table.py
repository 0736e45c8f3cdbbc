"""The study's arrays as a table, a file of numbers and a drawing.

PYTHONPATH=src python3 papers/ats/tv_table.py --study OUT --results papers/ats/results --command "..."
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from gradveil.core.interval import mean_interval

STAGES = (0, 1, 10, 100)
COLORS = ("#1f6f8b", "#5b8c3e", "#b8741a", "#a3262a")
PRESET = 0  # the weight of the ATS code, 1e-4, is the first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--command", required=True, help="what made the study, for the record")
    args = parser.parse_args()
    found = [summary(stage, dict(np.load(args.study / f"stage-{stage}.npz"))) for stage in STAGES]
    report = {"command": args.command, "stages": found}
    (args.results / "tv-study.json").write_text(json.dumps(report, indent=1) + "\n")
    (args.results / "tv-study.svg").write_text(drawing(found))
    for one in found:
        print(one["stage"], one["psnr"], one["default"], one["default_over_preset"], one["oracle"])


def summary(stage: int, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    psnr, lpips, chosen = arrays["psnr"], arrays["lpips"], arrays["chosen"]
    picked = np.arange(len(psnr)), chosen
    return {
        "stage": stage,
        "pictures": len(psnr),
        "weights": arrays["weights"].tolist(),
        "psnr": [about(column) for column in psnr.T],
        "lpips": [about(column) for column in lpips.T],
        "default": {
            "psnr": about(psnr[picked]),
            "lpips": about(lpips[picked]),
            "best": round(float(psnr[picked].max()), 2),
        },
        "default_over_preset": {
            "psnr": about(psnr[picked] - psnr[:, PRESET]),
            "lpips": about(lpips[picked] - lpips[:, PRESET]),
        },
        "oracle": {"psnr": about(psnr.max(1)), "best": round(float(psnr.max()), 2)},
        "held_out": held_out(arrays),
        "per_picture_psnr": psnr.round(2).tolist(),
        "chosen": chosen.tolist(),
    }


def about(values: np.ndarray) -> dict[str, float]:
    between = mean_interval(values.tolist())
    assert between is not None
    return {"mean": round(float(values.mean()), 3), "low": round(between.low, 3), "high": round(between.high, 3)}


def held_out(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The exponent of the choosing rule that is best on the first half, and what it and ours give on the second."""
    score = {e: arrays["match"].clip(1e-12) * arrays["roughness"].clip(1e-6) ** e for e in np.linspace(0, 1, 21)}
    half = len(arrays["psnr"]) // 2

    def mean(exponent: float, part: slice) -> float:
        picked = np.arange(len(arrays["psnr"])), score[exponent].argmin(1)
        return float(arrays["psnr"][picked][part].mean())

    best = max(score, key=lambda e: mean(e, slice(0, half)))
    ours = min(score, key=lambda e: abs(e - 0.25))
    second = slice(half, None)
    report = {"best_on_first_half": best, "it": mean(best, second), "ours": mean(ours, second)}
    return {key: round(float(value), 3) for key, value in report.items()}


def drawing(found: list[dict[str, Any]]) -> str:
    """Mean PSNR and its interval against the weight; the default's choice as a dashed line."""
    width, height, left, low, high = 640, 360, 56, 8.0, 21.0

    def y(value: float) -> float:
        return round(height - 44 - (value - low) / (high - low) * (height - 64), 1)

    marks = [f'<text x="{left - 8}" y="{y(v) + 4}" text-anchor="end">{v}</text>' for v in range(8, 22, 2)]
    lines = [f'<line x1="{left}" x2="{width - 120}" y1="{y(v)}" y2="{y(v)}" stroke="#ddd"/>' for v in range(8, 22, 2)]
    drawn = []
    for one, color in zip(found, COLORS, strict=True):
        xs = [left + 30 + k * (width - 210) / (len(one["weights"]) - 1) for k in range(len(one["weights"]))]
        points = " ".join(f"{x:.1f},{y(p['mean'])}" for x, p in zip(xs, one["psnr"], strict=True))
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        for x, p in zip(xs, one["psnr"], strict=True):
            drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(p["low"])}" y2="{y(p["high"])}" stroke="{color}"/>')
        level = y(one["default"]["psnr"]["mean"])
        drawn.append(
            f'<line x1="{left}" x2="{width - 120}" y1="{level}" y2="{level}" stroke="{color}" stroke-dasharray="5 4"/>'
        )
        drawn.append(f'<text x="{width - 112}" y="{level + 4}" fill="{color}">{one["stage"]} % trained</text>')
    weights = found[0]["weights"]
    xs = [left + 30 + k * (width - 210) / (len(weights) - 1) for k in range(len(weights))]
    ticks = [
        f'<text x="{x:.1f}" y="{height - 24}" text-anchor="middle">{w:g}</text>'
        for x, w in zip(xs, weights, strict=True)
    ]
    said = "TV weight; dashed: all five tried, one chosen by the attacker. PSNR in dB"
    title = f'<text x="{left}" y="{height - 6}">{said}</text>'
    body = "\n".join([*lines, *marks, *drawn, *ticks, title])
    style = "font-family:sans-serif;font-size:12px;fill:#333"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="{style}">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    main()
