"""The page as text: what it says, what it must never say, and how it is written."""

import itertools
import json
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from synthetic import AUDITED, HOSTILE, PROVENANCE, SCENE, of_run, random_run, run_of, trial, write_run

from gradveil.audit.flags import FLAGS
from gradveil.audit.results import Run
from gradveil.audit.verdict import judge
from gradveil.core.errors import ConfigError, GradveilError
from gradveil.core.interval import at_most
from gradveil.experiment.journal import encode, read
from gradveil.report import read_run, write_report
from gradveil.report.build import render
from gradveil.report.decision import advise, state_result
from gradveil.report.pictures import find_best

TEMPLATE_TAGS = set(
    re.findall(
        r"\S+",
        "html head meta title style body div header section article aside nav footer h1 h2 h3 h4 p a b br strong small "
        "span code dl dt dd ul ol li table thead tbody tr th td figure figcaption img svg circle line rect text",
    )
)
FORBIDDEN = re.compile(
    r"\b(safe(ly)?|secured?|anonym(ous|ized)|guarantee[ds]?|protected|harmless|immune|certified|proven|trustworthy"
    r"|(risk|leak)-(free|proof))\b",
    re.IGNORECASE,
)


class Tags(HTMLParser):
    """Tags and attributes of a page, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name in ("href", "src"))
        self.ids += [value or "" for name, value in attrs if name == "id"]


def section(page: str, name: str) -> str:
    return page.split(f'<section id="{name}">')[1].split("</section>")[0]


def words(page: str) -> str:
    """What is read, on one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("</style>")[1]).split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "november")


def change(folder: Path, **fields) -> None:
    """Rewrite the first record of the journal."""
    first, *rest = read(folder / "journal.jsonl")
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, [of_run(replace(first, **fields)), *rest])))


def test_writes_one_private_file_and_returns_it(folder):
    before = set(folder.iterdir())
    path = write_report(folder)
    assert path == folder / "report.html"
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(folder.iterdir()) - before == {path}


def test_is_a_pure_function_of_the_folder(folder):
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_a_failing_write_leaves_the_old_report_whole(folder, monkeypatch):
    old = write_report(folder).read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == old


def test_the_verdict_comes_first_with_what_it_rests_on(folder):
    page = write_report(folder).read_text()
    verdict = judge(read_run(folder))
    top = words(page.split('<section id="pictures">')[0])
    assert f"<h1>{escape(state_result(read_run(folder), verdict))}</h1>" in page.replace("\u00a0", " ")
    assert f'<span class="pill {verdict.word}">{verdict.word}</span>' in page
    assert all(escape(sentence.split("`")[0]) in page for sentence in advise(verdict))
    assert verdict.under in top
    for finding in verdict.judged:
        if finding.verdict == verdict.word:
            assert " ".join(finding.reasons) in top
    assert verdict.positive is not None
    assert f"{verdict.positive.hits} of {verdict.positive.attempted}" in top
    for name in ("Prior only", "Random update", "Another picture"):
        assert name in top
    for flag in verdict.flags:
        assert f'href="#flag-{flag}">{FLAGS[flag].title}<' in page


def test_sections_come_in_order(folder):
    page = write_report(folder).read_text()
    ids = ("pictures", "findings", "measures", "checks", "attacker", "flags", "gaps", "provenance")
    places = [page.index('<header id="verdict">'), *(page.index(f'<section id="{name}">') for name in ids)]
    assert places == sorted(places)


def test_every_finding_has_its_card_with_counts_bound_failures_and_control(folder):
    cards = section(write_report(folder).read_text(), "findings").split("<article")[1:]
    verdict = judge(read_run(folder))
    assert len(cards) == len(verdict.findings) == 3
    for card, finding in zip(cards, verdict.findings, strict=True):
        tally, text = finding.tally, words("</style>" + card)
        leaks = finding.verdict == "leaks"
        assert f"{tally.exposed} of {tally.scored} {'exposed' if leaks else 'leaked'}" in text
        assert f"{tally.identified} of {tally.scored} identified" in text
        assert "among 1,000 (random guessing:" in text
        bounded = finding.verdict in ("leaks", "no leak found")
        assert ("of such pictures leak to these attacks (95 % confidence)" in text) == bounded
        assert f"Failed trials {tally.failed} of {tally.attempted}" in text
        assert finding.verdict in text


def test_controls_are_not_among_the_audited_cells(folder):
    page = write_report(folder).read_text()
    assert section(page, "measures").count('scope="rowgroup"') == AUDITED
    assert section(page, "pictures").count('<th scope="col">') == AUDITED + 2  # original, without the update
    assert "prior only" in section(page, "checks")


def test_records_of_a_control_scenario_belong_to_the_positive_control_alone():
    scenes = {"s": SCENE | {"regime": "deployment", "batch_size": 4}, "easy": SCENE | {"role": "control"}}
    records = [trial(f"c{i}", 8.0) for i in range(5)] + [trial(f"c{i}", 33.3, scenario="easy", hit=1) for i in range(5)]
    page = render(run_of(*records, provenance={"scenarios": scenes, "gallery": 999}))
    assert "33.3" not in page.split('<section id="checks">')[0].split("</style>")[1]
    assert "33.3" in section(page, "checks")
    assert "The same attacks recovered 5 of 5 pictures without a defense" in words(page)


