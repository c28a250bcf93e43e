"""Which keys of a QWERTY keyboard are neighbours: a finger that slips hits one, and random keys are often a run of them ("asdf")."""

from __future__ import annotations

_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
"""Letters of each row, and how far it is shifted to the right, in keys."""
_RUN = 4
_RUNS_IN_WORDS = frozenset({"erty", "wert"})


def _places() -> dict[str, tuple[int, float]]:
    return {letter: (row, shift + column) for row, (letters, shift) in enumerate(_ROWS) for column, letter in enumerate(letters)}


def _runs() -> list[str]:
    directions = [direction for letters, _ in _ROWS for direction in (letters, letters[::-1])]
    runs = {row[at : at + _RUN] for row in directions for at in range(len(row) - _RUN + 1)}
    return sorted(runs - _RUNS_IN_WORDS)


_PLACES = _places()
RUN_OF_KEYS = f"(?:{'|'.join(_runs())})"
"""Four neighbouring keys of a row, in either direction; not those that are in words ("property")."""


def neighbours(letter: str) -> str:
    """The letters whose keys touch that of a letter; none for other characters."""
    if letter not in _PLACES:
        return ""
    row, x = _PLACES[letter]
    return "".join(
        other for other, (its_row, its_x) in _PLACES.items() if other != letter and abs(its_row - row) <= 1 and abs(its_x - x) <= 1
    )
