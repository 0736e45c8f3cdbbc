"""Learning to Invert (Wu et al., UAI 2023): a network that was trained on simulated updates draws the pictures.

`gradveil train-inverter` trains it on public pictures, through the very model, training and defense that are attacked.
Differs from the paper: large tensors are count-sketched and small ones kept, where it hashes the whole gradient or
keeps all of it; every tensor is a direction beside its length; labels are told. `search` runs Inverting Gradients from
what the network draws, with one start for each weight in `pull` that keeps it near.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.core.attack import Attack, Reconstruction, times
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Labels, PerClient
from gradveil.engine.distance import Cosine, Unmatched
from gradveil.engine.finish import by_match_and_roughness
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import given_or_idlg
from gradveil.engine.matcher import OneTrial
from gradveil.engine.optimizer import Adam, Steps
from gradveil.engine.priors.likeness import Likeness
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.given_start import GivenStart
from gradveil.generators.inverter import TRAIN, Inverter, draw_pictures, load_inverter
from gradveil.generators.inverter_setting import UNDEFENDED, Setting, read_setting
from gradveil.generators.sketch import Sketch

PAPER = Paper(
    "Learning to Invert: Simple Adaptive Attacks for Gradient Inversion in Federated Learning",
    "Wu et al.",
    2023,
    "arXiv:2210.10880",
)
NO_FILE = f"learned-inverter: no network is given, give inverter=FILE; {TRAIN}, one for each defense"
PULLS = (0.1, 1.0, 10.0)
STEPS = 1000
AGAIN = "train one with the settings of this audit (gradveil train-inverter)"


def learned_inverter(
    *,
    inverter: tuple[str, ...] | str = "",
    search: bool = False,
    steps: int | None = None,
    pull: tuple[float, ...] | float = PULLS,
    tv: float = 1e-3,
    rate: float = 0.02,
) -> LearnedInverter:
    """Learning to Invert: a network trained on simulated updates of public pictures draws the pictures at once.

    `inverter`: files of `gradveil train-inverter`, one for each defense that the attacker knows and one without;
    `search`: Inverting Gradients from what the network draws; `steps` (1,000), `rate`, `tv`: of this search; `pull`:
    weight of the mean squared difference from what the network draws, or several of which every picture gets each.
    """
    files = (inverter,) if isinstance(inverter, str) else tuple(inverter)
    pulls = (pull,) if isinstance(pull, float | int) else tuple(pull)
    steps = STEPS if search and steps is None else steps
    return LearnedInverter(
        files=tuple(file for file in files if file), steps=steps if search else None, pull=pulls, tv=tv, rate=rate
    )


@dataclass(frozen=True, kw_only=True)
class LearnedInverter(Attack):
    """The network for this model, training and defense, alone or as start and prior of a search."""

    files: tuple[str, ...]
    steps: int | None = None  # of a search from what the network draws; None: there is none
    pull: tuple[float, ...] = PULLS
    tv: float = 1e-3
    rate: float = 0.02
    blind: bool = False  # draws the mean of what it could draw for the label

    def __post_init__(self) -> None:
        if not self.pull or min(self.pull) < 0 or self.tv < 0 or self.rate <= 0:
            raise ConfigError("pull and tv must be 0 or more, rate above 0", key="learned-inverter")
        for file in self.files:
            read_setting(file)

    def networks(self) -> tuple[str, ...]:
        if not self.files:
            raise ConfigError(NO_FILE)
        return self.files

    def prior_only(self) -> LearnedInverter:
        return replace(self, blind=True)

    def scaled(self, factor: float) -> LearnedInverter | None:
        return None if self.steps is None else replace(self, steps=times(self.steps, factor))

    @property
    def evaluations(self) -> tuple[int, int] | None:
        return None if self.steps is None else (self.steps, self.steps)

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        """A defense may change the model, so only files that were trained without one are held against it."""
        settings = {file: read_setting(file) for file in self.files}
        wrong = [
            f"{file} {one.wrong_model(model, shape)}" for file, one in settings.items() if one.wrong_model(model, shape)
        ]
        if wrong and len(wrong) == len(settings) and all(one.defense == UNDEFENDED for one in settings.values()):
            raise NotApplicableError(f"{'; '.join(wrong)}; {AGAIN}", key="inverter")

    def check(self, seen: Observation) -> None:
        self.file_for(seen)

    def file_for(self, seen: Observation) -> str:
        """The file whose setting is that of these updates; an attacker who does not know the defense takes none for it.

        NotApplicableError says what does not fit.
        """
        if not self.files:
            raise ConfigError(NO_FILE)
        if not seen.target.has_classes:
            raise NotApplicableError("draws pictures by their class, and these have none", key="inverter")
        here = Setting.of(seen.model, seen.training, seen.defense or Defense(), seen.examples, seen.shape)
        settings = {file: read_setting(file) for file in self.files}
        if fitting := [file for file, one in settings.items() if one == here]:
            return fitting[0]
        wrong = [f"{file} {one.mismatch(here)}" for file, one in settings.items() if one.mismatch(here)]
        if len(wrong) == len(settings):
            raise NotApplicableError(f"{'; '.join(wrong)}; {AGAIN}", key="inverter")
        known = "is not known to this attacker" if seen.defense is None else f"is {here.defense}"
        given = ", ".join(f"{file} ({one.defense})" for file, one in settings.items())
        needed = "without a defense" if here.defense == UNDEFENDED else f"through {here.defense}"
        raise NotApplicableError(
            f"no network was trained {needed}: the defense {known}, the files are {given}; "
            "add one by gradveil train-inverter",
            key="inverter",
        )

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        seen = replace(seen, history=())
        file = self.file_for(seen)
        seen = replace(seen, labels=in_order(given_or_idlg(seen)))
        network = load_like(file, next(iter(seen.update.values())))
        images = self.draw(network, seen)
        if self.steps is not None:
            return self.search(images, seen, seed, compute, self.steps)
        labels = seen.labels
        assert labels is not None
        return Reconstruction(
            images=images,
            labels=labels,
            found=torch.ones(images.shape[:2], dtype=torch.bool, device=images.device),
            loss=match(seen, images, labels),
        )

    def draw(self, network: Inverter, seen: Observation) -> Images:
        like = next(iter(seen.update.values()))
        features = Sketch(network.sketch)(seen.update).nan_to_num(0, 0, 0)
        if features.shape[-1] != network.mean.shape[-1]:
            raise NotApplicableError(
                "the update lacks parameters that the network was trained on, choose another attack", key="inverter"
            )
        if self.blind:
            features = network.mean.expand_as(features)
        assert seen.labels is not None
        return draw_pictures(network, features, seen.labels).to(like)

    def search(self, images: Images, seen: Observation, seed: Seed, compute: Compute, steps: int) -> Reconstruction:
        drawn = dict(zip(seen.names, images, strict=True))
        inversion = Inversion(
            distance=Unmatched() if self.blind else Cosine(),
            space=GivenStart(pictures=drawn),
            priors=(TotalVariation(self.tv), Likeness(pictures=drawn, weight=self.pull)),
            optimizer=Adam(rate=self.rate, signed=True, schedule=Steps()),
            steps=steps,
            restarts=len(self.pull),
            select=by_match_and_roughness,
        )
        return inversion.reconstruct(seen, seed, compute)


def in_order(labels: Labels) -> Labels:
    """As the network draws them: by class. An update does not say in which order its pictures came."""
    order = labels.argmax(-1).argsort(dim=1, stable=True)
    return labels.take_along_dim(order.unsqueeze(-1), 1)


@torch.no_grad()
def match(seen: Observation, images: Images, labels: Labels) -> PerClient:
    """1 - cosine between the update and what the pictures would send."""
    one, found = OneTrial.of(seen, Cosine()), []
    for client in range(len(images)):
        update = {name: u[client] for name, u in seen.update.items()}
        found.append(one(images[client], labels[client].to(images), update))
    return torch.stack(found)


def load_like(file: str, like: Tensor) -> Inverter:
    """The network where the updates are, in their precision."""
    return _load(file, Path(file).stat().st_mtime_ns, str(like.device), like.dtype)


@lru_cache(maxsize=4)
def _load(file: str, stamp: int, device: str, dtype: torch.dtype) -> Inverter:
    return load_inverter(file).to(device, dtype)
