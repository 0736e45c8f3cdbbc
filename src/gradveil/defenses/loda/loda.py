"""Learning to Obscure Data (Wan et al., 2022): clients train on pictures with the features of theirs and other pixels.

An encoding starts at a public picture and goes where the features of a public network are those of the private picture
and the pixels are not (equation 4, `obscure`). Pixels are in units of the network's normalization, which the paper
 leaves open (docs/decisions/0016-loda-reading.md). Differs: the start is chosen by the picture's hash
instead of drawn, so that one picture has one encoding, and it is moved a little, so that no two pictures share one.
The update is that of the encodings, and an attacker who knows the defense has no surrogate to run: it inverts the
update first and the encoding then, as `loda-inverse` does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.knowledge import Knowledge
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch, Update
from gradveil.defenses.loda.cache import Cache
from gradveil.defenses.loda.encode import encode_all, refuse_encodings
from gradveil.defenses.loda.extractor import TRAIN, check_extractor, fingerprint, identity, load_extractor
from gradveil.defenses.loda.features import Features, Layers
from gradveil.defenses.loda.half import in_half
from gradveil.defenses.loda.obscure import Recipe, Reduce, Scale, Units, obscure
from gradveil.defenses.loda.starts import Starts, hash_of, public_pool, start_of
from gradveil.defenses.stack import Stack
from gradveil.models.start import Shape

PAPER = Paper(
    "Defense Against Gradient Leakage Attacks via Learning to Obscure Data", "Wan et al.", 2022, "arXiv:2206.00769"
)
VERSION = 2  # of what an encoding is: a change of it leaves old caches behind


@dataclass(frozen=True, kw_only=True)
class Loda(Defense):
    """Replaces every picture by one with nearly the same features in `extractor` (MODEL:FILE) and other pixels.

    `layers`: firstN, lastN or all convolutional layers, with `+linear` for linear ones too; `c` pushes pixels away;
    `public` is a data set that encodings start from; `seed` gives other starts; `cache` keeps encodings on disk;
    `bf16` rounds features, for a GPU.
    """

    stronger: ClassVar[tuple[str, ...]] = ("c",)
    reads: ClassVar[tuple[str, ...]] = ("extractor",)
    one_by_one: ClassVar[bool] = True

    extractor: str = ""
    layers: str = "first5"
    c: float = 20.0
    steps: int = 500
    rate: float = 0.1
    reduce: Reduce = "sum"
    units: Units = "normalized"
    public: str = "photos"
    starts: Starts = "own"
    seed: int = 0
    cache: bool = True
    bf16: bool = False

    def __post_init__(self) -> None:
        Layers.parse(self.layers)
        assert self.recipe  # its ranges are checked
        if self.extractor:
            object.__setattr__(self, "extractor", check_extractor(self.extractor))

    @property
    def recipe(self) -> Recipe:
        return Recipe(c=self.c, steps=self.steps, rate=self.rate, reduce=self.reduce)

    def check(self, model: nn.Module) -> None:
        if not self.extractor:
            raise ConfigError(
                f"loda: needs a feature extractor, make one by {TRAIN} "
                "and give extractor=resnet18:extractor.safetensors"
            )

    def bind(self, scenario: Scenario) -> Loda:
        """The same, if it can act on the pictures of the scenario."""
        if self.extractor:
            self.check_pictures(scenario.private.images.flatten(0, 1))
        return self

    def check_pictures(self, pictures: Tensor) -> None:
        """ConfigError unless extractor and public pictures fit these, and none of these is an encoding."""
        self.features(pictures[:1].float())
        key = self.key(shape_of(pictures))
        if self.cache:
            refuse_encodings(pictures, Cache.of(key))

    @property
    def slow_to_feed(self) -> bool:
        """Every picture is a search of its own."""
        return True

    def expect(self, pictures: Tensor) -> None:
        if self.cache:
            self.encode(pictures)

    def data(self, data: Batch, rng: Generator) -> Batch:
        return Batch(self.encode(data.images), data.labels)

    def encode(self, pictures: Tensor) -> Tensor:
        """Encodings [n, c, h, w], on the device of the pictures; computed in float32, features in bfloat16 if asked."""
        self.check(nn.Identity())
        cache = Cache.of(self.key(shape_of(pictures))) if self.cache else None
        return encode_all(pictures, self.encoder(pictures.float()), cache)

    def encoder(self, like: Tensor) -> Callable[[Tensor, list[str]], Tensor]:
        shape = shape_of(like)
        features, pool = self.features(like), public_pool(self.public, shape)
        scale = Scale.of(self.units, features.model, like)
        extract = in_half(features) if self.bf16 else features

        def encode(pictures: Tensor, hashes: list[str]) -> Tensor:
            starts = torch.stack([start_of(pool, hashed, self.starts, self.seed) for hashed in hashes])
            return obscure(pictures.to(like.dtype), starts.to(like), extract, self.recipe, scale)

        return encode

    def features(self, like: Tensor) -> Features:
        """What the encodings keep, on the device and in the type of some pictures."""
        shape = shape_of(like)
        model = copy.deepcopy(load_extractor(self.extractor, shape)).to(like.device, like.dtype)
        tensor_cores = self.bf16 or torch.backends.cudnn.allow_tf32  # plain float32 does not gain
        if like.is_cuda and tensor_cores:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Features(model, self.layers, shape)

    def key(self, shape: Shape) -> str:
        """Everything that an encoding depends on beside the picture."""
        public = hash_of(public_pool(self.public, shape))
        options = (self.layers, self.recipe, self.units, self.starts, self.seed, self.bf16)
        return fingerprint(VERSION, identity(self.extractor), public, *options)

    def surrogate(self, seen: Update) -> Defense:
        """None: the update is that of the encodings. Undoing them is an attack of its own."""
        return Defense()

    def knowledge(self) -> Knowledge:
        return Knowledge(decoders=("loda-inverse",))


def shape_of(pictures: Tensor) -> Shape:
    channels, height, width = pictures.shape[-3:]
    return channels, height, width


def loda_of(defense: Defense | None) -> Loda | None:
    """The first LODA among the parts of a defense that is known."""
    return next((part for part in defense.parts if isinstance(part, Loda)), None) if defense is not None else None


def without_loda(defense: Defense | None) -> Defense | None:
    """The other parts: what is left to model at the update."""
    if defense is None or isinstance(defense, Loda):
        return None
    rest = tuple(part for part in defense.parts if not isinstance(part, Loda))
    return defense if rest == defense.parts else Stack(rest) if rest else None


PRESETS = {
    "loda-1": Preset(
        Loda, "LODA 1, of CIFAR-10: the first five convolutional layers, c = 20.", layers="first5", c=20.0
    ),
    "loda-2": Preset(
        Loda,
        "LODA 2, of CIFAR-10: all convolutional layers, c = 30. More accurate, less private.",
        layers="all",
        c=30.0,
    ),
    "loda-3": Preset(
        Loda,
        "LODA 3, of SVHN: the last five convolutional layers and the linear one, c = 1.",
        layers="last5+linear",
        c=1.0,
    ),
}
