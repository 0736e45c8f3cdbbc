"""Which label belongs to which picture, once the pictures are known.

The last layer's gradient is dW = sum_k (p_k - y_k) h_k' for features h_k and answers p_k that the pictures give, so a
least squares finds y. It asks nobody for labels; where they were given, they are dealt out to the pictures they fit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gradveil.attacks.closed.replay import labels_or_even
from gradveil.core.client import in_client_mode
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.types import Images, Labels
from gradveil.engine.labels import gain, last_linear


def label_pictures(seen: Observation, images: Images) -> Labels:
    """The labels in the order of the pictures; as given or inferred where the last layer does not tell."""
    labels = labels_or_even(seen)
    if not seen.target.is_label:
        return labels
    try:
        layer = last_linear(seen.model, seen.classes)
    except NotApplicableError:
        return labels
    if f"{layer}.weight" not in seen.update or seen.training.loss != "cross-entropy":
        return labels
    fitted = [fit_labels(seen, layer, client, images[client]) for client in range(len(images))]
    if seen.labels is None:
        return F.one_hot(torch.stack(fitted).argmax(-1), seen.classes).to(labels)
    return torch.stack([deal(given, fit) for given, fit in zip(labels, fitted, strict=True)])


@torch.no_grad()
def fit_labels(seen: Observation, layer: str, client: int, pictures: Tensor) -> Tensor:
    """What the last layer says of each picture's label, [picture, class]."""
    model, features = in_client_mode(seen.model, seen.training), []
    model.get_submodule(layer).register_forward_pre_hook(lambda _layer, inputs: features.append(inputs[0]))
    answers = model(pictures).softmax(-1).double()
    moved = seen.update[f"{layer}.weight"][client].double().nan_to_num(0, 0, 0) * len(pictures) / gain(seen.training)
    return answers - torch.linalg.pinv(features[0].double().flatten(1).T).matmul(moved.T)


def deal(given: Tensor, fitted: Tensor) -> Tensor:
    """The labels that were given, each to the picture that it fits, at the least cost in all."""
    cost = torch.cdist(fitted, given.double()).square().nan_to_num(1e12)
    _, columns = linear_sum_assignment(cost.cpu().numpy())
    return given[torch.as_tensor(columns, device=given.device)]