def test_it_says_on_which_back_ends_each_attack_ran():
    records = [replace(trial(f"c{i}", 20.0), backend=ran) for i, ran in enumerate(["vmap", "sweep", "sweep"])]
    page = words(render(run_of(*records, provenance={"scenarios": {"s": SCENE}})))
    assert f"back_end.{records[0].attack} sweep, vmap" in page


def test_regimes_are_never_mixed_in_one_table():
    scenes = {"s": SCENE, "t": SCENE | {"role": "variation", "regime": "deployment", "labels": "inferred"}}
    records = [trial(f"c{i}", 20.0 + i, scenario=name, hit=1) for name in scenes for i in range(3)]
    page = render(run_of(*records, provenance={"scenarios": scenes, "gallery": 999}))
    for name in ("findings", "measures"):
        first, second = re.split("Deployment regime", section(page, name))
        assert "Diagnostic regime" in first
        assert "<b>t</b>" not in first
        assert ">s<" not in second
    table = section(page, "checks").split("Variations, deployment regime")[1].split("</table>")[0]
    assert table.count('scope="row"') == 1
    assert "labels inferred instead of known" in table


def test_a_partial_run_says_so_at_the_top():
    whole = run_of(*(trial(name, 20.0) for name in "vwxyz"))
    assert "Partial" not in render(whole)
    run = replace(whole, records=whole.records[:1])
    assert "Partial. 4 of 5 trials are missing" in words(render(run).split('<div class="hero">')[0])


@pytest.mark.parametrize(("pictures", "supported"), [(298, False), (299, True)])
def test_a_claim_is_supported_or_not(pictures, supported):
    scenes, known = {"s": SCENE}, {"defense": "d", "attacker": "adaptive"}
    records = [trial(f"c{i}", 5.0, **known) for i in range(pictures)] + [trial(f"c{i}", 30.0, hit=1) for i in range(9)]
    page = render(run_of(*records, provenance={"scenarios": scenes, "gallery": 999}), claim=0.01)
    text = words(page.split('<section id="findings">')[0])
    assert ("at most 1 % of such pictures leak Supported" in text) == supported
    assert ("at most 1 % of such pictures leak Not supported" in text) == (not supported)
    assert "needs at least 299 pictures" in text
    bound = 100 * at_most(0, pictures)
    assert (
        f"at most {'1.00' if supported else '1.01'} % of such pictures leak to these attacks (95 % confidence" in text
    )
    assert abs(bound - 1) < 0.01
    assert ">Claim: at most" not in render(run_of(*records))


@pytest.mark.parametrize("claim", [0.0, 1.0, -1.0, float("nan")])
def test_a_claim_must_be_a_share(folder, claim):
    with pytest.raises(ConfigError, match="claim"):
        write_report(folder, claim=claim)
    assert not (folder / "report.html").exists()


def flagged(run: Run, flag: str) -> Run:
    """The same run with this flag on every trial; without a truth there are no scores either."""
    records = [replace(r, flags=(flag,), scores={} if flag == "no-truth" else r.scores) for r in run.records]
    return replace(run, records=tuple(records))


def test_no_word_promises_anything_whatever_the_outcome():
    seen, scenes, raised = set(), set(), itertools.cycle(FLAGS)
    assert len(FLAGS) <= 60
    for seed in range(60):
        flag = next(raised)
        run = flagged(random_run(seed), flag)
        page = render(run, claim=0.05 if seed % 2 else None)
        verdict = judge(run)
        seen.add(verdict.word)
        assert set(verdict.flags) <= FLAGS.keys()
        scenes.add(len(run.scenarios))
        assert flag in page
        assert not FORBIDDEN.search(page), seed
        assert Tags(page).tags <= TEMPLATE_TAGS
    assert seen == {"leaks", "no leak found", "inconclusive", "not evaluated"}
    assert scenes == {1, 2, 3}


def test_a_failed_trial_has_a_reason_and_never_a_score(folder):
    page = write_report(folder).read_text()
    assert "1 of 24 trials failed" in page
    assert "not finite at step 12" in page
    (failed,) = (row for row in cells_of_pictures(page) if "ward-7" in row[0])
    assert "dB" not in failed[1]


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
    assert not re.search(r"\d dB", section(page, "findings").replace("least 3 dB", "") + section(page, "measures"))
    assert "<h1>No leak found</h1>" not in page


