"""What goes into a convolution, by least squares: by what comes out of it and by its weights' gradient.

What comes out is known through an activation that was undone, which magnifies errors where it is flat: there its
equations weigh less.

The weights' gradient has the same equations for each channel of the input, so that one small matrix stands for all of
them, and what comes out is a convolution. Conjugate gradients need no more than these: the matrix of all equations,
whose factors would take seconds, is never made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.attacks.closed.chain import Layer

ROUNDS = 800  # of conjugate gradients, at most
ENOUGH = 1e-13  # of the squared slope at the start: what is left is rounding


@dataclass(frozen=True, eq=False)
class LayerEquations:
    """Both sets weigh alike: each is divided by the root mean square length of its rows as weighed."""

    layer: Layer
    matrix: Tensor  # one channel's numbers to its weights' gradient, [weight, number]
    made: Tensor  # weights of what comes out, of its shape
    grown: Tensor  # weight of the gradient

    def apply(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The left sides of both sets for what went in, [channel, height, width]."""
        return self.made * self.layer.forward(x), self.grown * (x.flatten(1) @ self.matrix.T)

    def transpose(self, made: Tensor, grown: Tensor) -> Tensor:
        """[channel, height, width]"""
        back = (grown @ self.matrix).view(self.layer.shape)
        return self.layer.backward(self.made * made) + self.grown * back

    def inverse_within(self) -> Tensor:
        """Of the part of the normal equations that stays within a channel; the layer's own part is its mean diagonal.

        Not a number where there is none. Made once: a product with it costs a sixth of solving by a factor.
        """
        within = self.grown.square() * (self.matrix.T @ self.matrix)
        within.diagonal().add_(self.layer.made.numel() / self.layer.shape.numel())
        factor, failed = torch.linalg.cholesky_ex(within)
        return torch.cholesky_inverse(factor.masked_fill(failed != 0, torch.nan))


def equations_of(layer: Layer, slope: Tensor, trust: Tensor) -> LayerEquations:
    matrix = layer.gradient_matrix(slope)
    made = trust * (layer.made.numel() / (trust.square() * layer.row_sizes()).sum()).sqrt()
    return LayerEquations(layer, matrix, made, (len(matrix) / matrix.square().sum()).sqrt())


def solve_layer(layer: Layer, gradient: Tensor, slope: Tensor, out: Tensor, trust: Tensor) -> tuple[Tensor, Tensor]:
    """What went in, and the share of the right sides that it leaves open; not a number where there is no solution.

    `trust` is how exactly each number of `out` is known, beside the others.
    """
    equations = equations_of(layer, slope, trust)
    inverse = equations.inverse_within()

    def turn(slope: Tensor) -> Tensor:
        return (slope.flatten(1) @ inverse).view(layer.shape)

    made = equations.made * (out - layer.constant())
    grown = equations.grown * gradient.transpose(0, 1).flatten(1)
    whole = length(made, grown)
    x, slope = out.new_zeros(layer.shape), equations.transpose(made, grown)
    step = turn(slope)
    along = first = (slope * step).sum()
    for _ in range(ROUNDS):
        if not along > ENOUGH * first:  # nor where they are no numbers
            break
        change = equations.apply(step)
        size = along / length(*change).square()
        x, made, grown = x + size * step, made - size * change[0], grown - size * change[1]
        slope = equations.transpose(made, grown)
        turned = turn(slope)
        along, before = (slope * turned).sum(), along
        step = turned + along / before * step
    return x, length(made, grown) / whole


def length(*parts: Tensor) -> Tensor:
    return torch.cat([part.flatten() for part in parts]).norm()
