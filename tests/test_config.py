from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from gradveil.attacks import ATTACKS
from gradveil.attacks.autoattack import STAGES
from gradveil.audit.split import split_dataset
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build, dumps, from_tables, load
from gradveil.config.effort import EFFORTS, apply_effort
from gradveil.config.resolve import resolve
from gradveil.config.schema import DEFAULT_METRICS
from gradveil.core import toml
from gradveil.core.choice import parse_choices
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_model
from gradveil.core.seeds import Seed
from gradveil.data import Dataset
from gradveil.data.draw import draw_rows

FULL = """
seed = 3
budget = "quick"
metrics = ["psnr", "ssim"]

[scenario]
model = "mlp"
data = "digits"
images = 4
batch_size = 2
local_steps = 3
local_rate = 1
batchnorm = "batch"
labels = "inferred"
attacker = "curious"

[scenario.data_options]
size = 8

[defense.none]
[defense.loud]
name = "gaussian"
scale = 1
[defense.both]
name = "stack"
of = [{ name = "prune", ratio = 0.5 }, { name = "gaussian" }]

[attack.invertgrad]
[attack.short]
name = "invertgrad"
steps = 7
"""


def test_a_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(FULL)
    config = load(tmp_path / "a.toml")
    assert (config.seed, config.metrics, config.scenario.images) == (3, ("psnr", "ssim"), 4)
    assert config.scenario.local_rate == 1.0
    assert isinstance(config.scenario.local_rate, float)
    assert config.defense["loud"] == Choice(name="gaussian", options={"scale": 1.0})
    assert config.attack["short"].options["steps"] == 7
    assert config.attack["invertgrad"].options["steps"] < 7 * 1000


@pytest.mark.parametrize("config", [AuditConfig(), from_tables(tomllib.loads(FULL))], ids=["default", "full"])
def test_what_is_written_is_read_back_the_same(config: AuditConfig) -> None:
    resolved = resolve(config)
    again = from_tables(tomllib.loads(dumps(resolved)))
    assert again == resolved
    assert dumps(again) == dumps(resolved)
    assert resolve(resolved) == resolved


def test_a_resolved_config_says_it_all() -> None:
    config = resolve(AuditConfig(defense={"gaussian": Choice(name="gaussian")}))
    assert config.defense["gaussian"].options == {"scale": 1e-2}
    assert {"steps", "finalists"} <= set(config.attack["portfolio"].options)
    assert "limit" not in config.scenario.data_options  # None is not TOML


def test_the_default_is_what_the_command_promises() -> None:
    config = AuditConfig()
    assert (config.scenario.data, config.scenario.model, config.scenario.images) == ("photos", "lenet", 8)
    assert set(config.defense) == {"none", "gaussian", "prune"}
    assert set(config.attack) == {"autoattack"}
    assert list(resolve(config).attack) == list(STAGES)
    assert list(STAGES) == ["linear", "april", "cocktail-party", "spear", "r-gap", "portfolio"]
    assert resolve(config).sequence
    assert config.metrics == DEFAULT_METRICS


