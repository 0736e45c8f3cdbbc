"""A step captured once as a CUDA graph and replayed, so that no time is lost to launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UPS = 3  # libraries choose their algorithms before the capture
Step = Callable[[], Tensor]


def capture_step(step: Step, changed: Sequence[Tensor]) -> Step:
    """`step` reads tensors that stay where they are and changes `changed` in place; so does what is returned.

    RuntimeError if the step cannot be captured; `changed` is then as it was before.
    """
    before = [x.clone() for x in changed]
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = step()
    finally:
        for x, was in zip(changed, before, strict=True):
            x.copy_(was)

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
