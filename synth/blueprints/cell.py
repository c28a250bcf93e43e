"""A cell: domain x family of reasoning modes x complexity band, the unit in which diversity is asked for (definition P4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Band = Literal["low", "mid", "high"]
BANDS: tuple[Band, ...] = get_args(Band)

FAMILIES = ("N", "A>C", "A>P", "P>F", "P>S", "P>R", "C>F", "C>V", "C>R", "C>A", "C>S>F", "C>S>V")
"""Mode families: prefixes of coarse signatures with runs collapsed; all other signatures are `other`."""
OTHER = "other"


def mode_family(coarse: str) -> str:
    """The family of a coarse signature: the first listed prefix that it starts with, runs (`C+`) counted as one."""
    plain = coarse.replace("+", "") + ">"
    return next((family for family in FAMILIES if plain.startswith(f"{family}>")), OTHER)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    domain: str
    family: str
    band: Band
