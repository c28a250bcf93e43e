"""Drafts a spec from tables: entities, kinds of fields, keys and references, and a job that finds a row and tells what is asked of it.

One idea: what a table can say is taken from its cells (`draft_columns.py`); what it cannot say is marked `# ?` for the author: nouns,
labels, what is common and what is cheap. The draft compiles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from storage.records import Language
from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.tables.inline import USUAL_ROWS
from synth.writing.draft_columns import Column, Table, complete_rows, key_text, tables_of

_MOST_FILTERS, _MOST_ASKED, _LONGEST_KEY = 7, 5, 40
_BOUNDS: Mapping[str, tuple[str, ...]] = {"between": ("min_", "max_"), "min": ("min_",)}
"""How a job uses a column -> the beginnings of its slots, which are the search's own filters."""
_BOUND_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {"max_": "of at most ", "min_": "of at least "},
    "zh": {"max_": "不超过", "min_": "至少"},
}
_NOUNS: Mapping[str, str] = {
    **{"restaurant": "餐馆", "hotel": "酒店", "attraction": "景点", "shop": "商店", "product": "商品", "book": "图书", "film": "电影"},
    **{"movie": "电影", "course": "课程", "flight": "航班", "train": "车次", "doctor": "医生", "hospital": "医院", "museum": "博物馆"},
    **{"song": "歌曲", "house": "房屋", "car": "汽车", "event": "活动", "order": "订单", "customer": "客户", "metro": "地铁站"},
    **{"taxi": "出租车"},
}
"""Names of tables, as Chinese nouns."""
_ANY_NOUN = "条目"
_PLAIN = re.compile(r"[^\W\d_][\w ./()-]*")


def draft_spec(files: Sequence[Path], out: Path) -> str:
    """The text of a spec with an entity for each table. Arguments and errors as of `tables_of`."""
    tables, language, today = tables_of(files, out)
    return "\n".join([*_head(out, tables, language, today), *_entities(tables, language), *_jobs(tables, language)]) + "\n"


def _head(out: Path, tables: Sequence[Table], language: Language, today: date | None) -> list[str]:
    about = {"en": f"a service that knows {', '.join(plural_of(table.name.replace('_', ' ')) for table in tables)}", "zh": "一家信息服务"}[
        language
    ]
    lines = [
        f"# Drafted from {', '.join(dict.fromkeys(table.file for table in tables))}. Lines with `# ?` are guesses: mend them, then",
        f"#   headrace worlds check {out.name}   and   headrace worlds try {out.name}",
        f"domain: {key_text(out.stem) or 'mine'}",
        f"about: {quoted(about)}  # ?",
        f"languages: [{language}]",
        f"currency: {'yuan' if language == 'zh' else 'dollars'}  # ?",
    ]
    return [*lines, f"today: {today}"] if today is not None else lines


def _noun(table: Table, language: Language) -> str:
    english = table.name.replace("_", " ")
    return english if language == "en" else _NOUNS.get(english.rstrip("s"), _ANY_NOUN + english.upper())


def _entities(tables: Sequence[Table], language: Language) -> Iterator[str]:
    yield from ("", "entities:")
    prefixes = id_prefixes([table.name for table in tables])
    for table in tables:
        yield f"  {table.name}:"
        yield f"    noun: {quoted(_noun(table, language))}  # ?"
        yield f"    id: {prefixes[table.name]}###"
        yield f"    rows: {min(USUAL_ROWS, complete_rows(table))}"
        yield from _source(table)
        yield "    fields:"
        for column in table.columns:
            keys = {**column.keys, **({} if column.keys["type"] == "ref" else {"label": column.label})}
            yield f"      {column.name}: {flow(keys)}"


def id_prefixes(names: Sequence[str]) -> dict[str, str]:
    """The letters with which the ids of each entity begin."""
    prefixes = dict[str, str]()
    for name in names:
        letters = (name[:1], name[:2].replace("_", "x"), *map("".join, _letters()))
        prefixes[name] = next(each for each in letters if each.isalpha() and each not in prefixes.values())
    return prefixes


def _letters() -> Iterator[tuple[str, str]]:
    return ((first, second) for first in "abcdefghijklmnopqrstuvwxyz" for second in "abcdefghijklmnopqrstuvwxyz")


def _source(table: Table) -> Iterator[str]:
    yield "    rows_from:"
    yield f"      file: {quoted(table.file)}"
    if table.table is not None:
        yield f"      table: {quoted(table.table)}"
    if table.key is not None:
        yield f"      key: {quoted(table.key)}"
    yield "      columns:"
    for column in table.columns:
        source = column.source if isinstance(column.source, str) else flow({"column": column.source[0], "has": column.source[1]})
        yield f"        {column.name}: {quoted(source) if isinstance(column.source, str) else source}"


