"""Operations on many tensors in one kernel. torch's optimizers are made of these; it does not export them."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import torch
from torch import Tensor

add, add_ = torch._foreach_add, torch._foreach_add_
mul, mul_ = torch._foreach_mul, torch._foreach_mul_
sub_ = torch._foreach_sub_


def norms(tensors: list[Tensor]) -> Tensor:
    """The length of each."""
    return torch.stack(list(torch._foreach_norm(tensors)))