def test_hostile_names_stay_text(folder):
    change(
        folder,
        attack='"><svg onload=alert(3)>',
        flags=('x" onmouseover="alert(4)',),
        notes=("</table>\x00\u202e\ud800",),
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


def test_links_inside_the_page_have_targets_and_ids_are_unique(folder):
    seen = Tags(write_report(folder).read_text())
    assert len(seen.ids) == len(set(seen.ids))
    assert {link[1:] for link in seen.links if link.startswith("#")} <= set(seen.ids)


def cells_of_pictures(page: str) -> list[list[str]]:
    """What stands in each row of the table of pictures: the original, under each defense, without the update."""
    rows = section(page, "pictures").split("<tr>")[2:]
    return [re.split(r"<t[hd][ >]", row)[1:] for row in rows]


def test_a_row_is_a_picture_and_a_column_a_defense(folder):
    page = write_report(folder).read_text()
    rows = cells_of_pictures(page)
    assert len(rows) == 8
    assert {len(row) for row in rows} == {1 + 3 + 1}
    assert [page.count(f'alt="{one} of ward-1, picture 1"') for one in ("Original", "Without the update")] == [1, 1]
    failed = next(row for row in rows if "ward-7, picture 7" in row[0])
    assert ["nothing to show" in cell for cell in failed[1:4]] == [True, False, False]


def test_the_worst_picture_stands_on_the_first_screen_beside_what_was_read(folder):
    top = write_report(folder).read_text().split('<section id="pictures">')[0]
    assert top.count("<img") == 2
    verdict = judge(read_run(folder))
    levels = [r.scores["psnr"] for f in verdict.judged for r in f.tally.records if verdict.baselines.is_leaked(r)]
    assert f"{max(levels):.1f} dB" in top.split("<figcaption>")[1]


def test_as_fed_is_shown_only_where_it_differs(folder):
    rows = cells_of_pictures(write_report(folder).read_text())
    assert {tuple("As fed" in cell for cell in row) for row in rows} == {(False, False, True, False, False)}


def test_as_fed_is_not_shown_where_a_defense_enlarges_the_batch(folder):
    path = folder / "images" / "cell-1.safetensors"
    stored = load_file(path)
    save_file(stored | {"fed": np.concatenate([stored["fed"]] * 4)}, path)
    assert "As fed<" not in write_report(folder).read_text()


def test_what_the_attack_shows_without_the_update_stands_beside_each_picture(folder):
    assert all('alt="Without the update' in row[-1] for row in cells_of_pictures(write_report(folder).read_text()))
    (folder / "images" / "cell-3.safetensors").unlink()
    assert "Without the update<" not in write_report(folder).read_text()


def test_pictures_are_sorted_by_leakage_under_the_defenses_and_limited(tmp_path):
    page = write_report(write_run(tmp_path / "many", clients=20)).read_text()
    assert "13 of 20 pictures shown" in page
    rows = cells_of_pictures(page)
    leaked = [[("mark leaked" in cell) for cell in row[1:4]] for row in rows]
    levels = [float(re.findall(r"<b>(\d+\.\d) dB</b>", row[2])[0]) for row in rows]
    assert len(rows) == 13
    alike = [level for level, one in zip(levels, leaked, strict=True) if one[1]]
    assert alike == sorted(alike, reverse=True)


def test_a_leaked_picture_comes_before_a_closer_one_that_is_not(tmp_path):
    folder = write_run(tmp_path / "order")
    change(folder, blank=40.0)  # the closest of all is no closer than a blank one
    run = read_run(folder)
    verdict = judge(run)
    best = find_best(run, [r for r in run.records if not r.control], verdict.baselines).values()
    leaked = [standing for standing, record in best if verdict.baselines.is_leaked(record)]
    hidden = [standing for standing, record in best if not verdict.baselines.is_leaked(record)]
    assert leaked
    assert hidden
    assert min(leaked) > max(hidden)
    assert max(standing[-1] for standing in hidden) > max(standing[-1] for standing in leaked)


def test_missing_pictures_config_and_provenance_do_not_stop_a_report(folder):
    for path in (*(folder / "images").iterdir(), folder / "config.toml", folder / "provenance.json"):
        path.unlink()
    page = write_report(folder).read_text()
    assert "The run stored no pictures" in page
    assert page.count("not stated: treated as known to the attacker") >= 10
    assert "no provenance.json" in page
    assert "among the gallery" in page
    assert "untrained" not in section(page, "attacker") + section(page, "gaps")
    assert "treat this report as expired" in page


def test_it_expires_one_year_after_the_run_and_says_how_to_check_it(folder):
    page = write_report(folder).read_text()
    assert "This report expires on 2027-11-16" in section(page, "gaps")
    assert "Attacks published after the day of this run (2026-11-16)" in section(page, "gaps")
    text = section(page, "provenance")
    assert "gradveil verify november" in text
    worst = max((r for r in read_run(folder).records if not r.control), key=lambda r: r.scores.get("psnr", 0))
    assert worst.client == HOSTILE
    assert "gradveil reproduce-cell november --trial &#39;scene/none/invertgrad/unaware/&lt;script&gt;" in text
    assert PROVENANCE["model_sha256"] in text
    assert "journal_sha256" in text


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


def test_a_page_of_a_thousand_trials_stays_readable(tmp_path):
    folder = write_run(tmp_path / "large", clients=170)  # 6 cells
    assert len(read(folder / "journal.jsonl")) > 1000
    page = write_report(folder).read_text()
    assert page.count("<circle") < 50
    assert page.count('<rect class="bar"') > 20
    assert len(page) < 2_000_000
