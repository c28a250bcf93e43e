"""Weights of sources: what `headrace value` found a store's sources to be worth, for the data that is made or chosen next.

A source is what conversations share (`train/proxy/sources.py`): a world, a mode family, a cluster, a teacher, a day. A conversation of a
source with weight w is wanted w times as often. By world, its domains are drawn w times as often; with the objective coverage, and in the
seed split, its gain has the factor sqrt(w) (see `Coverage.choose`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from storage.errors import BadInput

SourceKind = Literal["world", "cluster", "mode", "origin", "teacher", "day"]
OTHER = "other"
"""Stands for all sources that are not named."""


class SourceWeights(BaseModel):
    """The file `weights.json` of `headrace value`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: SourceKind = Field(description="What the sources are.")
    weights: Mapping[str, Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="Weight of each source; one that is not named has that of `other`, or 1."
    )

    def weight(self, source: str) -> float:
        return self.weights.get(source, self.weights.get(OTHER, 1.0))


def read_weights(path: Path) -> SourceWeights:
    """Raises BadInput: there is no such file, or it is none of `headrace value`."""
    try:
        return SourceWeights.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise BadInput(f"{path} is no weights.json of `headrace value`: {where}: {first['msg']}") from None