WRONG = {
    "sed = 1": r"a\.toml: sed: unknown key, did you mean 'seed'\?",
    "seed = 'one'": r"a\.toml: seed: expected a whole number, got 'one'",
    "seed = true": r"a\.toml: seed: expected a whole number, got True",
    "seed = 1.5": r"a\.toml: seed: expected a whole number, got 1\.5",
    "seed = -1": r"a\.toml: seed: must be at least 0, got -1",
    "seed = ": r"a\.toml: not TOML",
    "seed = 1\nseed = 2": r"a\.toml: not TOML",
    "budget = 'quik'": r"a\.toml: budget: unknown name 'quik', did you mean 'quick'\?",
    "metrics = 'psnr'": r"a\.toml: metrics: expected a list",
    "metrics = []": r"a\.toml: metrics: none is given",
    "metrics = ['psrn']": r"a\.toml: metrics: unknown name 'psrn', did you mean 'psnr'\?",
    "metrics = ['psnr', 'psnr']": r"a\.toml: metrics: a metric is given twice",
    "metrics = ['lpips']": r"a\.toml: lpips_weights: lpips needs",
    "metrics = ['lpips-vgg']": r"a\.toml: lpips_vgg_weights: lpips-vgg needs .* docs/metrics\.md",
    "metrics = ['jaccard']": r"a\.toml: tagger: jaccard needs",
    "metrics = ['jaccard:tops=3']": r"a\.toml: metrics\.jaccard\.tops: unknown key, did you mean 'top'\?",
    "metrics = ['retrieval:gallery=3']": r"a\.toml: metrics\.retrieval\.gallery: unknown key",
    "tagger = 'evil.py:run'": r"a\.toml: tagger: a classifier's file is never taken from a config",
    "gallery = 0": r"a\.toml: gallery: must be at least 1",
    "scenario = 1": r"a\.toml: scenario: expected a table",
    "[scenario]\nimage = 1": r"a\.toml: scenario\.image: unknown key, did you mean 'images'\?",
    "[scenario]\nimages = 0": r"a\.toml: scenario\.images: must be at least 1",
    "[scenario]\nimages = 1000000000000": r"a\.toml: scenario\.images: must be at most 100000",
    "[scenario]\nlocal_rate = nan": r"a\.toml: scenario\.local_rate: expected a finite number",
    "[scenario]\nlocal_rate = 0": r"a\.toml: scenario\.local_rate: must be at least",
    "[scenario]\nmomentum = 1.5": r"a\.toml: scenario\.momentum: must be at most 1\.0",
    "[scenario]\nmodel = 'lenett'": r"a\.toml: scenario\.model: unknown name 'lenett', did you mean 'lenet'\?",
    "[scenario]\nmodel = 'evil.py:run'": r"a\.toml: scenario\.model: a model file is never taken from a config",
    "[scenario]\nmodel = 'evil.py'": r"a\.toml: scenario\.model: a model file is never taken from a config",
    "[scenario]\nmodel = 3": r"a\.toml: scenario\.model: expected text",
    '[scenario]\nmodel = "a\\u0007b"': r"a\.toml: scenario\.model: expected text on one line",
    "[scenario]\ndata = 'photo'": r"a\.toml: scenario\.data: unknown name 'photo', did you mean 'photos'\?",
    "[scenario]\ndata = 'no/such/folder'": r"a\.toml: scenario\.data: no/such/folder: no such folder",
    "[scenario.data_options]\nsiz = 8": r"a\.toml: scenario\.data_options\.siz: unknown key, did you mean",
    "[scenario]\ndata_options = 8": r"a\.toml: scenario\.data_options: expected a table",
    "[scenario]\nbatchnorm = 'train'": r"a\.toml: scenario\.batchnorm: unknown name 'train'",
    "[scenario]\nlabels = 'know'": r"a\.toml: scenario\.labels: unknown name 'know', did you mean 'known'\?",
    "[scenario]\nattacker = 'furious'": r"a\.toml: scenario\.attacker: unknown name 'furious', did you mean",
    "[defense.gausian]": r"a\.toml: defense\.gausian\.name: unknown name 'gausian', did you mean 'gaussian'\?",
    "[defense.x]\nname = 'gaussian'\nscle = 1": r"a\.toml: defense\.x\.scle: unknown key, did you mean 'scale'\?",
    "[defense.gaussian]\nscale = '1'": r"a\.toml: defense\.gaussian\.scale: expected a number, got '1'",
    "[defense.gaussian]\nscale = -1": r"a\.toml: defense\.gaussian: .*scale = -1",
    "[defense.prune]\nratio = 2": r"a\.toml: defense\.prune: .*ratio = 2",
    "[defense.x]\nname = 1": r"a\.toml: defense\.x\.name: expected text",
    "[defense.'../x']\nname = 'none'": r"a\.toml: defense: label '\.\./x': expected letters",
    "[defense]": r"a\.toml: defense: none is given",
    "defense.gaussian = 3": r"a\.toml: defense\.gaussian: expected a table",
    "[[defense]]": r"a\.toml: defense: expected a table",
    "[attack.invertgrat]": r"a\.toml: attack\.invertgrat\.name: unknown name 'invertgrat', did you mean 'invertgrad'\?",
    "[attack.invertgrad]\nstep = 5": r"a\.toml: attack\.invertgrad\.step: unknown key, did you mean 'steps'\?",
    "[attack.invertgrad]\nsteps = 1.5": r"a\.toml: attack\.invertgrad\.steps: expected a whole number",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_config_is_named_by_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "a.toml")


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_bytes(b"a = " + b"[" * 100_000)
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match="2000000 bytes"):
        load(tmp_path / "a.toml")


