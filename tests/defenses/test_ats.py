"""ATS as a defense: what is fed, what a config remembers of a file, and what an informed attacker gets."""

from __future__ import annotations

import json
import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from scenes import four_pictures, seen_in
from torch import Tensor
from torch.func import grad, vmap

from gradveil.attacks.invertgrad import invertgrad
from gradveil.cli import main
from gradveil.config import dumps, from_tables
from gradveil.config.load import LABEL
from gradveil.core.choice import parse_choice, parse_choices
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses import DEFENSES
from gradveil.defenses.ats import Ats
from gradveil.defenses.prune import Prune
from gradveil.defenses.random_policy import random_policy
from gradveil.defenses.stack import Stack
from gradveil.transforms import LIBRARIES, Policy

HYBRID = "3-1-7+43-18-18"


@pytest.fixture(scope="module")
def batch() -> Batch:
    images = photos(size=32, limit=12).images
    return Batch(images, torch.eye(12))


def fed(defense: Defense, batch: Batch, seed: int = 0) -> Tensor:
    return defense.batch(batch, Seed(seed).rng()).images


def possible(defense: Defense, picture: Tensor) -> list[Tensor]:
    return [view.apply(picture) for view in defense.knowledge().views]


# what is fed


def test_the_default_is_the_policy_that_the_authors_published() -> None:
    assert Ats() == Ats(policy=HYBRID, library="ats-code", augment=False)


def test_what_is_fed_is_the_policy_on_every_picture_and_labels_stay(batch: Batch) -> None:
    got = Ats(policy=HYBRID).batch(batch, Seed(0).rng())
    assert torch.equal(got.images, Policy.parse(HYBRID)(batch.images, Seed(0).rng()))
    assert torch.equal(got.labels, batch.labels)
    assert not torch.equal(got.images, fed(Ats(policy=HYBRID), batch, seed=1))


def test_the_libraries_differ_in_what_is_fed(batch: Batch) -> None:
    code, paper = (fed(Ats(policy="43", library=name), batch) for name in LIBRARIES)
    assert not torch.equal(code, paper)


def test_the_truth_of_a_round_keeps_both_pictures() -> None:
    scenario = four_pictures()
    defense = Ats(policy="3")
    _, truth = observe(scenario, defense, invertgrad(steps=1), Seed(0))
    assert torch.equal(truth.private.images, scenario.private.images)
    for before, after in zip(truth.private.images.flatten(0, 1), truth.fed.images.flatten(0, 1), strict=True):
        assert any(torch.equal(after, one) for one in possible(defense, before))


def test_augment_crops_and_flips_before_the_policy(batch: Batch) -> None:
    """Black comes in at the border at most four pixels wide; of many draws half are mirrored."""
    many = Batch(torch.full((400, 1, 16, 16), 1.0), torch.zeros(400, 1))
    black = fed(Ats(policy="none", augment=True), many).squeeze(1) == 0
    assert black.all(2).sum(1).max() == 4
    assert black.all(1).sum(1).max() == 4
    assert not black[:, 4:12, 4:12].any()
    marked = torch.zeros(400, 1, 16, 16)
    marked[..., 2] = 1.0  # comes to lie right of the middle only if it is mirrored
    mirrored = fed(Ats(policy="none", augment=True), Batch(marked, many.labels))[..., 8:].flatten(1).any(1)
    assert 140 < mirrored.sum() < 260
    plain, augmented = (fed(Ats(policy="0", augment=augment), batch) for augment in (False, True))
    assert not torch.equal(plain, augmented)
    # the negative comes last, so what came in at the border is white
    assert torch.allclose(1 - augmented, fed(Ats(policy="none", augment=True), batch), atol=1e-6)


# views


def test_there_is_a_view_for_every_draw_and_one_of_them_is_what_happened(batch: Batch) -> None:
    defense = Ats(policy=HYBRID)
    views = defense.knowledge().views
    assert len(views) == len({view.name for view in views}) == 16
    assert views[0].name == "+translateX9 +contrast6 +translateY2"
    seen = [fed(defense, batch, seed) for seed in range(12)]
    chosen = set()
    for place, picture in enumerate(batch.images):
        each = possible(defense, picture)
        for images in seen:
            chosen.add(next(k for k, one in enumerate(each) if torch.equal(one, images[place])))
    assert chosen == set(range(16))


