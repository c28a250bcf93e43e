"""What the tables of a draft have in them: the kind of each column, keys, references, and how a job may use a column.

One idea: cells tell what a column holds: few values are a choice, keys of another table a reference, days a date. What half of the rows
lack is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import polars as pl

from storage.errors import BadInput
from storage.records import Language
from synth.text.claims import has_chinese
from synth.worlds.declarative.language.spec_schema import MAX_ENTITIES, MAX_FIELDS
from synth.worlds.declarative.language.values import FUNCTIONS, RESERVED, check_plain
from synth.worlds.declarative.languages import SEPARATOR, check_chinese, check_english
from synth.worlds.declarative.tables.inline import iso_date, number_text, split
from synth.worlds.declarative.tables.read_table import cells_of, read_table, tables_in

_FEW, _MOST_FLAGS = 24, 6
_LONGEST_NAME, _MOST_DAYS = 60, 3650
_NEARLY_ALL = 0.95
_LEAST_FULL = 0.5
"""Least share of a column's cells that are not empty: of a field that a row lacks, the row is left out."""
_LEAST_ROWS = 20
"""Rows of an entity that suffice to leave all columns in."""
_PRICES = re.compile(r"price|cost|fare|fee|rent|amount|budget|价|费|消费|票")
_RATINGS = re.compile(r"rating|score|stars|评分|星级")
_NAMES = re.compile(r"name|title|名称|名字|^名$")
_KEYS = re.compile(r"(?:^|_)(?:id|key|code|number|no)$|编号|代码", re.IGNORECASE)
_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:\d\d)?")
_NUMBER = re.compile(r"[^\d-]{0,3}-?\d[\d,]*(\.\d+)?[^\d]{0,4}")
_TRUTH = frozenset({"true", "false", "yes", "no", "y", "n", "是", "否", "有", "无"})
_COMMON_KEYS: Mapping[str, str] = {
    **{"名称": "name", "地址": "address", "地铁": "metro", "电话": "phone", "评分": "rating", "价格": "price", "门票": "ticket"},
    **{"人均消费": "price_per_person", "游玩时间": "duration", "类型": "kind", "推荐菜": "dish", "营业时间": "hours", "日期": "day"},
    **{"时间": "time", "城市": "city", "区域": "district", "品牌": "brand", "颜色": "colour", "库存": "stock", "状态": "status"},
    **{"编号": "code", "作者": "author"},
}
"""Chinese names of columns, as names of fields."""


@dataclass
class Column:
    """A column of a table and the field that it becomes.

    name: of the field. source: of the column, or of the column and the value that a list has.
    keys: of the field, type first. use: how a job uses it: equal, between, min, flag, or not at all.
    """

    name: str
    source: str | tuple[str, str]
    label: str
    keys: dict[str, object]
    use: str = ""


@dataclass
class Table:
    """A table and the entity that it becomes."""

    name: str
    file: str
    table: str | None
    rows: pl.DataFrame
    key: str | None = None
    columns: list[Column] = field(default_factory=list)


def tables_of(files: Sequence[Path], out: Path) -> tuple[list[Table], Language, date | None]:
    """The tables of some files with their columns, the language of their cells, and the middle of their dates (None without dates).

    Args:
        files: tables, or databases with tables.
        out: where the spec will be; paths of tables are relative to it.

    Raises:
        BadInput: a table cannot be read, has no column of names, or there are too many.
    """
    tables = list(_read(files, out))
    if len(tables) > MAX_ENTITIES:
        raise BadInput(f"{len(tables)} tables; a spec has {MAX_ENTITIES} entities at most. Name some")
    texts = [cell for table in tables for column in table.rows for cell in cells_of(column)[:50] if cell]
    language: Language = "zh" if sum(map(has_chinese, texts)) > len(texts) / 4 else "en"
    today = _today(tables)
    for table in tables:
        table.key = _key_of(table.rows)
    for table in tables:
        table.columns = _columns(table, tables, language, today)
        if not any(column.keys["type"] == "name" for column in table.columns):
            raise BadInput(f"{table.file}: no column has names by which people ask for a row; add one")
        _drop_sparse(table)
    return tables, language, today


def _read(files: Sequence[Path], out: Path) -> Iterator[Table]:
    used = set[str]()
    for path in files:
        named: list[str | None] = [*tables_in(path)] or [None]
        for table in named:
            name = _free(key_text(table or path.stem) or "row", used)
            try:
                shown = str(path.resolve().relative_to(out.resolve().parent))
            except ValueError:
                shown = str(path.resolve())
            yield Table(name, shown, table, read_table(path, table))


