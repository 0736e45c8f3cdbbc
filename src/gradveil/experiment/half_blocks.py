"""Pictures on a terminal: each letter is the upper half of a cell in one color on another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import interpolate

if TYPE_CHECKING:
    from rich.text import Text

WIDEST = 32  # letters
UPPER = "\u2580"


def draw(picture: Tensor, widest: int = WIDEST) -> Text:
    """[channel, height, width] in [0, 1]; one channel is gray."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    rows, found = colors(picture, widest), Text()
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            found.append(UPPER, Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        found.append("\n")
    return found


def colors(picture: Tensor, widest: int) -> list[list[tuple[int, int, int]]]:
    """Red, green and blue of every row, an even number of rows."""
    height, width = picture.shape[-2:]
    columns = min(width, widest)
    rows = max(2, 2 * round(height * columns / width / 2))
    shown = picture.detach().float().cpu().nan_to_num(0.5).clamp(0, 1)[:3]
    shown = shown.expand(3, -1, -1) if len(shown) < 3 else shown
    small = interpolate(shown[:3].unsqueeze(0), (rows, columns), mode="area")[0]
    numbers = (255 * small).round().byte().permute(1, 2, 0).tolist()
    return [[(one[0], one[1], one[2]) for one in row] for row in numbers]