@pytest.mark.parametrize("text", ["", 'a"b\\', "tab\tnew\nline", "\x7f\x00", "é漢", "a.b c"])
def test_texts_and_keys_survive_toml(text: str) -> None:
    tables = {"t": {text: {"v": text, "n": [1, 2.5, True, {"k": text}]}, "empty": {}}, "x": 1e-300}
    assert tomllib.loads(toml.dump(tables)) == tables


def test_the_budget_fills_what_nobody_set() -> None:
    def attack(*, steps: int = 4800, restarts: int = 2, rate: float = 0.1) -> None: ...

    def short(*, steps: int = 100) -> None: ...

    def own(*, restarts: int | None = None) -> None: ...

    def closed_form(*, box: float = 0.1) -> None: ...

    spent = [apply_effort(budget, attack, {}) for budget in EFFORTS]
    assert [one["steps"] for one in spent] == [960, 4800, 9600]
    assert [one["restarts"] for one in spent] == [1, 2, 10]
    assert apply_effort("quick", attack, {"steps": 9, "restarts": 2}) == {"steps": 9, "restarts": 2}
    assert apply_effort("quick", short, {}) == {"steps": 20}
    assert apply_effort("thorough", closed_form, {}) == {}
    assert apply_effort("standard", own, {}) == {}
    assert apply_effort("thorough", own, {}) == {"restarts": 10}


def test_methods_on_the_command_line() -> None:
    assert parse_choices(["none", "prune:ratio=0.5"], "--defense") == {
        "none": Choice(name="none"),
        "prune": Choice(name="prune", options={"ratio": 0.5}),
    }
    assert list(parse_choices(["g:scale=1e-3", "g:scale=0.1", "none"], "--defense")) == ["g-0.001", "g-0.1", "none"]
    for bad in ("", ":", "a:", "a:b", "a:=1", "a:b=1,b=2"):
        with pytest.raises(ConfigError, match=r"^--defense: "):
            parse_choices([bad], "--defense")
    with pytest.raises(ConfigError, match="given twice"):
        parse_choices(["none", "none"], "--defense")


def dataset(count: int) -> Dataset:
    images = torch.arange(count).view(-1, 1, 1, 1).expand(-1, 1, 2, 2) / count
    return Dataset(name="d", images=images, targets=torch.eye(count), class_names=(), mean=(0.0,), std=(1.0,))


@pytest.mark.parametrize(("count", "clients", "batch"), [(6, 3, 2), (7, 3, 2), (100, 4, 3), (3000, 16, 1)])
def test_victims_gallery_and_public_share_no_picture(count: int, clients: int, batch: int) -> None:
    parts = split_dataset(dataset(count), clients, batch)
    assert parts.victims.images.shape == (clients, batch, 1, 2, 2)
    victims = parts.victims.images.flatten(0, 1)[:, 0, 0, 0].tolist()
    gallery = [] if parts.gallery is None else parts.gallery[:, 0, 0, 0].tolist()
    public = [] if parts.public is None else parts.public.images[:, 0, 0, 0].tolist()
    assert victims == dataset(count).images[list(parts.rows), 0, 0, 0].tolist()
    assert len({*victims, *gallery, *public}) == len(victims) + len(gallery) + len(public)
    assert (len(gallery), len(public)) == {6: (0, 0), 7: (1, 0), 100: (71, 17), 3000: (1000, 256)}[count]