def test_views_run_under_torch_func_on_any_leading_axes(batch: Batch) -> None:
    for view in Ats(policy="3-1+2-9+none").knowledge().views:
        nested = batch.images.unflatten(0, (3, 2, 2))
        assert torch.equal(vmap(view.apply)(nested).flatten(0, 2), view.apply(batch.images))
        slope = grad(lambda images, apply=view.apply: apply(images).sum())
        assert torch.allclose(vmap(slope)(nested).flatten(0, 2), slope(batch.images))
        assert pickle.loads(pickle.dumps(view)).name == view.name


def test_an_identity_has_the_one_view_that_does_nothing(batch: Batch) -> None:
    (view,) = Ats(policy="none").knowledge().views
    assert view.name == "as it is"
    assert torch.equal(view.apply(batch.images), batch.images)


def test_the_policy_is_not_in_the_update_so_its_surrogate_is_none() -> None:
    seen = seen_in(four_pictures(), Ats())
    assert Ats().has_adaptive_attacker
    assert type(Ats().surrogate({name: u[0] for name, u in seen.update.items()})) is Defense
    assert not Defense().knowledge().views
    assert not Prune().knowledge().views


def test_a_stack_has_every_combination_in_its_order(batch: Batch) -> None:
    shift, negative = Ats(policy="3"), Ats(policy="0+none")
    views = Stack((shift, Prune(), negative)).knowledge().views
    assert [view.name for view in views] == [
        "+translateX9; invert7",
        "+translateX9; as it is",
        "-translateX9; invert7",
        "-translateX9; as it is",
    ]
    first, second = shift.knowledge().views[1], negative.knowledge().views[0]
    expected = second.apply(first.apply(batch.images))
    assert torch.equal(views[2].apply(batch.images), expected)
    assert not torch.equal(expected, first.apply(second.apply(batch.images)))
    assert Stack((Prune(),)).knowledge().views == ()
    assert torch.equal(pickle.loads(pickle.dumps(views[2])).apply(batch.images), expected)


def test_more_draws_than_anybody_can_try_are_refused() -> None:
    assert len(Ats(policy="-".join(["3"] * 6)).knowledge().views) == 64
    with pytest.raises(ConfigError, match="can draw 8,192 signs, more than an attacker can try"):
        Ats(policy="-".join(["3"] * 13))


# random policies


def test_a_random_policy_is_drawn_once_by_its_seed() -> None:
    assert random_policy() == random_policy(length=3, seed=0)
    drawn = {random_policy(seed=seed).policy for seed in range(20)}
    assert len(drawn) > 15
    lengths = [len(Policy.parse(random_policy(length=n).policy).alternatives[0]) for n in range(5)]
    assert lengths == [0, 1, 2, 3, 4]
    places = [place for seed in range(300) for place in Policy.parse(random_policy(seed=seed).policy).alternatives[0]]
    assert set(places) == set(range(50))
    assert random_policy(library=("invert0",)).policy == "0-0-0"


@pytest.mark.parametrize("length", [-1, 13])
def test_a_random_policy_has_a_sensible_length(length: int) -> None:
    with pytest.raises(ConfigError, match=f"random-policy: length = {length} is out of range, take 0 to 12"):
        random_policy(length=length)


# files


def found(folder: Path, **changed: Any) -> Path:
    """What a search writes."""
    entries = [["translateX", 9], ["invert", 0]]
    content = {"schema": 1, "library": {"name": "mine", "entries": entries}, "hybrid": "0-1+1", "policies": []}
    path = folder / "policy.json"
    path.write_text(json.dumps(content | changed))
    return path


def test_a_policy_file_is_held_as_what_it_says(tmp_path: Path) -> None:
    path = found(tmp_path)
    defense = Ats(policy=str(path))
    assert defense == Ats(policy="0-1+1", library=("translateX9", "invert0"))
    path.unlink()
    assert eval(repr(defense)) == defense
    known = {"name": "anything", "entries": [[e.operation, e.magnitude] for e in LIBRARIES["ats-code"].entries]}
    assert Ats(policy=str(found(tmp_path, library=known, hybrid=HYBRID))) == Ats(policy=HYBRID)


