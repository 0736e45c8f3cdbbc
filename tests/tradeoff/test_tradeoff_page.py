"""The page of a study: every point is on it, the front is drawn as it is, and nothing runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from tradeoff_fakes import candidate, example, leakage, outcome

from gradveil.report.tradeoff_chart import Mark, TradeoffChart, _box, _shared
from gradveil.tradeoff.estimates import of_pictures
from gradveil.tradeoff.page import narrow, plot, write_study_page
from gradveil.tradeoff.summary import columns, row

SVG = "{http://www.w3.org/2000/svg}"


def marks() -> list[Mark]:
    return [
        Mark(label="none", group="none", shape="square", leakage=30.0, accuracy=0.9, across=(28, 32), up=(0.88, 0.92)),
        Mark(label="a<b", group="a", shape="circle", leakage=12.0, accuracy=0.7, ahead=True),
        Mark(label="b", group="b", shape="circle", leakage=20.0, accuracy=0.85, ahead=True, believed=False),
    ]  # fmt: skip


def places(chart: TradeoffChart) -> dict[str, tuple[float, float]]:
    tree = ElementTree.fromstring(chart.svg())
    found = {}
    for circle in tree.iter(f"{SVG}circle"):
        if (title := circle.find(f"{SVG}title")) is not None:
            found[str(title.text)] = (float(circle.get("cx", 0)), float(circle.get("cy", 0)))
    return found


def test_less_leakage_is_to_the_right_and_more_accuracy_is_up() -> None:
    at = places(TradeoffChart(title="t", x="x", marks=marks()))
    assert at["a<b"][0] > at["b"][0]
    assert at["a<b"][1] > at["b"][1]
    flipped = places(TradeoffChart(title="t", x="x", marks=marks(), upward=False))
    assert flipped["a<b"][0] < flipped["b"][0]


def test_the_front_is_a_staircase_through_its_points() -> None:
    chart = TradeoffChart(title="t", x="x", marks=marks())
    tree, at = ElementTree.fromstring(chart.svg()), places(chart)
    (line,) = tree.iter(f"{SVG}polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.get("points", "").split()]
    assert corners == [at["a<b"], (at["b"][0], at["a<b"][1]), at["b"]]


def test_labels_do_not_cover_each_other() -> None:
    """Twelve marks in a heap."""
    heap = [
        Mark(label=f"defense-{k}", group="g", shape="circle", leakage=20 + k % 4, accuracy=0.5 + 0.02 * (k // 4))
        for k in range(12)
    ]
    tree = ElementTree.fromstring(TradeoffChart(title="t", x="x", marks=heap).svg())
    labels = [t for t in tree.iter(f"{SVG}text") if (t.text or "").startswith("defense-")]
    boxes = [_box(float(t.get("x", 0)), float(t.get("y", 0)), t.get("text-anchor", ""), t.text or "") for t in labels]
    assert len(boxes) == 12
    assert all(_shared(one, other) == 0 for k, one in enumerate(boxes) for other in boxes[:k])


def test_nothing_to_draw() -> None:
    assert "no point is finished" in TradeoffChart(title="t", x="x", marks=[]).svg()


def test_every_point_is_on_the_page_and_nothing_runs(tmp_path: Path) -> None:
    written = write_study_page(example(), tmp_path / "report.html")
    text = written.read_text()
    assert written.stat().st_mode & 0o077 == 0
    for expected in ("gaussian-0.01", "good", "bad", "leaks less than noise of scale 0.01", "few-pictures",
                     "Failed, and so nowhere on the plot", "&lt;b&gt;diverged", "no leak found"):  # fmt: skip
        assert expected in text
    assert "<script" not in text
    assert "<b>diverged" not in text
    assert "broken" not in text[text.index("<svg") : text.index("</svg>")]
    for word in ("safe", "secure", "anonymous", "guaranteed"):
        assert f" {word}" not in text.lower()


def test_on_a_telephone_the_plot_is_upright_and_every_label_is_inside() -> None:
    behind = [Mark(label=f"gaussian-0.00{k}", group="g", shape="diamond", leakage=12.0 + k, accuracy=0.5)
              for k in range(1, 9)]  # fmt: skip
    chart = narrow(TradeoffChart(title="t", x="PSNR, dB, worst attack: less", marks=[*marks(), *behind]))
    tree = ElementTree.fromstring(chart.svg())
    texts = [text for text in tree.iter(f"{SVG}text") if (text.text or "") in {mark.label for mark in chart.marks}]
    assert chart.height > chart.width
    assert {text.text for text in texts} == {"none", "a<b", "b"}  # noise that nobody needs to tell apart is unnamed
    for text in texts:
        box = _box(float(text.get("x", 0)), float(text.get("y", 0)), text.get("text-anchor", ""), text.text or "", True)
        assert 0 <= box[0] < box[2] <= chart.width


def test_a_bold_label_at_the_edge_is_not_cut_off() -> None:
    at_the_edge = Mark(label="gaussian-0.0123456", group="g", shape="diamond", leakage=0.0, accuracy=0.5, ahead=True)
    others = [Mark(label=f"m{k}", group="m", shape="circle", leakage=1.0, accuracy=0.1 * k) for k in range(9)]
    chart = TradeoffChart(title="t", x="x", marks=[at_the_edge, *others])
    (text,) = (t for t in ElementTree.fromstring(chart.svg()).iter(f"{SVG}text") if t.text == at_the_edge.label)
    box = _box(float(text.get("x", 0)), float(text.get("y", 0)), text.get("text-anchor", ""), at_the_edge.label, True)
    assert box[2] <= chart.width


def test_what_is_exact_does_not_press_the_others_together() -> None:
    """A closed form on a perceptron gives 150 dB. The mark says so; it is drawn where 8 bits end."""
    who = [candidate("none", "none"), candidate("odd")]
    exact = outcome(
        who, {"none": [0.9] * 3, "odd": [0.8] * 3}, {"none": leakage([150.0, 152]), "odd": leakage([20, 21])}
    )
    chart = plot(exact, "psnr")
    assert [mark.leakage for mark in chart.marks] == [60.0, 20.5]
    assert "151.00" in chart.marks[0].tooltip
    assert "60 and above at 60" in chart.x
    assert "above" not in plot(example(), "psnr").x


def test_beside_psnr_stands_what_a_blank_picture_reaches() -> None:
    found = example()
    point = found.points[0]
    assert point.leakage is not None
    with_blank = replace(point, leakage=replace(point.leakage, blank=of_pictures([11.25, 13.75])))
    assert dict(zip(columns(found), row(with_blank, "psnr"), strict=True))["blank, dB"].startswith("12.5")
    assert with_blank.to_json()["leakage"]["blank"]["mean"] == 12.5
    assert "blank, dB" not in columns(replace(found, settings={**found.settings, "measure": "leaked"}))