def test_victims_are_a_random_sample_by_the_seed() -> None:
    """Every row is a victim of about as many seeds, and no seed takes what another does."""
    drawn = [split_dataset(dataset(60), 6, 1, seed=seed).rows for seed in range(400)]
    counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=60)  # 40 expected, standard deviation 6
    assert len(set(drawn)) == 400
    assert counts.min() > 15
    assert counts.max() < 65


def test_the_sample_is_what_it_was() -> None:
    """On every machine and in every version: a run that goes on elsewhere attacks the same pictures."""
    assert draw_rows(1304, Seed(0))[:8] == [483, 764, 413, 1076, 209, 860, 1281, 660]
    assert draw_rows(360, Seed(7))[:4] == [57, 327, 331, 328]


def test_more_pictures_are_the_same_and_others() -> None:
    few, many = split_dataset(dataset(50), 4, 1, seed=3), split_dataset(dataset(50), 8, 2, seed=3)
    assert many.rows[:4] == few.rows


def test_the_first_pictures_are_the_victims_where_a_person_chose_them() -> None:
    parts = split_dataset(dataset(50), 4, 2, draw="first")
    assert parts.rows == tuple(range(8))
    assert parts.gallery is not None
    assert torch.equal(parts.gallery, dataset(50).images[8 : 8 + len(parts.gallery)])


def test_too_few_pictures_are_counted() -> None:
    with pytest.raises(ConfigError, match="need 8 pictures, d has 7"):
        split_dataset(dataset(7), 4, 2)


def small(**scenario) -> AuditConfig:
    return AuditConfig(scenario=ScenarioConfig(data="digits", images=2, **scenario))


def test_a_config_becomes_the_audit_it_describes() -> None:
    config = small(batch_size=3, local_steps=2, local_rate=0.1, labels="inferred", attacker="malicious", momentum=0.9)
    audit = build(config)
    training, threat = audit.scenario.training, audit.scenario.threat
    assert audit.scenario.name == "digits-lenet-b3-t2"
    assert audit.scenario.private.images.shape[:2] == (2, 3)
    assert (training.steps, training.rate, training.batch_size, training.momentum) == (2, 0.1, None, 0.9)
    assert (threat.knows_labels, threat.may_plant) == (False, True)
    assert [m.name for m in audit.metrics] == list(DEFAULT_METRICS)
    complete = replace(config, scenario=replace(config.scenario, loss="cross-entropy"))  # which was left to the data
    assert from_tables(audit.settings) == resolve(complete)


def test_the_model_seed_makes_the_model() -> None:
    one, same, other = (next(build(small(model_seed=seed)).scenario.model.parameters()) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_another_seed_of_the_attacks_draws_anew_on_the_same_pictures() -> None:
    config = replace(small(), also={"attack_seed": (1, 2)})
    audit, alone = build(config), build(small(attack_seed=1)).scenario
    scenarios = [audit.scenario, *audit.also, alone]
    assert len({scenario.name for scenario in scenarios}) == 4  # by which random numbers are drawn
    for scenario in scenarios[1:]:
        assert torch.equal(scenario.private.images, audit.scenario.private.images)
        assert hash_model(scenario.model) == hash_model(audit.scenario.model)


def test_a_model_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def build(classes, shape):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))\n"
    )
    audit = build(small(model=f"{file}:build"))
    assert isinstance(audit.scenario.model, nn.Sequential)
    assert "/" not in audit.scenario.name


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return nn.Linear(3, 3)", r"mine\.py:build: cannot take a picture of \(1, 32, 32\), RuntimeError"),
        ("return nn.Flatten()", r"gives a tensor of \(1, 1024\) for one picture, expected logits of \(1, 10\)"),
        ("return nn.LSTM(32, 10)", r"mine\.py:build: "),
        ("return 1 / 0", r"mine\.py: build\(\) raised ZeroDivisionError"),
    ],
)
def test_a_model_that_cannot_work_is_said_before_the_run(body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"from torch import nn\ndef build():\n    {body}\n")
    with pytest.raises(ConfigError, match=message):
        build(small(model=f"{tmp_path}/mine.py:build"))


