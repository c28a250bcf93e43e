"""Grounding: turns a query into a frame (world, intent, slots) with its plan shape, or gives the reason why no world can execute it.

The tagger works on columns (`lexicon.py`: one private character for each name, cue or amount). The parser runs once for each distinct row
of symbol classes (`parser.py`); a million queries have some ten thousand. `residue` has the unread words: in clean text they belong to the
wording; in damaged text they may be part of a name or number, and a slot may be missing. `steps/quality.py` distinguishes the two. A
language model can read what the parser cannot (`ground_model.py`).

Nothing is executed here: admission decides whether a frame has a solution. Wordings are never matched as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import polars as pl
import polars_hash  # noqa: F401  (registers `chash`)

from filters.frames.numba_types import I64
from filters.grounding import parser
from filters.grounding.intent_index import nearest
from filters.grounding.lexicon import Lexicon, SymbolClass
from filters.grounding.parser import Parse
from filters.grounding.tagger import Symbols, read, token_value
from filters.lexicon_worlds import Worlds
from synth.worlds.base import World, cached_per_world

_MAX_PARSES = 1 << 18
_READ_BYTES = 8 << 20


@cache
def _parses(_: Worlds) -> dict[bytes, Parse | parser.Reason]:
    """Parses of rows of class codes, filled as they are needed, for the life of the process."""
    return {}


def _parse(signature: bytes, lexicon: Lexicon) -> Parse | parser.Reason:
    parses = _parses(lexicon.worlds)
    parsed = parses.get(signature)
    if parsed is None:
        parsed = parser.parse(_classes(signature, lexicon), lexicon.worlds)
        if len(parses) < _MAX_PARSES:
            parses[signature] = parsed
    return parsed


def step(rows: pl.DataFrame, worlds: Worlds, *, ungrounded: bool = False) -> pl.DataFrame:
    """The batch step (columns norm, language): adds world, intent, slots, combination, shape, frame_id, ungrounded, residue, unexplained,
    read_by (null: the parser).

    Reasons (and values of `ungrounded`): `missing_tool`, `missing_information`, `not_actionable`, `unknown`, `ambiguous`, `unparsed`.

    Args:
        ungrounded: keep rows that no world can execute; column `ungrounded` has the reason in any case.
    """
    out = pl.concat([_ground(part, worlds) for part in _slices(rows)])
    nothing = pl.lit(None, pl.String)
    return out.with_columns(read_by=nothing, reason=nothing if ungrounded else pl.col("ungrounded"))


def nearest_leaves(rows: pl.DataFrame, leaf_of: Mapping[str, str], worlds: Worlds) -> list[str | None]:
    """The leaf that each row is most likely about, by its cues and the kinds of its values; None where these are too few.

    Args:
        rows: columns norm, language. The request need not be complete.
        leaf_of: `world/intent` -> leaf; other intents do not count.
    """
    symbols = read(rows, worlds)
    signatures, signature_of_row = symbols.signatures()
    leaves = [nearest(_classes(signature, symbols.lexicon), leaf_of, worlds) for signature in signatures]
    return [leaves[number] for number in signature_of_row]


def _classes(signature: bytes, lexicon: Lexicon) -> tuple[SymbolClass | None, ...]:
    return parser.classes_of(np.frombuffer(signature, np.uint16).tolist(), lexicon.classes)


def _slices(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows in slices of some `_READ_BYTES` of text, because reading takes some 45 times as much memory."""
    number = rows["norm"].str.len_bytes().cast(pl.UInt64).cum_sum() // _READ_BYTES
    ends = [*(number.rle().struct.field("len").cum_sum().to_list()), rows.height]
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        if stop > start or not rows.height:
            yield rows[start:stop]


def _ground(rows: pl.DataFrame, worlds: Worlds) -> pl.DataFrame:
    symbols = read(rows, worlds)
    signatures, which = symbols.signatures()
    parses = [_parse(signature, symbols.lexicon) for signature in signatures]
    frames = _frames(symbols, parses, which)
    return rows.with_columns(frames).with_columns(residue=symbols.residue)


@cached_per_world(65536)
def shape_text(world: type[World], intent: str, slot_names: frozenset[str]) -> str:
    """The plan shape of a combination, as text."""
    return str(world.intents[intent].shape(slot_names))