def _jobs(tables: Sequence[Table], language: Language) -> Iterator[str]:
    """A job for each table: finds a row by what is said of it, and tells its name and what is asked of it."""
    kinds, jobs = dict[str, Mapping[str, object]](), list[str]()
    for table in tables:
        told = next(column for column in table.columns if column.keys["type"] == "name")
        filters = sorted((column for column in table.columns if column.use), key=lambda column: _rank(column, told))[:_MOST_FILTERS]
        asked = [each for each in table.columns if each is not told and each.keys["type"] not in ("ref", "flag")][:_MOST_ASKED]
        slots, where, tells, says = {}, {}, list[str](), ""
        for column in filters:
            kind = _kind_name(f"{table.name}_{column.name}", kinds)
            kinds[kind] = _kind(table, column)
            for bound in _BOUNDS.get(column.use, ("",)):
                slot = f"{bound}{column.name}"
                slots[slot], where[slot] = kind, slot
                says += _filter_words(column, slot, bound, language)
        for column in asked:
            kind = _kind_name(f"{table.name}_ask_{column.name}", kinds)
            kinds[kind] = {"type": "mark", "words": column.label}
            slots[f"ask_{column.name}"] = kind
            words = f"Its {column.label} is {{value}}." if language == "en" else f"{column.label}是{{value}}。"
            tells.append(f"      - {flow({'tell': f'{table.name}.{column.name}', 'if': f'ask_{column.name}', 'words': words})}")
            says += f"[, its {{ask_{column.name}}}]" if language == "en" else f"[，{{ask_{column.name}}}是什么]"
        found = "{value} fits." if language == "en" else "推荐{value}。"
        noun = _noun(table, language)
        jobs += [
            f"  suggest_{table.name}:",
            f"    leaf: {table.name}.suggest",
            f"    slots: {flow(slots)}",
            f"    optional: [{', '.join(slots)}]",
            "    steps:",
            f"      - {flow({'search': table.name, 'where': where})}",
            f"      - {flow({'tell': f'{table.name}.{told.name}', 'words': found})}",
            *tells,
            "    says:  # ? how people ask for it",
            *(f"      - {quoted(text + says)}" for text in _openings(noun, language)),
        ]  # fmt: skip
    listed = ("kinds:", *(f"  {name}: {flow(keys)}" for name, keys in kinds.items())) if kinds else ("kinds: {}",)
    yield from ("", "actions: {}", "", *listed, "", "intents:", *jobs)


def _kind_name(name: str, kinds: Mapping[str, object]) -> str:
    return name if len(name) <= _LONGEST_KEY else f"kind_{len(kinds) + 1}"


def _rank(column: Column, told: Column) -> int:
    """The place of a filter among those of a job, which has room for a few."""
    return 0 if column is told else 1 + ("choice", "money", "number", "integer", "name", "flag").index(str(column.keys["type"]))


def _openings(noun: str, language: Language) -> tuple[str, ...]:
    one = f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
    return (f"find me {one}", f"I am looking for {one}") if language == "en" else (f"帮我找一个{noun}", f"我想找{noun}")


def _filter_words(column: Column, slot: str, bound: str, language: Language) -> str:
    place = f"{{{slot}}}"
    if column.use == "flag":
        return f"[ {place}]" if language == "en" else f"[，{place}]"
    words = _BOUND_WORDS[language].get(bound, "")
    return f"[ with {column.label} {words}{place}]" if language == "en" else f"[，{column.label}{words}{place}]"


def _kind(table: Table, column: Column) -> dict[str, object]:
    if column.use == "flag":
        return {"type": "mark", "words": str(column.keys["want"])}
    if column.use == "equal":
        return {"type": "choice", "like": f"{table.name}.{column.name}"}
    return {key: value for key, value in column.keys.items() if key in ("type", "min", "max", "step", "unit")}


def flow(values: Mapping[str, object]) -> str:
    """A mapping on one line of YAML. Its values are mappings, tuples or plain values."""
    return "{" + ", ".join(f"{quoted(key)}: {_flow_value(each)}" for key, each in values.items()) + "}"


def _flow_value(value: object) -> str:
    if isinstance(value, Mapping):
        return flow(value)
    return f"[{', '.join(map(_flow_value, value))}]" if isinstance(value, tuple) else quoted(str(value))


def quoted(text: str) -> str:
    """A text as a YAML scalar, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) or re.fullmatch(r"-?\d+(\.\d+)?", text) else json.dumps(text, ensure_ascii=False)
