"""The page as text: what it says, what it must never say, and how it is written."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from synthetic import HOSTILE, PROVENANCE, write_run

from gradveil.errors import ConfigError, GradveilError
from gradveil.journal import encode, read
from gradveil.report import read_run, write_report
from gradveil.report.cells import cells, summaries

TEMPLATE_TAGS = set(
    re.findall(
        r"\S+",
        "html head meta title style body div header section article nav footer h1 h2 h3 h4 p a b br strong small span "
        "code dl dt dd ul li table thead tbody tr th td figure figcaption img svg circle line text",
    )
)


class Tags(HTMLParser):
    """Tags and attributes of a page, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name in ("href", "src"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "november")


def change(folder: Path, **fields) -> None:
    """Rewrite the first record of the journal."""
    first, *rest = read(folder / "journal.jsonl")
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, [replace(first, **fields), *rest])))


def test_writes_one_private_file_and_returns_it(folder):
    before = set(folder.iterdir())
    path = write_report(folder)
    assert path == folder / "report.html"
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(folder.iterdir()) - before == {path}


def test_is_a_pure_function_of_the_folder(folder):
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_a_failing_template_leaves_the_old_report_whole(folder, monkeypatch):
    old = write_report(folder).read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == old
    assert not list(folder.glob(".report-*"))


def test_says_what_was_measured_and_that_it_is_no_verdict(folder):
    page = write_report(folder).read_text()
    assert "Measurements, not a verdict" in page
    assert "identified among 1,000" in page
    assert "2026-11-16" in page
    first = summaries(read_run(folder))[0]
    assert first.psnr is not None
    assert f"{first.identified} <small>of {first.scored}</small>" in page
    assert f"{first.psnr.high:.1f} <small>dB" in page
    assert not re.search(r"\b(safe|secure|anonymous|guaranteed)\b", page, re.IGNORECASE)


def test_sections_come_in_order(folder):
    page = write_report(folder).read_text()
    ids = ("measured", "pictures", "cells", "attacker", "gaps", "flags", "provenance")
    places = [page.index(f'<section id="{name}">') for name in ids]
    assert places == sorted(places)


def test_a_failed_trial_has_a_reason_and_never_a_score(folder):
    run = read_run(folder)
    cell = cells(run)[0]
    assert (cell.attempted, len(cell.scored), len(cell.failed)) == (8, 7, 1)
    page = write_report(folder).read_text()
    assert "1 of 24 trials failed" in page
    assert "not finite at step 12" in page
    undefended = page.index('class="card cell"'), page.index('class="card cell"', page.index('class="card cell"') + 1)
    assert "ward-7" not in page[slice(*undefended)]


@pytest.mark.parametrize("fields", [{"status": "failed", "reason": "out of memory"}, {"scores": {}}])
def test_scores_of_a_failed_trial_are_dropped_and_no_score_is_a_failure(folder, fields):
    change(folder, **fields)
    first = read_run(folder).records[0]
    assert (first.status, first.scores) == ("failed", {})
    assert first.reason in ("out of memory", "no finite score")
    assert "2 of 24 trials failed" in write_report(folder).read_text()


def test_a_run_in_which_everything_failed_is_still_reported(folder):
    records = [replace(r, status="failed", scores={}, reason="dead") for r in read(folder / "journal.jsonl")]
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, records)))
    page = write_report(folder).read_text()
    assert "24 of 24 trials failed" in page
    assert "No trial succeeded" in page
    assert " dB" not in page.split("</style>")[1].split("What was not tested")[0].replace("PSNR, dB", "")


def test_hostile_names_stay_text(folder):
    change(
        folder,
        attack='"><svg onload=alert(3)>',
        flags=('x" onmouseover="alert(4)',),
        backend="</table>\x00\u202e\ud800",
    )
    page = write_report(folder).read_text()
    seen = Tags(page)
    assert seen.tags <= TEMPLATE_TAGS
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search("[\x00\u202e]", page)


def test_reaches_nothing_outside_itself(folder):
    page = write_report(folder).read_text()
    assert "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in page
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in Tags(page).links)
    assert "url(" not in page
    assert "@import" not in page


def test_links_inside_the_page_have_targets(folder):
    page = write_report(folder).read_text()
    for link in Tags(page).links:
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in page


def test_redacted_leaves_out_pictures_names_and_paths(folder):
    full, redacted = write_report(folder).read_text(), write_report(folder, redact=True).read_text()
    for secret in ("data:image", "ward-", "hidden-class-name", "/home/someone", "alert(1)"):
        assert secret in full
        assert secret not in redacted
    assert "Redacted copy" in redacted
    assert "client 8 is not finite at step 12" in redacted
    assert summaries(read_run(folder))[0].defense == "none"
    numbers = re.compile(r"\d+\.\d+ <small>dB")
    assert numbers.findall(full) == numbers.findall(redacted)


def test_as_fed_is_shown_only_where_it_differs(folder):
    page = write_report(folder).read_text()
    per_cell = page.split('class="card cell"')[1:]
    assert [cell.split("</article>")[0].count("As fed") > 0 for cell in per_cell] == [False, True, False]


def test_as_fed_is_not_shown_where_a_defense_enlarges_the_batch(folder):
    path = folder / "images" / "cell-1.safetensors"
    stored = load_file(path)
    save_file(stored | {"fed": np.concatenate([stored["fed"]] * 4)}, path)
    assert "As fed<" not in write_report(folder).read_text()


def test_pictures_are_sorted_by_leakage_and_limited(tmp_path):
    page = write_report(write_run(tmp_path / "many", clients=20)).read_text()
    assert "13 of 19 scored pictures shown" in page
    cell = page.split('class="card cell"')[1]
    shown = [float(level) for level in re.findall(r"<b>(\d+\.\d) dB</b>", cell)]
    assert len(shown) == 12
    assert shown == sorted(shown, reverse=True)


def test_missing_pictures_config_and_provenance_do_not_stop_a_report(folder):
    for path in (*(folder / "images").iterdir(), folder / "config.toml", folder / "provenance.json"):
        path.unlink()
    page = write_report(folder).read_text()
    assert "The run kept no pictures of this cell" in page
    assert "Not stated; treat it as known to the attacker" in page
    assert "no provenance.json" in page
    assert "among the gallery" in page
    assert "Untrained" not in page


def test_pictures_outside_the_folder_are_refused(folder, tmp_path):
    stolen = np.zeros((8, 3, 4, 4), np.float32)
    save_file(dict.fromkeys(("original", "fed", "reconstructed"), stolen), tmp_path / "secret.safetensors")
    change(folder, images="../../secret")
    with pytest.raises(ConfigError, match="leaves the folder"):
        write_report(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.toml", "seed = ["), ("provenance.json", "[1]"), ("journal.jsonl", "{}\n{}\n"), ("journal.jsonl", "")],
)
def test_broken_files_are_named(folder, name, content):
    (folder / name).write_text(content)
    with pytest.raises(GradveilError, match=re.escape(name)):
        write_report(folder)


def test_a_broken_picture_file_is_named(folder):
    (folder / "images" / "cell-1.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(ConfigError, match=r"cell-1\.safetensors"):
        write_report(folder)


def test_an_unknown_gallery_size_is_not_invented(folder):
    known = {key: value for key, value in PROVENANCE.items() if key != "gallery"}
    (folder / "provenance.json").write_text(json.dumps(known))
    assert "among the gallery" in write_report(folder).read_text()