def _frames(symbols: Symbols, parses: list[Parse | parser.Reason], parse_numbers: I64) -> pl.DataFrame:
    """The frame columns of all rows."""
    width = max((len(parsed.slots) for parsed in parses if isinstance(parsed, Parse)), default=0)
    worlds = {world.name: world for world in symbols.lexicon.worlds}
    table = pl.DataFrame([_parse_row(parsed, width, worlds) for parsed in parses], schema=_schema(width), orient="row")
    rows = table[parse_numbers]
    values = [_slot_values(symbols, rows, index) for index in range(width)]
    is_torn = _has_torn_repeats(symbols, parses, parse_numbers, worlds)
    parts = [
        pl.concat_str(pl.lit("" if index == 0 else ","), pl.lit('"'), pl.col(f"name_{index}"), pl.lit('":'), value)
        for index, value in enumerate(values)
    ]
    reason = pl.when(pl.Series(is_torn)).then(pl.lit("ambiguous")).otherwise(pl.col("ungrounded"))
    rows = rows.with_columns(
        ungrounded=reason, slots=pl.concat_str(pl.lit("{"), *parts, pl.lit("}"), ignore_nulls=True) if parts else pl.lit("{}")
    ).with_columns(
        pl.when(pl.col("ungrounded").is_null()).then(pl.col(name))
        for name in ("world", "intent", "slots", "combination", "shape", "unexplained")
    )
    key = pl.concat_str(pl.lit('["'), "world", pl.lit('","'), "intent", pl.lit('",'), "slots", pl.lit("]"))
    return rows.select(
        "world",
        "intent",
        "slots",
        "combination",
        "shape",
        pl.concat_str(pl.lit("frame-"), _sha256(key).str.slice(0, 16)).alias("frame_id"),
        "ungrounded",
        "unexplained",
    )


def _sha256(text: pl.Expr) -> pl.Expr:
    """Hexadecimal SHA-256, as `content_id` takes it."""
    return text.chash.sha2_256()  # type: ignore[attr-defined, no-any-return]


def _schema(width: int) -> dict[str, pl.DataType | type[pl.DataType]]:
    fixed = {"ungrounded": pl.String, "world": pl.String, "intent": pl.String, "combination": pl.String, "shape": pl.String}
    slots = {
        f"{column}_{index}": kind for index in range(width) for column, kind in (("name", pl.String), ("kind", pl.String), ("at", pl.Int64))
    }
    return {**fixed, "unexplained": pl.Int32, **slots}


def _parse_row(parsed: Parse | parser.Reason, width: int, worlds: Mapping[str, type[World]]) -> tuple[str | int | None, ...]:
    if not isinstance(parsed, Parse):
        return (parsed, *[None] * (5 + 3 * width))
    names = frozenset(name for name, _ in parsed.slots)
    combination = f"{parsed.world}/{parsed.intent}({','.join(sorted(names))})"
    world = worlds[parsed.world]
    kinds = _kinds(world, parsed.intent)
    slots = [item for name, position in parsed.slots for item in (name, kinds[name], position)]
    return (
        None,
        parsed.world,
        parsed.intent,
        combination,
        shape_text(world, parsed.intent, names),
        parsed.unexplained,
        *slots,
        *[None] * (3 * (width - len(parsed.slots))),
    )


@cached_per_world()
def _kinds(world: type[World], intent: str) -> dict[str, str]:
    return {slot.name: slot.kind for slot in world.intents[intent].slots}


def _slot_values(symbols: Symbols, rows: pl.DataFrame, index: int) -> pl.Series:
    """The canonical JSON values of every row's slot number `index`; null where the row has none."""
    at = rows[f"at_{index}"]
    has = at.is_not_null().to_numpy()
    position = symbols.offsets[:-1][has] + at.drop_nulls().to_numpy()
    tokens = pl.DataFrame(
        {"world": rows["world"].filter(has), "kind": rows[f"kind_{index}"].filter(has), "token": symbols.tokens[position]}
    )
    distinct = tokens.unique(maintain_order=True)
    texts = [token_value(symbols, token, (world, kind)) for world, kind, token in distinct.iter_rows()]
    values = tokens.join(
        distinct.with_columns(value=pl.Series(texts, dtype=pl.String)), on=["world", "kind", "token"], how="left", maintain_order="left"
    )
    return values["value"].gather(pl.select(pl.when(pl.Series(has)).then(pl.Series(np.cumsum(has) - 1))).to_series())


def _has_torn_repeats(
    symbols: Symbols, parses: list[Parse | parser.Reason], parse_numbers: I64, worlds: Mapping[str, type[World]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a row names a slot's value twice with different values."""
    torn = np.zeros(parse_numbers.size, bool)
    for number, parsed in enumerate(parses):
        if isinstance(parsed, Parse) and parsed.repeats:
            rows = np.flatnonzero(parse_numbers == number)
            kinds, positions = _kinds(worlds[parsed.world], parsed.intent), dict(parsed.slots)
            for slot, position in parsed.repeats:
                for row in rows.tolist():
                    start, kind = symbols.offsets[row], (parsed.world, kinds[slot])
                    first, second = symbols.tokens[start + positions[slot]], symbols.tokens[start + position]
                    if first != second and token_value(symbols, first, kind) != token_value(symbols, second, kind):
                        torn[row] = True
    return torn
