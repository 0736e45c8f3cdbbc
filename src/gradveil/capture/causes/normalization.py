"""Constants that people normalize with: in the transform, in the model, nowhere or twice."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.inputs import feed, feed_normalized, own_constants
from gradveil.capture.causes.story import Evidence, Story
from gradveil.capture.format import Normalization
from gradveil.data.cifar import CIFAR10, CIFAR100
from gradveil.data.image_zip import MEAN, STD
from gradveil.models.normalize import normalizes

NAMED: dict[str, Normalization] = {
    "imagenet": (MEAN, STD),
    "cifar10": (CIFAR10.mean, CIFAR10.std),
    "cifar100": (CIFAR100.mean, CIFAR100.std),
}
GRAY: dict[str, Normalization] = {"MNIST": ((0.1307,), (0.3081,)), "Fashion-MNIST": ((0.286,), (0.353,))}


def change_normalization(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    mean, std = own_constants(story)
    images, inside = story.batch.images, normalizes(story.model)
    if inside:
        do = "audit with `normalize = none` and the model without its first layer"
        yield Attempt(name="the client did not normalize", story=feed(story, std, mean), do=do)
        do = "leave the normalization out of the client's transform or out of the model"
        yield Attempt(name="the client normalized twice", story=feed(story, 1 / std, -mean / std), do=do)
    elif evidence.constants is not None:
        do = f"audit with `normalize = {format_constants(evidence.constants)}`"
        changed = feed_normalized(story, *evidence.constants)
        yield Attempt(name="the client normalized with the constants of the data", story=changed, do=do)
    for name, constants in NAMED.items() if images.shape[1] == 3 else GRAY.items():
        shown = name if name in NAMED else format_constants(constants)
        do = f"audit with `normalize = {shown}`" + (" and the model without its own" if inside else "")
        changed, text = feed_normalized(story, *constants), f"the client normalized with the constants of {name}"
        yield Attempt(name=text, story=changed, do=do, quick=False)
    if images.shape[1] == 1:
        gray = (sum(MEAN) / 3,), (sum(STD) / 3,)
        do = f"audit with `normalize = {format_constants(gray)}`"
        text = "the client normalized with the constants of imagenet, averaged"
        yield Attempt(name=text, story=feed_normalized(story, *gray), do=do, quick=False)


def format_constants(constants: Normalization) -> str:
    """As the setting `normalize` takes them.

    >>> format_constants(((0.5,), (0.25,)))
    '0.5/0.25'
    """
    return "/".join(",".join(f"{number:.4g}" for number in part) for part in constants)
