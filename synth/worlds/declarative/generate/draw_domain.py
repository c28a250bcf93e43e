"""Draws the spec of a domain: its roles, fields, actions and rules, and the names of all of these.

One idea: entities and their fields are drawn and named first, then actions are written with these names. An expression, parameter or
sentence that mentions a part that was not drawn is left out, with everything that depends on it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from synth.worlds.declarative.generate.components import (
    ActionPart,
    Archetype,
    FieldPart,
    Name,
    Noun,
    Verb,
    archetypes,
    slug,
    talk,
    themes,
)
from synth.worlds.declarative.generate.write_sentences import EntityDraw, MissingPart, Scope, TextWriter

CURRENCIES = ("dollars", "yuan", "euros", "pounds")
MIN_ENTITIES, MIN_ACTIONS, MIN_RULES, MIN_ROWS = 4, 3, 3, 210
MAX_ACTIONS = 12
_SIZES = (4, 4, 5, 5, 6, 6, 7)
"""Possible numbers of entities; one is drawn."""
_RESOURCE_ROLES = ("person", "staff", "site", "unit", "item", "plan")
"""People, places and goods, to which other roles refer; all other roles are transactions and records."""
_MAX_TRIES = 60
_MAX_NAME = 40
"""Characters of a name."""
_SPLIT_VERBS = frozenset({"change", "set", "add", "switch", "move", "report", "take", "put", "mark", "confirm"})
"""Verbs that the noun follows directly in a tool's name: `change_car_price`."""


def generate(seed: int) -> dict[str, Any]:
    """The domain spec of `seed`, as plain values: equal in every process, valid by construction."""
    rng = random.Random(f"domain/{seed}")
    for _ in range(_MAX_TRIES):
        spec = _DomainDraw(rng).spec()
        if spec is not None:
            return spec
    raise RuntimeError(f"no domain of seed {seed} is large enough in {_MAX_TRIES} draws")


