"""The same problem with other units for coordinates that are already proved.

In packed values one unit of a coordinate outweighs everything below it, and so does every rounding
of a price by one such unit. The bound on coordinate c would be useless wherever the bound on a
coordinate above it is met only after rounding down. But once the sums z_a of all coordinates a < c
are proved, units M_a >= 0 of any size will do in place of the packed ones: with

    P'_ib = sum_{a < c} M_a v_a + (coordinates from c on, packed),

every plan that reaches the proved sums satisfies

    (its coordinates from c on, packed) <= L'(u) - sum_a M_a z_a,

L' the Lagrangian bound of `prices` for P'. The M_a are minimised along with the prices u (their
subgradients: sum of a chosen, minus z_a). Where no session with a positive v_a has to wait, M_a
costs nothing and stays infinite, that is packed.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, Units
from tao_coordinator.scheduling.placement.problem import Int64


class View(NamedTuple):
    """A problem in units of its own, and prices for it."""

    pairs: Pairs
    prices: Int64  # [n]
    units: Units
    offset: int
    """Packed value minus value in this view, for every plan that reaches the proved sums."""
    level: int
    """Coordinate down to which the prices were found; -1: none."""


def packed_view(packed: PackedProblem) -> View:
    """The packed problem as it is, without prices."""
    none = np.zeros(packed.source.num_sessions, np.int64)
    return View(packed.pairs, none, packed.units, 0, -1)


def with_units(packed: PackedProblem, view: View, units: Units, reached: list[int]) -> View:
    """The view in other units; prices stay as they are.

    Args:
        packed: the problem.
        view: where prices come from.
        units: those of proved coordinates may be finite.
        reached: sums of the best plan, as packed.
    """
    offset = sum(
        digit * (infinite - unit)
        for digit, infinite, unit in zip(reached, packed.units, units, strict=True)
    )
    pairs = packed.pairs
    if units != packed.units:
        pairs = pairs._replace(values=packed.values_with(units))
    return View(pairs, view.prices, units, offset, view.level)


def down_to(packed: PackedProblem, view: View, coordinate: int) -> Pairs:
    """Values as far as a coordinate: what lies below counts nothing, worthless pairs are out.

    Tokens are looked at together with what follows.
    """
    if coordinate >= 3:
        return view.pairs
    units = (*view.units[: coordinate + 1], 0, 0, 0, 0)[:5]
    values = packed.values_with((units[0], units[1], units[2], units[3], units[4]))
    return view.pairs._replace(values=np.where(values > 0, values, -1))