def test_lazy_layers_are_made_and_always_the_same(tmp_path: Path) -> None:
    body = "nn.Sequential(nn.Flatten(), nn.LazyLinear(10))"
    (tmp_path / "mine.py").write_text(f"from torch import nn\ndef build():\n    return {body}\n")
    one, two = (build(small(model=f"{tmp_path}/mine.py:build")).scenario.model for _ in range(2))
    assert hash_model(one) == hash_model(two)


def test_a_gallery_is_needed_to_hide_in() -> None:
    config = AuditConfig(scenario=ScenarioConfig(data="digits", data_options={"limit": 2}, images=2))
    with pytest.raises(ConfigError, match="retrieval needs pictures that are not victims"):
        build(config)
    assert build(replace(config, metrics=("psnr",))).gallery is None


def test_every_attack_of_the_catalogue_can_be_configured_and_written_back() -> None:
    for name in ATTACKS:
        config = resolve(AuditConfig(attack={name: Choice(name=name)}))
        assert from_tables(tomllib.loads(dumps(config))) == config


def test_a_file_must_say_who_attacks(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(FULL.replace('attacker = "curious"\n', ""))
    with pytest.raises(ConfigError, match=r"a\.toml: scenario\.attacker: is not stated, write attacker = "):
        load(tmp_path / "a.toml")


def test_what_was_said_is_told_from_what_was_assumed() -> None:
    config = from_tables({"seed": 1, "scenario": {"images": 2}, "attack": {"linear": {}}})
    assert config.declared == ("seed", "scenario.images", "attack")


def test_variations_change_one_key_each_and_keep_the_pictures() -> None:
    raw = {
        "scenario": {"data": "digits", "model": "mlp", "images": 2},
        "also": {"batch_size": [1, 3], "labels": ["inferred"]},
    }
    audit = build(from_tables(raw | {"metrics": ["psnr"], "attack": {"linear": {}}}))
    plain = build(from_tables({k: v for k, v in raw.items() if k != "also"} | {"metrics": ["psnr"]}))
    larger, blind = audit.also
    assert torch.equal(audit.scenario.private.images, plain.scenario.private.images)
    assert larger.private.images.shape[:2] == (2, 3)
    assert torch.equal(larger.private.images.flatten(0, 1)[:2], plain.scenario.private.images.flatten(0, 1))
    assert not blind.threat.knows_labels
    assert len({s.name for s in (audit.scenario, *audit.also)}) == 3


def test_a_quick_budget_leaves_the_convergence_check_out() -> None:
    assert from_tables({}).convergence
    assert not from_tables({"budget": "quick"}).convergence
    assert from_tables({"budget": "quick", "convergence": True}).convergence


def test_autoattack_is_the_sequence_of_its_stages_and_leaves_what_was_chosen_alone() -> None:
    config = from_tables({"attack": {"autoattack": {"steps": 7}, "portfolio": {"steps": 3}}})
    stages = ["autoattack.portfolio" if stage == "portfolio" else stage for stage in STAGES]
    assert list(config.attack) == [*stages, "portfolio"]
    assert config.attack["autoattack.portfolio"].options["steps"] == 7
    assert config.attack["portfolio"].options["steps"] == 3
    assert resolve(config) == config
