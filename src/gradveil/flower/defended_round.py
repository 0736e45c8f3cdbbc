"""A defense in one round of one Flower client, and which of its stages the training function has used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, Context, Message
from torch import Tensor, nn

from gradveil.core import client
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn
from gradveil.flower.arrays import only_arrays, record_of, tensors_of

STAGES = ("model", "data", "batch", "gradient")  # those that a mod cannot reach by itself
_PLACE = "_gradveil_round"  # an attribute and no record: the state of a context is kept, and random numbers must not be


class VeiledRound:
    """For a training loop of the user's own: every stage of the defense, to be called where it belongs."""

    def __init__(self, defense: Defense, seed: Seed, public: Batch | None = None) -> None:
        self.defense, self.public = defense, public
        self.used: set[str] = set()
        self.answer: dict[str, Tensor] | None = None  # of `local_update`, with all stages behind it
        self._data_rng, self._rng = seed.at("data").rng(), seed.at("client").rng()

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(stage for stage in STAGES if self.defense.acts_at(stage) and stage not in self.used)

    def model(self, model: nn.Module) -> nn.Module:
        """Once, before the weights are loaded. The server has to send the same architecture."""
        self.used.add("model")
        return self.defense.model(model)

    def data(self, data: Batch) -> Batch:
        """Once a round, on the client's data."""
        self.used.add("data")
        self.defense = bound(self.defense, data, self.public)
        return self.defense.data(data, self._data_rng)

    def batch(self, batch: Batch) -> Batch:
        """Every step. Labels are soft: [example, class]."""
        self.used.add("batch")
        return self.defense.batch(batch, self._rng)

    def gradient(self, compute: GradientFn, model: nn.Module) -> GradientFn:
        """Around the gradient of the mean loss."""
        self.used.add("gradient")
        return self.defense.gradient(compute, model, self._rng)

    def update(self, update: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Last, on what is sent; the mod calls it."""
        return self.defense.update(update, self._rng)

    def local_update(self, model: nn.Module, sent: ArrayRecord, data: Batch, training: LocalTraining) -> ArrayRecord:
        """The round of `gradveil.core.client.local_update` from the weights as sent: the weights to send back."""
        model, data = loaded(self.model(model), sent), self.data(data)
        params, inner = client.parameters_of(model), client.in_client_mode(model, training)
        update = client.local_update(inner, params, data, training, self.defense, self._rng)
        self.used.update(STAGES)
        after = {name: params[name] - step for name, step in update.items()}
        self.answer = {**{n: t.detach() for n, t in model.state_dict().items()}, **after}
        return record_of({name: self.answer[name] for name in sent})


def bound(defense: Defense, data: Batch, public: Batch | None) -> Defense:
    """As an audit binds it: public pictures for those who mix with them, and too few pictures refused."""
    private = Batch(data.images[None], data.labels[None])
    return defense.bind(Scenario(name="flower", model=nn.Identity(), private=private, names=("client",), public=public))


def loaded(model: nn.Module, sent: ArrayRecord) -> nn.Module:
    try:
        model.load_state_dict(tensors_of(sent))
    except RuntimeError as error:
        raise ConfigError(
            "model: the server's arrays do not fit it; where the defense changes the model, the server has to start "
            "from Defense.model(model) too"
        ) from error
    return model


def veiled(context: Context) -> VeiledRound:
    """The defense of this round; without a mod none, so that the same training function runs with and without."""
    found: Any = getattr(context, _PLACE, None)
    return VeiledRound(Defense(), Seed()) if found is None else found


def place(context: Context, round_: VeiledRound | None) -> VeiledRound | None:
    """Put a round where `veiled` looks, and say what was there before."""
    before = getattr(context, _PLACE, None)
    if round_ is None:
        vars(context).pop(_PLACE, None)
    else:
        setattr(context, _PLACE, round_)
    return before


def local_update(
    model: nn.Module, message: Message, data: Batch, context: Context, training: LocalTraining | None = None
) -> ArrayRecord:
    """One client's round with every stage of the mod's defense: `RecordDict({"arrays": local_update(...), ...})`."""
    _, sent = only_arrays(message.content, "the message")
    return veiled(context).local_update(model, sent, data, training or LocalTraining())