class _DomainDraw:
    """One draw of a domain.

    noun_keys: keys of its entities' nouns.
    entities: drawn entities by role.
    naming: style of its tools' names.
    grouping: how its tools are grouped to servers: all on one, by entity, or by kind of role.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.theme = rng.choice(themes())
        self.roles = self._draw_roles()
        self.noun_keys = {self.theme.nouns[role].key for role in self.roles}
        self.entities: dict[str, EntityDraw] = {}
        self.writer = TextWriter(self.entities, rng.choice(CURRENCIES))
        self.naming = self._draw_naming()
        self.grouping = rng.choice(("none", "entity", "kind"))

    def _draw_roles(self) -> tuple[str, ...]:
        """Roles of the domain with all roles that they need, in the order of the archetypes."""
        by_role, nouns, size = archetypes(), self.theme.nouns, self.rng.choice(_SIZES)
        transactions = [
            role for role in by_role if role in nouns and role not in _RESOURCE_ROLES and set(by_role[role].needs) <= set(nouns)
        ]
        roles = {"person", *({"site"} & set(nouns) if self.rng.random() < 0.5 else ())}
        for role in self.rng.sample(transactions, len(transactions)):
            extended = roles | {role, *self._needed_roles(role)}
            if len(extended) <= size:
                roles = extended
        spare = [role for role in _RESOURCE_ROLES if role in nouns and role not in roles]
        self.rng.shuffle(spare)
        roles.update(spare[: max(0, size - len(roles))])
        return tuple(role for role in by_role if role in roles)

    def _needed_roles(self, role: str) -> set[str]:
        needs = archetypes()[role].needs
        return set(needs).union(*(self._needed_roles(each) for each in needs))

    def _draw_naming(self) -> dict[str, str]:
        """The style of the tools' names, as different services have it."""
        rng = self.rng
        style = {
            "case": rng.choice(("snake", "snake", "camel")),
            "order": rng.choice(("verb_first", "verb_first", "noun_first")),
            "get": rng.choice(("get", "get", "fetch", "read", "retrieve", "show", "view")),
            "search": rng.choice(("search", "search", "find", "query", "browse")),
            "list": rng.choice(("list", "list", "all", "enumerate")),
            "ids": rng.choice(("plain", "entity_id", "entity_id", "id")),
        }
        return style | ({"prefix": rng.choice(self.theme.key.split("_"))} if rng.random() < 0.15 else {})

    def spec(self) -> dict[str, Any] | None:
        """The spec; None if it has too few entities, actions, rules or rows."""
        for role in self.roles:
            self.entities[role] = self._draw_fields(archetypes()[role], self.theme.nouns[role])
        entities, actions = self._entities(), self._actions()
        self._drop_searches(entities, actions)
        rules, rows = sum(len(each["rules"]) for each in actions.values()), sum(each["rows"] for each in entities.values())
        if len(entities) < MIN_ENTITIES or len(actions) < MIN_ACTIONS or rules < MIN_RULES or rows < MIN_ROWS:
            return None
        return {
            "domain": self._domain_name(),
            "about": f"{self.theme.en} / {self.theme.zh}",
            "currency": self.writer.currency,
            "naming": self.naming,
            "entities": entities,
            "actions": actions,
            "info": self._info(),
            "unsupported": self.rng.sample(talk()["unsupported"], 3),
            "impossible": self.rng.sample(talk()["impossible"], 2),
        }

    def _domain_name(self) -> str:
        """The theme and nouns of the domain, transactions first: `car_rental_rentals_claims_cars`."""
        roles = sorted(self.roles, key=lambda role: role in _RESOURCE_ROLES)
        words = dict.fromkeys(slug(self.theme.nouns[role].plural).rpartition("_")[2] for role in roles if role != "person")
        name = self.theme.key
        for word in words:
            if len(name) + len(word) < _MAX_NAME and word not in name:
                name = f"{name}_{word}"
        return name

    def _info(self) -> list[dict[str, str]]:
        entries = []
        for entry in self.rng.sample(talk()["info"], 2):
            answer = self.rng.choice(entry["answers"])
            entries.append({"ask": entry["ask"], "answer": answer, "words": entry["words"].replace("<answer>", answer)})
        return entries

    # ---- entities -------------------------------------------------------------------------------------------------------------

    def _draw_fields(self, archetype: Archetype, noun: Noun) -> EntityDraw:
        """The fields of an entity, and their names."""
        entity = EntityDraw(noun)
        for part in archetype.fields.values():
            ref = part.raw.get("ref")
            if self.rng.random() >= part.share or (ref is not None and ref not in self.roles):
                continue
            if part.raw.get("kinds") and not noun.kinds:
                continue
            drawn_name = self._draw_name(part, {name.key for name in entity.names.values()}, ref)
            if drawn_name is not None:
                entity.add(part, *drawn_name, self._value_names(part, noun))
        return entity

    def _draw_name(self, part: FieldPart, used: set[str], ref: str | None) -> tuple[Name, int] | None:
        """A name of a field or parameter, and its index in `part.names`; None if all are in use. A reference may have its noun's name."""
        nouns = self.theme.nouns
        for at in self.rng.sample(range(len(part.names)), len(part.names)):
            name = part.names[at]
            for role in self.roles:
                noun, mark = nouns[role], f"<{role}>"
                name = Name(name.key.replace(mark, noun.key), name.en.replace(mark, noun.en), name.zh.replace(mark, noun.zh))
            is_used = name.key in used or (name.key in self.noun_keys and not (ref is not None and nouns[ref].key == name.key))
            if "<" not in name.key + name.en and not is_used and len(name.key) <= _MAX_NAME:
                return name, at
        return None

    def _value_names(self, part: FieldPart, noun: Noun) -> dict[str, Name]:
        if part.raw.get("kinds"):
            return {name.key: name for name in noun.kinds}
        if not part.values:
            return {}
        return {symbol: self.rng.choice(names) for symbol, names in self.rng.choice(part.values).items()}

    def _entities(self) -> dict[str, Any]:
        used: set[str] = set()
        specs = {}
        for role, entity in self.entities.items():
            archetype, noun = archetypes()[role], entity.noun
            letters = (*self.rng.sample(archetype.ids, len(archetype.ids)), *"abcdefghijklmnopqrstuvwxyz")
            letter = next(each for each in letters if each not in used)
            used.add(letter)
            spec: dict[str, Any] = {
                "noun": f"{noun.en} / {noun.zh}",
                "plural": noun.plural,
                "measure": noun.measure,
                "id": letter + "#" * self.rng.choice((3, 3, 3, 4)),
                "rows": self.rng.choice(archetype.rows),
                "fields": {entity.names[symbol].key: self._field(entity, symbol) for symbol in entity.parts},
            }
            if role == "person":
                spec["person"] = True
            if archetype.called in entity.parts:
                spec["called"] = entity.names[archetype.called].key
            if self.grouping != "none":
                spec["group"] = noun.key if self.grouping == "entity" else "records" if role in _RESOURCE_ROLES else "service"
            specs[noun.key] = spec
        return specs

    def _drop_searches(self, entities: Mapping[str, Any], actions: Mapping[str, Any]) -> None:
        """Removes the search of some entities whose rows no action counts."""
        written = str(list(actions.values()))
        for role, entity in self.entities.items():
            key = entity.noun.key
            if role not in ("unit", "item", "session") and f"count({key}," not in written and self.rng.random() < 0.35:
                entities[key]["tools"] = ["get"]

    def _field(self, entity: EntityDraw, symbol: str) -> dict[str, Any]:
        part, raw = entity.parts[symbol], entity.parts[symbol].raw
        out = self._field_type(entity, symbol)
        if "owned" in raw and self.rng.random() < float(raw["owned"]):
            out["owned"] = True
        if raw.get("weights"):
            out["weights"] = {entity.values[symbol][key].key: weight for key, weight in raw["weights"].items()}
        if "starts" in raw and (starts := entity.row_expression(raw["starts"])) is not None:
            out["starts"] = starts
        out |= {key: raw[key] for key in ("low", "high", "detail", "share") if key in raw}
        if "said" in raw:
            out |= {"filter": "min", "phrase": raw["said"]}
        elif not raw.get("detail") and part.share < 1 and self.rng.random() < 0.12:
            out["filter"] = "none"
        elif raw.get("type") in ("money", "integer", "number") and self.rng.random() < 0.3:
            out["filter"] = self.rng.choice(("min", "max"))
        return out

    def _field_type(self, entity: EntityDraw, symbol: str) -> dict[str, Any]:
        """Type, label, values, bounds and unit of a field."""
        raw, name = entity.parts[symbol].raw, entity.names[symbol]
        label = f"{name.en} / {name.zh}"
        if "ref" in raw:
            return {"type": "ref", "to": self.theme.nouns[raw["ref"]].key, "label": label}
        out: dict[str, Any] = {"type": raw["type"], "label": label}
        if raw["type"] == "choice":
            out["values"] = {each.key: f"{each.en} / {each.zh}" for each in entity.values[symbol].values()}
        out |= {key: raw[key] for key in ("min", "max", "step", "from", "to", "list") if key in raw}
        if (unit := entity.unit(symbol)) is not None:
            out["unit"] = unit
        return out

    # ---- actions --------------------------------------------------------------------------------------------------------------

    def _actions(self) -> dict[str, Any]:
        """At most MAX_ACTIONS actions by name; two of one role have different verbs in both languages."""
        actions: dict[str, Any] = {}
        for role in self.rng.sample(self.roles, len(self.roles)):
            used_verbs: set[str] = set()
            for action in archetypes()[role].actions.values():
                if len(actions) == MAX_ACTIONS or self.rng.random() >= float(action.raw.get("p", 1)):
                    continue
                verbs = [verb for verb in action.verbs if not {verb.en, verb.zh} & used_verbs]
                verb = self.rng.choice(verbs or action.verbs)
                name = self._action_name(verb, self.entities[role].noun.key)
                if not verbs or name in actions or len(name) > _MAX_NAME:
                    continue
                try:
                    actions[name] = self._action(role, action, verb)
                except MissingPart:
                    continue
                used_verbs |= {verb.en, verb.zh}
        return actions

    def _action_name(self, verb: Verb, noun: str) -> str:
        """The verb `change_price` becomes `change_car_price` or `car_change_price`."""
        key = verb.key
        for role, role_noun in self.theme.nouns.items():
            key = key.replace(f"<{role}>", role_noun.key)
        first, _, others = key.partition("_")
        if self.naming["order"] == "noun_first":
            words = [noun, first, others]
        else:
            words = [first, noun, others] if first in _SPLIT_VERBS else [first, others, noun]
        return "_".join(filter(None, words))

    def _action(self, role: str, action: ActionPart, verb: Verb) -> dict[str, Any]:
        """The spec of an action.

        Raises:
            MissingPart: it needs a part that the domain does not have.
        """
        raw, entity = action.raw, self.entities[role]
        scope = Scope(self.writer, {"days": self.rng.choice(raw["days"])} if "days" in raw else {})
        takes = self._params(entity, action, scope)
        out: dict[str, Any] = {"verb": self._verb(action, verb, scope)}
        if "on" in raw:
            out["on"] = entity.noun.key
        out["takes"] = takes
        out["needs"] = [
            {"if": text, "else": says} for need, says in (raw.get("needs") or {}).items() if (text := scope.maybe(need)) is not None
        ]
        out["rules"] = self._rules(raw.get("rules") or {}, scope)
        self._make_optional(takes, out["rules"])
        sets = [(scope.maybe(target), scope.maybe(value)) for target, value in (raw.get("sets") or {}).items()]
        out["sets"] = {target: value for target, value in sets if target is not None and value is not None}
        if "moves" in raw:
            out["moves"] = [{key: scope.expression(value) for key, value in raw["moves"].items()}]
        if "creates" in raw:
            out["creates"] = {entity.noun.key: {entity.names[symbol].key: scope.new_value(part) for symbol, part in entity.parts.items()}}
        elif "sets" in raw and (not sets or None in sets[0]):
            raise MissingPart("its effect")
        return {key: value for key, value in out.items() if value or key == "rules"}

    def _verb(self, action: ActionPart, verb: Verb, scope: Scope) -> str:
        """The verb; with the preposition for the first row that a request names besides the person."""
        english, chinese = verb.en, verb.zh
        first = next((symbol for symbol, (_, role) in scope.params.items() if role not in (None, "person")), None)
        if first is not None and first in action.raw.get("objects", {}):
            after, _, before = action.raw["objects"][first].partition(" / ")
            english, chinese = f"{english} {after}", f"{before}{chinese}"
        phrase = scope.sentence(f"{english} / {chinese}", is_whole=False)
        if phrase is None:
            raise MissingPart(verb.key)
        return phrase

    def _params(self, entity: EntityDraw, action: ActionPart, scope: Scope) -> dict[str, Any]:
        """The parameters of an action, by name. An action that creates rows also has a parameter for each field whose `new` is `ask`."""
        params: dict[str, Any] = {}
        if "creates" in action.raw:
            for symbol, part in entity.parts.items():
                if part.raw.get("new") == "ask":
                    key = entity.names[symbol].key
                    scope.add_param(symbol, key, part.raw.get("ref"))
                    params[key] = self._field_param(entity, symbol)
        for part in action.takes:
            if "if" in part.raw and part.raw["if"].partition(".")[2] not in entity.parts:
                continue
            ref = part.raw.get("ref")
            if ref is not None and ref not in self.roles:
                raise MissingPart(ref)
            drawn_name = self._draw_name(part, set(params), ref)
            if drawn_name is None:
                raise MissingPart(part.symbol)
            name, _ = drawn_name
            scope.add_param(part.symbol, name.key, ref)
            params[name.key] = scope.param(part, name)
        return params

    def _field_param(self, entity: EntityDraw, symbol: str) -> dict[str, Any]:
        """The parameter for a field of a new row."""
        raw = entity.parts[symbol].raw
        out = self._field_type(entity, symbol)
        if raw.get("type") == "choice":
            out = {"type": "choice", "like": f"{entity.noun.key}.{entity.names[symbol].key}", "label": out["label"]}
        if "phrase" in raw:
            out["phrase"] = raw["phrase"]
        return out

    def _make_optional(self, params: dict[str, Any], rules: Mapping[str, Any]) -> None:
        """Gives some numbers a default, but none that a rule mentions."""
        written = str([rule["if"] for rule in rules.values()])
        for name, param in params.items():
            if param["type"] == "integer" and name not in written and self.rng.random() < 0.4:
                param["default"] = param["min"]

    def _rules(self, raws: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
        rules = {}
        for name, raw in raws.items():
            if self.rng.random() >= float(raw.get("p", 1)):
                continue
            numbers = scope.with_numbers({"n": self.rng.choice(raw["n"])} if "n" in raw else {})
            condition, words = numbers.maybe(raw["if"]), numbers.sentence(raw["words"])
            if condition is None or words is None:
                continue
            rules[name] = {"if": condition, "words": words}
            if "ask" in raw and (ask := numbers.sentence(raw["ask"], is_whole=False)) is not None:
                rules[name] |= {"ask": ask, "answer": numbers.plain(raw["answer"])}
        return rules