def test_a_config_does_not_need_the_file_afterwards(tmp_path: Path) -> None:
    """Neither that of a policy nor that of a library, alone or in a stack."""
    path, library = found(tmp_path), tmp_path / "mine.toml"
    library.write_text("[[entry]]\noperation = 'rotate'\nmagnitude = 3\n")
    tables = {
        "found": {"name": "ats", "policy": str(path)},
        "own": {"name": "ats", "policy": "0", "library": str(library)},
        "drawn": {"name": "random-policy", "library": str(library)},
        "both": {"name": "stack", "of": [{"name": "prune"}, {"name": "ats", "policy": str(path)}]},
    }
    config = from_tables({"defense": tables})
    text = dumps(config)
    path.unlink()
    library.unlink()
    assert str(tmp_path) not in text
    again = from_tables(tomllib.loads(text))
    assert again == config
    built = {label: DEFENSES[c.name](**c.options) for label, c in again.defense.items()}
    assert built["found"] == Ats(policy="0-1+1", library=("translateX9", "invert0"))
    assert built["own"] == Ats(policy="0", library=("rotate3",))
    assert built["drawn"] == Ats(policy="0-0-0", library=("rotate3",))
    assert built["both"] == Stack((Prune(), Ats(policy="0-1+1", library=("translateX9", "invert0"))))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"schema": 2}, "policy.json: expected schema 1 and a policy as hybrid"),
    ({"hybrid": None}, "policy.json: expected schema 1 and a policy as hybrid"),
    ({"hybrid": ""}, "policy.json: this search found no policy"),
    ({"hybrid": "0-2"}, "policy.json: hybrid: policy 0-2: 2 is not in the library own, take 0 to 1"),
    ({"hybrid": "0-"}, "policy.json: hybrid: policy '0-': expected numbers"),
    ({"library": "ats-code"}, "policy.json: library.entries: expected pairs of operation and magnitude"),
    ({"library": {"entries": [["invert"]]}}, "policy.json: library: entry 0: expected an operation and its magnitude"),
    ({"library": {"entries": [["invert", 10]]}}, "policy.json: library: entry 0: magnitude 10 is out of range"),
    ({"library": {"entries": [["inwert", 1]]}}, "library: entry 0: operation: unknown name 'inwert', did you mean"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_bad_policy_file_is_one_line_that_names_it(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Ats(policy=str(found(tmp_path, **changed)))
    assert str(caught.value).startswith(str(tmp_path))


def test_what_is_no_policy_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    for content, message in (("{", "not JSON"), ("[1]", "not a table"), ("[" * 100_000, "not JSON")):
        path.write_text(content)
        with pytest.raises(ConfigError, match=f"policy.json: {message}"):
            Ats(policy=str(path))
    with pytest.raises(ConfigError, match=r"gone\.json: no such file, give the policy\.json"):
        Ats(policy="gone.json")
    with pytest.raises(ConfigError, match="brings its own library, leave library out"):
        Ats(policy=str(found(tmp_path)), library="ats-paper")


# on the command line


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("ats:policy.json", {"policy": "policy.json"}),
        ("ats:3", {"policy": "3"}),
        ("ats:policy=3", {"policy": "3"}),
        ("ats:3-1-7+43-18-18,augment=true", {"policy": HYBRID, "augment": True}),
        ("ats:policy='3-1-7',library=ats-paper", {"policy": "3-1-7", "library": "ats-paper"}),
        ("ats:library=ats-paper", {"library": "ats-paper"}),
        ("ats", {}),
    ],
)
def test_the_policy_needs_no_key(text: str, options: dict[str, Any]) -> None:
    assert parse_choice(text, "--defense", DEFENSES).options == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ats:3,policy=4", "--defense: policy: given twice"),
        ("ats:augment=true,3", "--defense: expected KEY=VALUE, got '3'"),
        ("prune:0.9", "--defense: expected KEY=VALUE, got '0.9'"),
    ],
)
def test_only_the_first_and_only_where_a_method_says_so(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_choice(text, "--defense", DEFENSES)


def test_labels_of_two_policies_are_short_enough() -> None:
    path = f"{'runs/' * 20}policy.json"
    labels = list(parse_choices([f"ats:{path}", "ats:3-1-7", "none"], "--defense", DEFENSES))
    assert labels == [("ats-" + path.replace("/", "-")[-60:]), "ats-3-1-7", "none"]
    assert all(LABEL.fullmatch(label) for label in labels)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_an_audit_of_a_found_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found(tmp_path)
    tiny = ("--data", "digits", "--model", "mlp", "--images", "2", "--attack", "linear", "--quiet", "--lineup", "off")
    audit = ("audit", *tiny, "--defense", "none", "--defense", "ats:policy.json", "--out", "run")
    assert code(*audit) == 0
    text = Path("run/config.toml").read_text()
    assert 'policy = "0-1+1"\nlibrary = ["translateX9", "invert0"]' in text
    Path("policy.json").unlink()
    assert code("report", "run") == 0
    capsys.readouterr()
    assert code("audit", *tiny, "--defense", "ats:3-99", "--out", "other") == 2
    error = capsys.readouterr().err
    assert error == "error: --defense: ats: policy 3-99: 99 is not in the library ats-code, take 0 to 49\n"
    assert not Path("other").exists()
