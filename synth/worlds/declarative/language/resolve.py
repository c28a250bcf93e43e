"""Turns a spec as read into a `Domain`: references resolved, expressions compiled, all problems reported at once.

One idea: `resolve` gives either a valid `Domain` or all problems of the spec, each with its path. A part that uses a broken part is not
reported again. Actions are in `resolve_actions.py`, a spec's own jobs in `job_steps.py`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Any

from storage.records import RefusalReason, canonical_json
from synth.worlds.declarative.common_names import names_of, plural_of
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.language import schema, spec_schema
from synth.worlds.declarative.language.expression_types import PLAIN_TYPES, Type
from synth.worlds.declarative.language.job_steps import JobResolver
from synth.worlds.declarative.language.problems import FOLLOWS, SpecError, nearest
from synth.worlds.declarative.language.read import Spec, read_spec
from synth.worlds.declarative.language.resolve_actions import resolve_action
from synth.worlds.declarative.language.resolved_steps import Refuse, last_steps
from synth.worlds.declarative.language.scopes import RowScope, SpecContext
from synth.worlds.declarative.language.values import OpenWords, Words
from synth.worlds.declarative.languages import word_form
from synth.worlds.declarative.signatures import hidden_arguments, public_search
from synth.worlds.declarative.tables.cells import CellReader
from synth.worlds.declarative.tables.inline import KEY
from synth.worlds.declarative.tools import get_name, list_name, search_name, search_orders


def resolve(raw: Any, where: str = "", *, is_worded: bool = False) -> Domain:
    """The domain that a file's values describe.

    Args:
        raw: plain values, as `parse_file` returns them.
        where: the file, for error messages.
        is_worded: whether the request texts of its own jobs are in other files.

    Raises:
        SpecError: everything that is wrong with it.
    """
    spec, problems = read_spec(raw)
    if spec is None:
        raise SpecError(problems, where)
    resolver = _Resolver(spec, is_worded)
    domain = resolver.run(hashlib.sha256(canonical_json(_scalars_as_text(raw)).encode()).hexdigest()[:16])
    if resolver.context.problems:
        raise SpecError(resolver.context.problems, where)
    return domain


def _scalars_as_text(value: Any) -> Any:
    """Equal results for values from YAML text and from Python code."""
    if isinstance(value, Mapping):
        return {str(key): _scalars_as_text(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scalars_as_text(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Resolver:
    def __init__(self, spec: Spec, is_worded: bool) -> None:
        self.spec, self.head, self.is_worded = spec, spec.head, is_worded
        self.context = SpecContext(spec.head.today, spec.languages)
        self.entities, self.broken, self.add = self.context.entities, self.context.broken, self.context.add

    def run(self, digest: str) -> Domain:
        for name in self.spec.entities:
            self._entity(name)
        self._check_names_differ()
        for entity in self.entities.values():
            signature = public_search(entity, self.head.signatures)
            if signature is not None:
                entity.hidden = hidden_arguments(entity, signature)
        self._read_tables()
        for entity in self.entities.values():
            self._check_references(entity)
            self._check_tools(entity)
        for entity in self.entities.values():
            self._compile_fields(entity)
        actions = enumerate(self.spec.actions.items())
        acts = {name: resolve_action(self.context, self._label, name, number, action) for number, (name, action) in actions}
        domain = Domain(self.head.domain, self.spec, digest, self.entities, acts, self.head.today, tuple(self.entities.values()))
        self._check_combined_jobs()
        self._check_job_requests()
        domain.jobs = JobResolver(domain, self.context).resolve_all()
        self._check_size(domain)
        return domain

    # ---- entities -------------------------------------------------------------------------------------------------------------

    def _entity(self, name: str) -> None:
        spec, path = self.spec.entities[name], f"entities.{name}"
        fields: dict[str, Field] = {}
        place = 0
        for key, field in self.spec.fields[name].items():
            is_stored = field.derived is None
            label = self._label(field, key, f"{path}.fields.{key}")
            words = self._words(field, name, key)
            fields[key] = Field(key, field, _type(field, words), label, place if is_stored else -1, words)
            place += is_stored
        digits = spec.id.count("#")
        ids = tuple(f"{spec.id.rstrip('#')}{index:0{digits}d}" for index in range(spec.rows))
        self.entities[name] = Entity(name, len(self.entities), spec, spec.plural or self._plural(spec.noun), fields, ids)
        if spec.called is not None:
            called = fields.get(spec.called)
            if called is None:
                self.add(f"{path}.called", f"no field {spec.called!r}; {nearest(spec.called, fields)}")
            elif called.type.kind not in ("choice", "name"):
                self.add(f"{path}.called", f"{spec.called!r} is {called.type}; rows are told apart by a choice or a name")
        if fields and not place:
            self.add(f"{path}.fields", "every field is derived; one at least must be stored")

    def _read_tables(self) -> None:
        """Gives entities the rows of their tables."""
        places: dict[str, dict[str, int]] = {}
        for name, spec in self.spec.entities.items():
            places[name] = {row[KEY]: number for number, row in enumerate(spec.table) if KEY in row}
        for name, entity in self.entities.items():
            reader = CellReader(self.head.today, places)
            entity.table = tuple(reader.row(entity, row) for row in self.spec.entities[name].table)
            for problem in reader.problems:
                self.add(f"entities.{name}.{problem}", reader.problems[problem])

    def _plural(self, noun: Words) -> str:
        return plural_of(noun.en) if "en" in self.spec.languages else noun.zh

    def _words(self, field: schema.FieldSpec, entity: str, key: str) -> Mapping[str, Words]:
        """The values of a choice or name, by canonical value."""
        if isinstance(field, schema.ChoiceField):
            return dict(field.values) if field.like is None else self._like_values(field.like, f"entities.{entity}.fields.{key}.like")
        if isinstance(field, schema.NameField):
            salt = f"{self.head.domain}/{entity}/{key}"
            names = field.values or (names_of(field.list, self.spec.entities[entity].rows, salt) if field.list is not None else ())
            known = {words.en: words for words in map(self._spoken, names)}
            known |= {row[key]: Words(en=row[key], zh=row[key]) for row in self.spec.entities[entity].table if row.get(key)}
            if not known:
                self.add(f"entities.{entity}.fields.{key}", schema.ONE_SOURCE)
            return OpenWords(known) if field.open else known
        return {}

    def _spoken(self, words: Words) -> Words:
        """Words of the engine's own, in the languages of the spec."""
        if len(self.spec.languages) > 1:
            return words
        text = words[self.spec.languages[0]]
        return Words(en=text, zh=text)

    def _like_values(self, like: str, path: str) -> Mapping[str, Words]:
        """The values of a choice of another entity."""
        choices = {
            f"{entity}.{name}": field.values
            for entity, fields in self.spec.fields.items()
            for name, field in fields.items()
            if isinstance(field, schema.ChoiceField) and field.like is None
        }
        if like not in choices:
            self.add(path, f"no choice {like!r}; {nearest(like, choices)}")
            entity, _, key = like.partition(".")
            self.broken.add(f"{entity}.{key}")
        return dict(choices.get(like, {}))

    def _label(self, part: schema.FieldSpec | schema.ParamSpec, key: str, path: str) -> Words:
        """What a field or parameter is called."""
        if part.label is not None:
            return part.label
        target = part.to if isinstance(part, (schema.RefField, schema.RefParam)) else None
        if target is not None and target in self.spec.entities:
            return self.spec.entities[target].noun
        entity, _, name = (getattr(part, "like", None) or "").partition(".")
        similar = self.spec.fields.get(entity, {}).get(name)
        if similar is not None and similar.label is not None:
            return similar.label
        words = key.replace("_", " ")
        if key not in _USUAL_LABELS and target is None and "zh" in self.spec.languages:
            self.add(f"{path}.label", f"is missing; what people call it{word_form(self.spec.languages)}")
        return self._spoken(Words(en=words, zh=_USUAL_LABELS.get(key, words)))

    def _check_names_differ(self) -> None:
        first_use: dict[tuple[str, str], str] = {}
        for entity in self.entities.values():
            for role, text in (("id", entity.prefix), ("noun", entity.noun.en), ("noun", entity.noun.zh)):
                other = first_use.setdefault((role, text), entity.name)
                if other != entity.name:
                    self.add(f"entities.{entity.name}.{role}", f"{text!r} is that of {other} already; take another")

    def _check_references(self, entity: Entity) -> None:
        for each in entity.fields.values():
            path = f"entities.{entity.name}.fields.{each.name}"
            if isinstance(each.spec, schema.RefField) and each.spec.to not in self.entities:
                self.add(f"{path}.to", f"no entity {each.spec.to!r}; {nearest(each.spec.to, self.entities)}")
                suggestions = difflib.get_close_matches(each.spec.to, self.entities, n=1)
                each.type = Type("ref", suggestions[0] if suggestions else each.spec.to)
                self.broken |= set() if suggestions else {each.spec.to, f"{entity.name}.{each.name}"}
            elif each.name in self.entities and each.type != Type("ref", each.name):
                self.add(path, "is the name of an entity; call the field something else, or make it a ref to that entity")
            if isinstance(each.spec, schema.FlagField) and each.spec.phrase is not None:
                self.add(f"{path}.phrase", "a flag has no value to say; use `want`")
            if each.filter == "only" and not isinstance(each.spec, schema.FlagField):
                self.add(f"{path}.filter", f"'only' is for a flag, and this is {each.type}")
            if each.filter == "between" and not isinstance(each.spec, _ORDERED):
                self.add(f"{path}.filter", f"'between' is for numbers, money, dates and times, and this is {each.type}")
            self._check_groups(entity, each, path)

    def _check_groups(self, entity: Entity, each: Field, path: str) -> None:
        """Checks that `within` and `apart` name columns whose values are drawn earlier."""
        within, apart = getattr(each.spec, "within", None), getattr(each.spec, "apart", None)
        above = list(entity.fields)[: list(entity.fields).index(each.name)]
        fitting = [name for name in above if entity.fields[name].place >= 0 and entity.fields[name].type.kind in _GROUPS]
        if within is not None and each.place < 0:
            self.add(f"{path}.within", "is for a field that is stored, not for a derived one")
        elif within is not None and within not in fitting:
            self.add(f"{path}.within", f"no choice, name, flag or ref {within!r} above it; {nearest(within, fitting)}")
        other = self.entities.get(each.type.entity)
        if apart is None or other is None:
            return
        if other.number >= entity.number:
            self.add(f"{path}.apart", f"{other.name} must stand above; put it before {entity.name}")
        elif apart not in other.fields or other.fields[apart].place < 0:
            self.add(f"{path}.apart", f"no stored field {apart!r} of {other.name}; {nearest(apart, [of.name for of in other.stored])}")

    def _compile_fields(self, entity: Entity) -> None:
        for each in entity.fields.values():
            path = f"entities.{entity.name}.fields.{each.name}"
            for role, text in (("starts", each.spec.starts), ("derived", each.spec.derived)):
                if text is None:
                    continue
                scope = RowScope(self.context, entity, each, is_start=role == "starts")
                compiled = self.context.compile(text, scope, each.type, f"{path}.{role}")
                if compiled is not None:
                    setattr(each, role, compiled)
                else:
                    self.broken.add(f"{entity.name}.{each.name}")
            if each.spec.starts is not None and each.spec.derived is not None:
                self.add(path, "give `starts` or `derived`, not both")

    # ---- tools ----------------------------------------------------------------------------------------------------------------

    def _check_tools(self, entity: Entity) -> None:
        """Checks that the settings of reading tools name existing fields, filters and orders."""
        path, tools = f"entities.{entity.name}.tools", entity.spec.tools
        for view in ("get", "search", "list"):
            for name in getattr(getattr(tools, view), "shows", ()):
                if name not in entity.fields:
                    self.add(f"{path}.{view}.shows", f"no field {name!r}; {nearest(name, entity.fields)}")
        if tools.search is not None:
            filters = [filter_name(each) for each in entity.filters()]
            for name in tools.search.needs:
                if name not in filters:
                    self.add(f"{path}.search.needs", f"no filter {name!r}; {nearest(name, filters)}")
            if tools.search.sort is not None and tools.search.sort not in search_orders(entity):
                self.add(f"{path}.search.sort", f"no order {tools.search.sort!r}; {nearest(tools.search.sort, search_orders(entity))}")
        owners = len(entity.owners())
        if tools.list is not None and owners != 1:
            self.add(f"{path}.list", f"{owners} references are `owned`, which give a list each; say this where it is one")

    def _check_combined_jobs(self) -> None:
        """Checks that a domain with combined jobs has the default tools: these jobs support no others."""
        if not self.head.combined:
            return
        remedy = "say `combined: false` at the top, and write `intents`"
        for entity in self.entities.values():
            if not entity.spec.tools.is_usual:
                self.add(f"entities.{entity.name}.tools", f"jobs that are put together expect the usual answers; {remedy}")
        if self.head.naming.row_ids != "id":
            self.add("naming.row_ids", f"jobs that are put together expect the usual answers; {remedy}")
        for name, action in self.spec.actions.items():
            for key in ("tells", "either"):
                if getattr(action.spec, key):
                    self.add(f"actions.{name}.{key}", f"jobs that are put together cannot do with it; {remedy}")

    # ---- the whole ------------------------------------------------------------------------------------------------------------

    def _check_job_requests(self) -> None:
        for name, job in self.spec.intents.items():
            path, spec = f"intents.{name}", job.spec
            required = [slot for slot in spec.slots if slot not in spec.optional]
            self.context.check_requests(spec.says, spec.slots, required, "slot", path)
            if not spec.says and not self.is_worded:
                self.add(f"{path}.says", f"is missing; how people ask for it{word_form(self.spec.languages)}, with {{slot}} fields")

    def _check_size(self, domain: Domain) -> None:
        self._check_names_of_tools(domain)
        if not self.head.combined or self.head.signatures or any(entity.table for entity in self.entities.values()):
            return
        if len(self.entities) < spec_schema.MIN_ENTITIES:
            self.add("entities", f"{len(self.entities)} of them; a business needs at least {spec_schema.MIN_ENTITIES}", FOLLOWS)
        rows = sum(entity.spec.rows for entity in self.entities.values())
        if rows < spec_schema.MIN_ROWS:
            each = ", ".join(f"{entity.name} {entity.spec.rows}" for entity in self.entities.values())
            self.add("entities", f"{rows} rows in all ({each}); at least {spec_schema.MIN_ROWS} are needed: raise `rows`", FOLLOWS)
        tools = len(domain.acts) + sum(
            ("get" in entity.spec.tools) + ("search" in entity.spec.tools) + len(entity.owners()) for entity in self.entities.values()
        )
        if tools < spec_schema.MIN_TOOLS:
            self.add("actions", f"{tools} tools in all; at least {spec_schema.MIN_TOOLS} are needed: add actions", FOLLOWS)
        rules = sum(len(action.rules) for action in self.spec.actions.values())
        rules += sum(
            isinstance(step, Refuse) and step.reason is RefusalReason.RULE for job in domain.jobs for step in last_steps(job.steps)
        )
        if rules < spec_schema.MIN_RULES:
            self.add("actions", f"{rules} business rules; at least {spec_schema.MIN_RULES} are needed: add `rules` to actions", FOLLOWS)

    def _check_names_of_tools(self, domain: Domain) -> None:
        reading = {"run_python"}
        for entity in self.entities.values():
            reading |= {get_name(entity)} if "get" in entity.spec.tools else set()
            reading |= {search_name(entity)} if "search" in entity.spec.tools else set()
            reading |= {list_name(entity, owner) for owner in entity.owners()}
        for name in domain.acts:
            if name in reading:
                self.add(f"actions.{name}", "a reading tool has such a name; take another")


def _type(field: schema.FieldSpec, words: Mapping[str, Words]) -> Type:
    if isinstance(field, schema.RefField):
        return Type("ref", field.to)
    if isinstance(field, (schema.ChoiceField, schema.NameField)):
        return Type(field.type, values=None if isinstance(words, OpenWords) else frozenset(words))
    return PLAIN_TYPES[field.type]


_ORDERED = (schema.IntegerField, schema.NumberField, schema.MoneyField, schema.DateField, schema.TimeField)
_GROUPS = ("choice", "name", "flag", "ref")
"""Kinds of fields by which rows are grouped."""
_USUAL_LABELS = {
    "name": "姓名", "status": "状态", "price": "价格", "date": "日期", "kind": "类型", "type": "类型", "balance": "余额", "amount": "金额",
    "city": "城市", "due": "到期日", "start": "开始日期", "end": "结束日期", "quantity": "数量", "stock": "库存", "title": "名称",
    "level": "级别", "fee": "费用", "rating": "评分", "time": "时间", "reason": "原因", "total": "总额", "priority": "优先级",
    "category": "类别",
}  # fmt: skip
"""Chinese labels of fields that give none."""
