"""The plots: well-formed, in proportion, and nothing in them that a browser could take for markup."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from gradveil.report.charts import Bars, Chart, Series, ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str, kind: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{SVG}{kind}")


def test_a_point_twice_as_far_is_drawn_twice_as_far() -> None:
    points = [(0.0, 0.0), (1.0, 10.0), (2.0, 20.0)]
    svg = Chart(title="t", x="x", y="y", series=[Series(name="s", points=points)]).svg()
    first, second, third = ((float(c.get("cx", "")), float(c.get("cy", ""))) for c in drawn(svg, "circle"))
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert first[1] - second[1] == pytest.approx(second[1] - third[1], abs=0.2)
    assert third[1] < first[1]


def test_numbers_that_are_none_are_left_out_and_names_are_escaped() -> None:
    points = [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0)]
    svg = Chart(
        title="<b>&", x="x", y="y", series=[Series(name="a<", points=points), Series(name="b", points=[])]
    ).svg()
    assert len(drawn(svg, "circle")) == 2
    assert "<b>" not in svg
    assert "&lt;b&gt;&amp;" in svg


def test_nothing_to_draw_is_said() -> None:
    svg = Chart(title="t", x="x", y="y", series=[Series(name="s", points=[(math.nan, 1.0)])]).svg()
    assert "no numbers to draw" in svg


def test_a_line_has_its_intervals() -> None:
    series = Series(name="s", kind="line", points=[(0.0, 1.0), (1.0, 2.0)], between=[(0.5, 1.5), (1.5, 2.5)])
    svg = Chart(title="t", x="x", y="y", series=[series]).svg()
    assert len(drawn(svg, "polyline")) == 1
    assert sum("V" in (path.get("d") or "") for path in drawn(svg, "path")) == 2


def test_bars_start_at_zero_and_marked_ones_stand_out() -> None:
    svg = Bars(title="t", y="score", names=["a", "b"], values=[1.0, 2.0], marked=["b"]).svg()
    one, two = drawn(svg, "rect")
    assert float(two.get("height", "")) == pytest.approx(2 * float(one.get("height", "")), rel=0.01)
    assert one.get("fill") != two.get("fill")


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.3, -0.9), (1e-6, 3e-6), (0.0, 123456.0)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = list(ticks(low, high))
    assert 2 <= len(found) <= 8
    assert all(low <= tick <= high for tick in found)
