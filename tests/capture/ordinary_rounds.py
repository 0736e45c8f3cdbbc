"""Ordinary rounds, and each declared wrongly on purpose: what was changed, and words of the true reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from ordinary_client_networks import (
    Cnn,
    Mlp,
    NormalizingCnn,
    ResNet,
    Vit,
    cnn_with_dropout,
    mlp_with_dropout,
    vit_with_dropout,
)
from ordinary_clients import PICTURES, RULES, SIDE, Client
from torch import nn

CLASS_WEIGHTS = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 2.0)
DROPS = {cnn_with_dropout: 0.5, vit_with_dropout: 0.1, mlp_with_dropout: 0.3}
NET_NAMES = {Cnn: "CNN", NormalizingCnn: "CNN", cnn_with_dropout: "CNN", ResNet: "ResNet", Vit: "ViT",
             vit_with_dropout: "ViT", Mlp: "MLP", mlp_with_dropout: "MLP"}  # fmt: skip
NORMED = (Cnn, NormalizingCnn, cnn_with_dropout, ResNet)


@dataclass(frozen=True, kw_only=True)
class Round:
    """A client, and what is declared of it wrongly: settings of `training`, of the data, or `normalize`."""

    client: Client
    wrong: Mapping[str, Any]
    cause: str  # words of what has to be named first
    says: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "says", declare(self.client))


def declare(client: Client) -> dict[str, Any]:
    """What is true of a client, in the keys of a capture and of the options."""
    training: dict[str, Any] = dict(RULES[client.rule].says)
    if client.size < PICTURES:
        training["batch_size"] = client.size
    training["epochs"] = client.epochs
    if client.shuffles:
        training["order"] = "unknown"
    if client.net in NORMED and client.trains:
        training["batchnorm"] = "batch-shared" if client.shares else "batch"
    if client.net in DROPS and client.trains:
        training["dropout"] = "on"
    if client.augments:
        training["augment"] = "crop-flip"
    named = {"label_smoothing": client.smoothing, "class_weights": client.weights, "clip_gradients": client.clips}
    training |= {key: value for key, value in named.items() if value}
    if client.cosine:
        training["schedule"] = "cosine"
    if client.precision != torch.float32:
        training["update_precision"] = {torch.bfloat16: "bf16", torch.float16: "fp16"}[client.precision]
    data = {"size": SIDE, "resize": client.resize, "crop": client.crop}
    return {"training": training, "data": data, "normalize": client.constants or "auto"}


def misdeclare(one: Round) -> dict[str, Any]:
    """The same with what is wrong; a setting that is None is left out."""
    says = {key: dict(value) if isinstance(value, dict) else value for key, value in one.says.items()}
    for key, value in one.wrong.items():
        if key == "normalize":
            says[key] = value
            continue
        table = says["data" if key in ("resize", "crop") else "training"]
        table[key] = value
        if value is None:
            del table[key]
    return says


def row(wrong: Mapping[str, Any], cause: str, net: Any = Cnn, rule: str = "sgd", **client: Any) -> Round:
    return Round(client=Client(net=net, rule=rule, **client), wrong=wrong, cause=cause)


NO_NORMALIZE = {"normalize": "auto"}
SHUFFLED, KNOWN = {"size": 2, "shuffles": True}, {"order": None}
FULL = {"batch_size": None}
SGD = {"optimizer": None, "rate": 0.05, "weight_decay": None}
ROUNDS: tuple[Round, ...] = (
    # normalization
    row(NO_NORMALIZE, "constants of imagenet", constants="imagenet"),
    row(NO_NORMALIZE, "constants of imagenet", ResNet, constants="imagenet"),
    row(NO_NORMALIZE, "constants of imagenet", Vit, "adamw", constants="imagenet"),
    row(NO_NORMALIZE, "constants of cifar10", Mlp, "momentum", size=2, constants="cifar10"),
    row(NO_NORMALIZE, "from -1 to 1", Vit, "adam", size=2, constants="0.5,0.5,0.5/0.5,0.5,0.5"),
    row(NO_NORMALIZE, "from -1 to 1", ResNet, trains=False, constants="0.5,0.5,0.5/0.5,0.5,0.5"),
    row(NO_NORMALIZE, "(fitted)", Mlp, constants="0.3,0.4,0.35/0.3,0.2,0.25"),
    row({"normalize": "imagenet"}, "did not normalize", NormalizingCnn),
    row({"normalize": "imagenet"}, "did not normalize", ResNet, "adam"),
    row({"normalize": "imagenet"}, "constants of cifar10", constants="cifar10"),
    # optimizer
    row(SGD, "optimizer was adam", rule="adam"),
    row(SGD, "optimizer was adam", Mlp, "adam", size=2, epochs=2),
    row(SGD, "optimizer was adam", Vit, "adam", constants="imagenet"),
    row(SGD, "optimizer was adamw", Vit, "adamw", size=2),
    row(SGD, "optimizer was rmsprop", ResNet, "rmsprop", size=3),
    row(SGD, "optimizer was adagrad", Mlp, "adagrad", size=2),
    row({"momentum": None}, "momentum was 0.9", rule="momentum", size=2),
    row({"momentum": None}, "momentum was 0.9", ResNet, "momentum", epochs=3),
    row({"nesterov": None}, "Nesterov", rule="nesterov", size=2, trains=False),
    row({"momentum": None, "nesterov": None}, "Nesterov", Mlp, "nesterov", epochs=4),
    row({"weight_decay": None}, "weight decay was 0.0005", ResNet, "sgd, decay 0.0005", epochs=4),
    row({"beta1": None}, "beta1 was 0.5", Mlp, "adam, betas 0.5, 0.999", epochs=3),
    row({"rate": 0.01}, "multiplied by 5", Vit),
    row({"rate": 0.01}, "rate was 0.05", epochs=4),
    row({"rate": 1e-4}, "rate was 0.001", ResNet, "adam", size=2),
    row({"optimizer": "adam", "rate": 1e-3}, "optimizer was sgd", Mlp, size=2),
    # order and number of steps
    row(KNOWN, "shuffled", **SHUFFLED),
    row(KNOWN, "shuffled", ResNet, **SHUFFLED),
    row(KNOWN, "shuffled", Vit, "adam", **SHUFFLED),
    row(KNOWN, "shuffled", Mlp, "adamw", **SHUFFLED),
    row(KNOWN, "shuffled", Cnn, "momentum", size=3, shuffles=True, trains=False, constants="imagenet"),
    row(KNOWN, "shuffled", Mlp, "rmsprop", size=3, shuffles=True),
    row(KNOWN, "shuffled", Vit, "adagrad", size=3, shuffles=True),
    row(KNOWN, "shuffled", Mlp, size=2, shuffles=True, epochs=2),
    row(KNOWN, "shuffled", Vit, "momentum", size=2, shuffles=True, epochs=2),
    row(FULL, "3 steps on minibatches of 2", size=2),
    row(FULL, "3 steps on minibatches of 2", ResNet, "adam", size=2),
    row(FULL, "2 steps on minibatches of 4", Vit, "nesterov", size=4),
    row(FULL, "6 steps on minibatches of 1", Mlp, size=1),
    row({"epochs": 1}, "3 local steps", ResNet, epochs=3),
    row({"epochs": 1}, "5 local steps", Vit, "adam", epochs=5),
    row({"epochs": 1}, "6 steps on minibatches of 2", Mlp, size=2, epochs=2),
    row({"epochs": 1}, "2 local steps", NormalizingCnn, "adagrad", epochs=2, trains=False),
    # resize and crop
    row({"resize": "lanczos"}, "resize=bilinear, crop=none", Mlp),
    row({"resize": "lanczos"}, "resize=bilinear, crop=none", Vit, "adam", size=2),
    row({"resize": "bilinear"}, "resize=bicubic, crop=none", resize="bicubic"),
    row({"resize": "lanczos"}, "resize=box, crop=none", ResNet, "adam", resize="box"),
    row({"crop": "center"}, "resize=lanczos, crop=none", Vit, resize="lanczos"),
    row({"crop": "none"}, "crop=resize-first", Mlp, "momentum", crop="resize-first", size=2),
    row({"crop": "none"}, "crop=resize-first", ResNet, "rmsprop", crop="resize-first"),
    row({"resize": "lanczos", "crop": "center"}, "resize=bilinear, crop=none", trains=False, constants="imagenet"),
    # batch normalization
    row({"batchnorm": None}, "mode batch"),
    row({"batchnorm": None}, "mode batch", ResNet, "adam", size=3),
    row({"batchnorm": "batch"}, "mode eval", rule="adamw", size=2, trains=False),
    row({"batchnorm": "batch"}, "mode eval", ResNet, "momentum", epochs=3, trains=False),
    row(NO_NORMALIZE, "constants of imagenet", ResNet, shares=True, size=3, constants="imagenet"),
    # dropout
    row({"dropout": None}, "dropout was on", mlp_with_dropout),
    row({"dropout": None}, "dropout was on", mlp_with_dropout, "momentum", size=2),
    row({"dropout": None}, "dropout was on", cnn_with_dropout),
    row({"dropout": None}, "dropout was on", cnn_with_dropout, "momentum", epochs=3),
    row({"dropout": None}, "dropout was on", vit_with_dropout),
    row({"dropout": None}, "dropout was on", vit_with_dropout, "adam", size=2),
    row({"dropout": None}, "dropout was on", mlp_with_dropout, "adam", **SHUFFLED),
    # augmentation
    row({"augment": None}, "cropped and flipped", Mlp, augments=True),
    row({"augment": None}, "cropped and flipped", ResNet, augments=True),
    row({"augment": None}, "cropped and flipped", Cnn, "momentum", size=2, augments=True),
    row({"augment": None}, "cropped and flipped", Vit, "adam", size=2, shuffles=True, augments=True),
    row({"augment": None}, "cropped and flipped", augments=True, constants="imagenet", trains=False),
    # loss, clipping, schedule, precision
    row({"label_smoothing": None}, "smoothed by 0.1", ResNet, smoothing=0.1),
    row({"label_smoothing": None}, "smoothed by 0.1", Vit, "adam", size=2, smoothing=0.1),
    row({"class_weights": None}, "weighed the classes", Mlp, weights=CLASS_WEIGHTS),
    row({"clip_gradients": None}, "clipped", Vit, epochs=3, clips=0.5),
    row({"clip_gradients": None}, "clipped", ResNet, "adam", size=2, clips=1.0),
    row({"schedule": None}, "cosine", Mlp, epochs=4, cosine=True),
    row({"schedule": None}, "cosine", Cnn, "adam", epochs=4, cosine=True),
    row(NO_NORMALIZE, "constants of imagenet", ResNet, precision=torch.bfloat16, constants="imagenet"),
    row(SGD, "optimizer was adam", Vit, "adam", precision=torch.float16),
)  # fmt: skip


def describe(one: Round) -> tuple[str, ...]:
    """Model, optimizer, order, dropout, normalization, resize, mode of BatchNorm, augmentation, and what else."""
    client = one.client
    net: Any = client.net
    inside = net is NormalizingCnn
    modes = ("train, sent" if client.shares else "train") if client.trains else "eval"
    return (
        NET_NAMES[net],
        client.rule,
        _describe_order(client),
        f"{DROPS[net]:g}" if net in DROPS else "-",
        ("in the model" if inside else client.constants.partition("/")[0]) or "-",
        client.resize + {"none": "", "resize-first": ", center"}[client.crop],
        modes if net in NORMED else "-",
        "crop and flip" if client.augments else "-",
        _describe_rest(client) or "-",
    )


def _describe_order(client: Client) -> str:
    epochs = f", {client.epochs} epochs" if client.epochs > 1 else ""
    if client.size == PICTURES:
        return f"all at once{epochs}"
    return f"{'shuffled' if client.shuffles else 'in order'}, by {client.size}{epochs}"


def _describe_rest(client: Client) -> str:
    rest = {f"label smoothing {client.smoothing:g}": client.smoothing, "class weights": client.weights,
            f"clipped at {client.clips:g}": client.clips, "cosine schedule": client.cosine,
            f"sent as {str(client.precision).removeprefix('torch.')}": client.precision != torch.float32}  # fmt: skip
    return ", ".join(name for name, holds in rest.items() if holds)


def network_of(one: Round) -> str:
    """As `--model` takes it, after the file's name."""
    net: nn.Module | Any = one.client.net
    return net.__name__