def _today(tables: Sequence[Table]) -> date | None:
    """The middle of the dates of all tables; None without dates."""
    columns = [_full(column) for table in tables for column in table.rows]
    days = sorted(day for cells in columns if _share(cells, iso_date) for day in map(iso_date, cells) if day and "1970" <= day < "2100")
    return date.fromisoformat(days[len(days) // 2]) if days else None


def _key_of(rows: pl.DataFrame) -> str | None:
    """The column by which other tables refer to a row: unique, and called so; else a unique one with names."""
    unique = [name for name in rows.columns if len(set(_full(rows[name]))) == rows.height]
    return next((name for name in unique if _KEYS.search(name)), next((name for name in unique if _NAMES.search(name.lower())), None))


def _drop_sparse(table: Table) -> None:
    """Leaves out the column that is emptiest, and so on, until `_LEAST_ROWS` rows, or half of them, have a cell in all columns."""
    sparse = sorted(table.columns, key=lambda column: len(_full(table.rows[_source_of(column)])))
    for column in sparse:
        if complete_rows(table) >= min(_LEAST_ROWS, table.rows.height / 2):
            return
        if column.keys["type"] != "name" or sum(each.keys["type"] == "name" for each in table.columns) > 1:
            table.columns.remove(column)


def _source_of(column: Column) -> str:
    return column.source if isinstance(column.source, str) else column.source[0]


def complete_rows(table: Table) -> int:
    """Rows without an empty cell in a column that becomes a field."""
    names = {_source_of(column) for column in table.columns}
    cells = [cells_of(table.rows[name]) for name in sorted(names)]
    return sum(all(row) for row in zip(*cells, strict=True))


# ---- columns -------------------------------------------------------------------------------------------------------------------


def _columns(table: Table, tables: Sequence[Table], language: Language, today: date | None) -> list[Column]:
    used = {other.name for other in tables}
    columns, others = list[Column](), [other for other in tables if other is not table]
    for name in table.rows.columns:
        parent = next((each for each in others if name != table.key and _refers(table.rows[name], each)), None)
        if parent is not None and parent.name not in {column.name for column in columns}:
            columns.append(Column(parent.name, name, "", {"type": "ref", "to": parent.name}))
        elif not (name == table.key and _KEYS.search(name)):
            columns += _typed(table.rows[name], used, tables, language, today)
    columns.sort(key=lambda column: column.keys["type"] != "name" or not _NAMES.search(str(column.source).lower()))
    return columns[:MAX_FIELDS]


def _refers(column: pl.Series, parent: Table) -> bool:
    if parent.key is None or isinstance(column.dtype, pl.List):
        return False
    keys, cells = set(_full(parent.rows[parent.key])), _full(column)
    return bool(cells) and sum(cell in keys for cell in cells) >= _NEARLY_ALL * len(cells)


def _lists_rows(parts: Sequence[Sequence[str]], tables: Sequence[Table]) -> bool:
    """Whether a column lists rows of a table, as things near by."""
    every = [part for each in parts for part in each]
    known = {cell for table in tables if table.key is not None for cell in _full(table.rows[table.key])}
    return sum(part in known for part in every) > len(every) / 3


def _typed(column: pl.Series, used: set[str], tables: Sequence[Table], language: Language, today: date | None) -> list[Column]:
    """The fields of a column; none for one that nothing can be made of."""
    cells, name, label = _full(column), key_text(column.name) or "field", _label(column.name, language)
    if len(cells) < max(1, _LEAST_FULL * len(column)):
        return []
    parts = _parts(column)
    if parts is not None:
        return [] if _lists_rows(parts, tables) else _listed(column, parts, used, language)
    single = Column("", column.name, label, {})
    distinct = set(cells)
    if {cell.casefold() for cell in distinct} <= _TRUTH:
        single.keys, single.use = {"type": "flag", "want": f"with {label}" if language == "en" else f"有{label}的"}, "flag"
    elif _share(cells, iso_date):
        if today is None:
            return []
        days = [(date.fromisoformat(day) - today).days for day in map(iso_date, cells) if day]
        if max(map(abs, days)) > _MOST_DAYS:
            return []
        single.keys = {"type": "date", "from": min(days), "to": max(*days, min(days) + 1)}
    elif _share(cells, _CLOCK.fullmatch):
        single.keys = {"type": "time", "from": "00:00", "to": "23:30", "step": 5}
    elif _share(cells, _NUMBER.fullmatch) and not _KEYS.search(column.name) and max(map(len, cells)) < 12:
        single.keys, single.use = _numeric(column.name, cells)
    elif len(distinct) == 1:
        return []
    elif len(distinct) <= _FEW and len(distinct) < len(cells) / 2 and all(_is_word(cell, language) for cell in distinct):
        values = dict(zip(_choice_keys(sorted(distinct)), sorted(distinct), strict=True))
        single.keys, single.use = {"type": "choice", "values": values}, "equal"
    elif max(map(len, cells)) <= _LONGEST_NAME and not any("://" in cell for cell in cells):
        is_title = len(distinct) == len(cells) and bool(_NAMES.search(column.name.lower()))
        is_sought = is_title or len(distinct) < len(cells) * 0.7
        single.keys, single.use = {"type": "name", "open": "true"}, "equal" if is_sought else ""
    else:
        return []
    single.name = _free(name, used)
    return [single]


def _numeric(name: str, cells: Sequence[str]) -> tuple[dict[str, object], str]:
    numbers = [float(text) for text in (number_text(cell, is_whole=False) for cell in cells) if text is not None]
    is_whole = all(number.is_integer() for number in numbers)
    low, high = (math.floor(min(numbers)), max(math.ceil(max(numbers)), math.floor(min(numbers)) + 1))
    if _PRICES.search(name.lower()):
        return {"type": "money", "min": low, "max": high, "filter": "between"}, "between"
    kind = "integer" if is_whole else "number"
    unit = {"unit": "stars"} if _RATINGS.search(name.lower()) else {}
    return {"type": kind, "min": low, "max": high, **({} if is_whole else {"step": 0.1}), **unit, "filter": "min"}, "min"


def _parts(column: pl.Series) -> list[list[str]] | None:
    """The parts of each cell of a column that lists something; None for one that does not."""
    if isinstance(column.dtype, pl.List):
        return [list(cell) for cell in column if cell is not None and len(cell)]
    cells = _full(column)
    parts = [split(cell) for cell in cells]
    shared = Counter(part for each in parts for part in set(each))
    is_list = sum(len(each) > 1 for each in parts) > len(parts) / 2 and len(shared) < sum(map(len, parts)) / 3
    return parts if is_list and max(map(len, shared), default=0) <= _LONGEST_NAME else None


def _listed(column: pl.Series, parts: Sequence[Sequence[str]], used: set[str], language: Language) -> list[Column]:
    """Flags for what many cells list; where few share anything, a name: the first part."""
    shares = Counter(part for each in parts for part in set(each))
    common = [part for part, count in shares.most_common(_MOST_FLAGS) if count >= 0.1 * len(parts)]
    name, label = key_text(column.name) or "field", _label(column.name, language)
    if len(shares) > 8 * len(parts) ** 0.5 or not common:
        return [Column(_free(name, used), column.name, label, {"type": "name", "open": "true"}, "equal")]
    flags = []
    for part in common:
        word = _label(part, language)
        want = f"with {word}" if language == "en" else f"有{word}的"
        flags.append(Column(_free(key_text(part) or name, used), (column.name, part), word, {"type": "flag", "want": want}, "flag"))
    return flags


def _full(column: pl.Series) -> list[str]:
    return [cell for cell in cells_of(column) if cell is not None]


def _share(cells: Sequence[str | None], test: object) -> bool:
    """Whether nearly all of the cells pass."""
    assert callable(test)
    full = [cell for cell in cells if cell is not None]
    return bool(full) and sum(bool(test(cell)) for cell in full) >= _NEARLY_ALL * len(full)


def key_text(text: str) -> str:
    """A text as a name of the language; empty for one without Latin letters."""
    text = _COMMON_KEYS.get(text, next((key for word, key in _COMMON_KEYS.items() if text.endswith(word)), text))
    key = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:30].strip("_")
    key = f"n_{key}" if key[:1].isdigit() else key
    return f"{key}_value" if key in RESERVED | FUNCTIONS else key


def _free(name: str, used: set[str]) -> str:
    free, number = name, 2
    while free in used:
        free, number = f"{name}_{number}", number + 1
    used.add(free)
    return free


def _choice_keys(values: Sequence[str]) -> list[str]:
    used = set[str]()
    return [_free(key_text(value) or "value", used) for value in values]


def _label(text: str, language: Language) -> str:
    """The words of a column or of a part of it, in the language; in Chinese those of an English column are a guess."""
    words = re.sub(r"[\[\]{}]|\s*/\s*", " ", text.replace("_", " ")).strip().lower()
    if _is_word(words, language):
        return words
    known = next((chinese for chinese, key in _COMMON_KEYS.items() if key == key_text(text)), "项目" + key_text(text).upper())
    return known if language == "zh" else key_text(text).replace("_", " ") or "field"


def _is_word(text: str, language: Language) -> bool:
    """Whether a spec in this language may have the text as words."""
    try:
        check_plain(text)
        if language == "zh":
            check_chinese(text)
        else:
            check_english(text)
    except ValueError:
        return False
    return SEPARATOR not in text
