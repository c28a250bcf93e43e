"""The drawing of one domain: which roles, fields, actions and rules it has, and what everything is called.

One idea: entities and fields are drawn first and named; then each action is written out with these names, and an expression, a
parameter or a sentence that mentions what the domain does not have cannot be written and is left out with all that hangs on it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from synth.worlds.declarative.generate.components import (
    ActionPart,
    Archetype,
    FieldPart,
    Name,
    Noun,
    Theme,
    Verb,
    archetypes,
    slug,
    talk,
    themes,
)
from synth.worlds.declarative.generate.write_sentences import Chosen, Missing, Scope, Writer

CURRENCIES = ("dollars", "yuan", "euros", "pounds")
MIN_RULES, MIN_ROWS = 3, 210
MAX_ACTIONS = 12
_SIZES = (4, 4, 5, 5, 6, 6, 7)
"""How many entities a domain has: drawn from these."""
_BASIC = ("person", "staff", "site", "unit", "item", "plan")
"""Roles that others build on; the rest is what a business does."""
_TRIES = 60
_SPLIT = frozenset({"change", "set", "add", "switch", "move", "report", "take", "put", "mark", "confirm"})
"""Verbs whose object stands between them and the rest of a tool's name: `change_car_price`."""


@dataclass(slots=True)
class Drawn:
    """What has been decided of a domain so far. chosen: by role, the fields that it has and their names."""

    theme: Theme
    roles: tuple[str, ...]
    currency: str
    chosen: dict[str, Chosen] = field(default_factory=dict)


def generate(seed: int) -> dict[str, Any]:
    """The domain spec of `seed`, as plain values: equal in every process, valid by construction."""
    rng = random.Random(f"domain/{seed}")
    for _ in range(_TRIES):
        spec = _Draw(rng).spec()
        if spec is not None:
            return spec
    raise RuntimeError(f"no domain came of seed {seed}")


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        theme = rng.choice(themes())
        self.drawn = Drawn(theme, self._roles(theme), rng.choice(CURRENCIES))
        self.naming = self._naming()
        self.grouping = rng.choice(("none", "entity", "kind"))

    def _roles(self, theme: Theme) -> tuple[str, ...]:
        """Roles of a domain with all that they need, in the order of the archetypes."""
        by_role, size = archetypes(), self.rng.choice(_SIZES)
        doing = [role for role in by_role if role in theme.nouns and role not in _BASIC and set(by_role[role].needs) <= set(theme.nouns)]
        roles = {"person", *({"site"} & set(theme.nouns) if self.rng.random() < 0.5 else ())}
        for role in self.rng.sample(doing, len(doing)):
            extended = roles | {role, *self._needed_roles(role)}
            if len(extended) <= size:
                roles = extended
        spare = [role for role in _BASIC if role in theme.nouns and role not in roles]
        self.rng.shuffle(spare)
        roles.update(spare[: max(0, size - len(roles))])
        return tuple(role for role in by_role if role in roles)

    def _needed_roles(self, role: str) -> set[str]:
        needs = archetypes()[role].needs
        return set(needs).union(*(self._needed_roles(each) for each in needs))

    def _naming(self) -> dict[str, str]:
        """How the tools are called: the manner of one of the many services that there are."""
        rng = self.rng
        style = {
            "case": rng.choice(("snake", "snake", "camel")),
            "order": rng.choice(("verb_first", "verb_first", "noun_first")),
            "get": rng.choice(("get", "get", "fetch", "read", "retrieve", "show", "view")),
            "search": rng.choice(("search", "search", "find", "query", "browse")),
            "list": rng.choice(("list", "list", "all", "enumerate")),
            "ids": rng.choice(("plain", "entity_id", "entity_id", "id")),
        }
        return style | ({"prefix": rng.choice(self.drawn.theme.key.split("_"))} if rng.random() < 0.15 else {})

    # ---- entities -------------------------------------------------------------------------------------------------------------

    def spec(self) -> dict[str, Any] | None:
        """The spec, or None where too little came of it."""
        domain_draw, rng = self.drawn, self.rng
        keys = {domain_draw.theme.nouns[role].key for role in domain_draw.roles}
        for role in domain_draw.roles:
            domain_draw.chosen[role] = self._choose_fields(archetypes()[role], domain_draw.theme.nouns[role], keys)
        writer = Writer(domain_draw.chosen, domain_draw.currency)
        entities = self._entities(writer)
        actions = self._actions(writer)
        self._spare_searches(entities, actions)
        rules = sum(len(each["rules"]) for each in actions.values())
        if len(entities) < 4 or rules < MIN_RULES or len(actions) < 3:
            return None
        rows = sum(each["rows"] for each in entities.values())
        if rows < MIN_ROWS:
            return None
        return {
            "domain": self._name(),
            "about": f"{domain_draw.theme.en} / {domain_draw.theme.zh}",
            "currency": domain_draw.currency,
            "naming": self.naming,
            "entities": entities,
            "actions": actions,
            "info": self._info(),
            "unsupported": rng.sample(talk()["unsupported"], 3),
            "impossible": rng.sample(talk()["impossible"], 2),
        }

    def _choose_fields(self, archetype: Archetype, noun: Noun, keys: set[str]) -> Chosen:
        """Which fields an entity has, and what they are called."""
        choice, used = Chosen(noun), set[str]()
        for part in archetype.fields.values():
            ref = part.raw.get("ref")
            if self.rng.random() >= part.share or (ref is not None and ref not in self.drawn.roles):
                continue
            if part.raw.get("kinds") and not noun.kinds:
                continue
            part_name = self._choose_name(part, keys, used, ref)
            if part_name is not None:
                name, at = part_name
                used.add(name.key)
                choice.add(part, name, at, self._value_names(part, noun))
        return choice

    def _choose_name(self, part: FieldPart, keys: set[str], used: set[str], ref: str | None) -> tuple[Name, int] | None:
        """One of a field's names that nothing else has, and which of them it is."""
        nouns = self.drawn.theme.nouns
        for at in self.rng.sample(range(len(part.names)), len(part.names)):
            name = part.names[at]
            for role in self.drawn.roles:
                noun = nouns[role]
                mark = f"<{role}>"
                name = Name(name.key.replace(mark, noun.key), name.en.replace(mark, noun.en), name.zh.replace(mark, noun.zh))
            clash = name.key in keys and not (ref is not None and nouns[ref].key == name.key)
            if "<" not in name.key + name.en and not clash and name.key not in used and len(name.key) <= 40:
                return name, at
        return None

    def _value_names(self, part: FieldPart, noun: Noun) -> dict[str, Name]:
        if part.raw.get("kinds"):
            return {name.key: name for name in noun.kinds}
        if not part.values:
            return {}
        return {symbol: self.rng.choice(names) for symbol, names in self.rng.choice(part.values).items()}

    def _entities(self, writer: Writer) -> dict[str, Any]:
        used: set[str] = set()
        entities = {}
        for role in self.drawn.roles:
            archetype, choice = archetypes()[role], self.drawn.chosen[role]
            letter = next((each for each in self.rng.sample(archetype.ids, len(archetype.ids)) if each not in used), None)
            letter = letter or next(each for each in "abcdefghijklmnopqrstuvwxyz" if each not in used)
            used.add(letter)
            entity: dict[str, Any] = {
                "noun": f"{choice.noun.en} / {choice.noun.zh}",
                "plural": choice.noun.plural,
                "measure": choice.noun.measure,
                "id": letter + "#" * self.rng.choice((3, 3, 3, 4)),
                "rows": self.rng.choice(archetype.rows),
                "fields": {choice.names[symbol].key: self._field(role, symbol, writer) for symbol in choice.parts},
            }
            if role == "person":
                entity["person"] = True
            if archetype.called in choice.parts:
                entity["called"] = choice.names[archetype.called].key
            if self.grouping != "none":
                entity["group"] = choice.noun.key if self.grouping == "entity" else ("records" if role in _BASIC else "service")
            entities[choice.noun.key] = entity
        return entities

    def _spare_searches(self, entities: Mapping[str, Any], actions: Mapping[str, Any]) -> None:
        """Some entities go without a search, unless rows of them are counted or chosen by it."""
        written = str(list(actions.values()))
        for role in self.drawn.roles:
            key = self.drawn.chosen[role].noun.key
            if role not in ("unit", "item", "session") and f"count({key}," not in written and self.rng.random() < 0.35:
                entities[key]["tools"] = ["get"]

    def _field(self, role: str, symbol: str, writer: Writer) -> dict[str, Any]:
        choice = self.drawn.chosen[role]
        part, raw = choice.parts[symbol], choice.parts[symbol].raw
        out = _field_type(choice, symbol, writer, self.drawn)
        if "owned" in raw and self.rng.random() < float(raw["owned"]):
            out["owned"] = True
        if raw.get("weights"):
            out["weights"] = {choice.values[symbol][key].key: weight for key, weight in raw["weights"].items()}
        if "starts" in raw and (starts := choice.own(raw["starts"])) is not None:
            out["starts"] = starts
        for key in ("low", "high", "detail", "share"):
            if key in raw:
                out[key] = raw[key]
        if "said" in raw:
            out |= {"filter": "min", "phrase": raw["said"]}
        elif not raw.get("detail") and part.share < 1 and self.rng.random() < 0.12:
            out["filter"] = "none"
        elif raw.get("type") in ("money", "integer", "number") and self.rng.random() < 0.3:
            out["filter"] = self.rng.choice(("min", "max"))
        return out

    # ---- actions --------------------------------------------------------------------------------------------------------------

    def _actions(self, writer: Writer) -> dict[str, Any]:
        """Actions by name, at most MAX_ACTIONS; no two of a role go by one verb in either language."""
        actions: dict[str, Any] = {}
        for role in self.rng.sample(self.drawn.roles, len(self.drawn.roles)):
            used_verbs: set[str] = set()
            for action in archetypes()[role].actions.values():
                if len(actions) == MAX_ACTIONS or self.rng.random() >= float(action.raw.get("p", 1)):
                    continue
                verbs = [verb for verb in action.verbs if not {verb.en, verb.zh} & used_verbs]
                verb = self.rng.choice(verbs or action.verbs)
                name = self._act_name(verb, self.drawn.chosen[role].noun.key)
                if not verbs or name in actions or len(name) > 40:
                    continue
                try:
                    actions[name] = self._act(role, action, verb, writer)
                except Missing:
                    continue
                used_verbs |= {verb.en, verb.zh}
        return actions

    def _act_name(self, verb: Verb, noun: str) -> str:
        """`change_price` as `change_car_price` or `car_change_price`."""
        first, _, rest = _choose_name(verb.key, self.drawn).partition("_")
        words = (
            [noun, first, rest] if self.naming["order"] == "noun_first" else [first, noun, rest] if first in _SPLIT else [first, rest, noun]
        )
        return "_".join(filter(None, words))

    def _act(self, role: str, action: ActionPart, verb: Verb, writer: Writer) -> dict[str, Any]:
        """An action written out.

        Raises:
            Missing: it needs something that the domain does not have.
        """
        raw, rng = action.raw, self.rng
        scope = writer.scope({each: rng.choice(raw[each]) for each in ("days",) if each in raw})
        takes = self._takes(role, action, scope)
        out: dict[str, Any] = {"verb": self._verb(action, verb, scope)}
        if "on" in raw:
            out["on"] = self.drawn.chosen[role].noun.key
        if takes:
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
            choice = self.drawn.chosen[role]
            out["creates"] = {choice.noun.key: {choice.names[symbol].key: scope.fresh(choice.parts[symbol]) for symbol in choice.parts}}
        elif "sets" in raw and (not sets or sets[0][0] is None or sets[0][1] is None):
            raise Missing("its effect")
        return {key: value for key, value in out.items() if value or key in ("rules",)}

    def _verb(self, action: ActionPart, verb: Verb, scope: Scope) -> str:
        """The verb, with what leads to the first row that a request names beside the person."""
        english, chinese = verb.en, verb.zh
        first = next((symbol for symbol, (_, role) in scope.params.items() if role not in (None, "person")), None)
        if first is not None and first in action.raw.get("objects", {}):
            after, _, before = action.raw["objects"][first].partition(" / ")
            english, chinese = f"{english} {after}", f"{before}{chinese}"
        phrase = scope.sentence(f"{english} / {chinese}", is_whole=False)
        if phrase is None:
            raise Missing(verb.key)
        return phrase

    def _takes(self, role: str, action: ActionPart, scope: Scope) -> dict[str, Any]:
        """The parameters of an action, by name; of one that creates rows, the fields that are asked for."""
        takes: dict[str, Any] = {}
        keys = {choice.noun.key for choice in self.drawn.chosen.values()}
        if "creates" in action.raw:
            choice = self.drawn.chosen[role]
            for symbol, part in choice.parts.items():
                if part.raw.get("new") == "ask":
                    name = choice.names[symbol]
                    scope.add(symbol, name.key, part.raw.get("ref"))
                    takes[name.key] = self._asked_argument(role, symbol, scope)
        for part in action.takes:
            if "if" in part.raw and part.raw["if"].partition(".")[2] not in self.drawn.chosen[role].parts:
                continue
            ref = part.raw.get("ref")
            if ref is not None and ref not in self.drawn.roles:
                raise Missing(ref)
            part_name = self._choose_name(part, keys, set(takes), ref)
            if part_name is None:
                raise Missing(part.symbol)
            name = part_name[0]
            scope.add(part.symbol, name.key, ref)
            takes[name.key] = scope.param(part, name)
        return takes

    def _asked_argument(self, role: str, symbol: str, scope: Scope) -> dict[str, Any]:
        choice = self.drawn.chosen[role]
        raw = choice.parts[symbol].raw
        out = _field_type(choice, symbol, scope.writer, self.drawn)
        if raw.get("type") == "choice":
            out = {"type": "choice", "like": f"{choice.noun.key}.{choice.names[symbol].key}", "label": out["label"]}
        if "phrase" in raw:
            out["phrase"] = raw["phrase"]
        return out

    def _make_optional(self, takes: dict[str, Any], rules: Mapping[str, Any]) -> None:
        """Now and then a number has a default; not one that a rule looks at."""
        written = str([rule["if"] for rule in rules.values()])
        for name, param in takes.items():
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

    # ---- the rest -------------------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        """The theme and what there is, first what the business does: `car_rental_rentals_claims_cars`."""
        roles = sorted(self.drawn.roles, key=lambda role: role in _BASIC)
        words = dict.fromkeys(slug(self.drawn.theme.nouns[role].plural).rpartition("_")[2] for role in roles if role != "person")
        name = self.drawn.theme.key
        for word in words:
            if len(name) + len(word) < 40 and word not in name:
                name = f"{name}_{word}"
        return name

    def _info(self) -> list[dict[str, str]]:
        entries = []
        for entry in self.rng.sample(talk()["info"], 2):
            answer = self.rng.choice(entry["answers"])
            entries.append({"ask": entry["ask"], "answer": answer, "words": entry["words"].replace("<answer>", answer)})
        return entries


def _choose_name(key: str, domain_draw: Drawn) -> str:
    """A key with the nouns of roles put in."""
    for role, noun in domain_draw.theme.nouns.items():
        key = key.replace(f"<{role}>", noun.key)
    return key


def _field_type(choice: Chosen, symbol: str, writer: Writer, domain_draw: Drawn) -> dict[str, Any]:
    """Type, bounds, unit and label of a field."""
    raw, name = choice.parts[symbol].raw, choice.names[symbol]
    label = f"{name.en} / {name.zh}"
    if "ref" in raw:
        return {
            "type": "ref",
            "to": domain_draw.chosen[raw["ref"]].noun.key if raw["ref"] in domain_draw.chosen else domain_draw.theme.nouns[raw["ref"]].key,
            "label": label,
        }
    out: dict[str, Any] = {"type": raw["type"], "label": label}
    if raw["type"] == "choice":
        out["values"] = {each.key: f"{each.en} / {each.zh}" for each in choice.values[symbol].values()}
    for key in ("min", "max", "step", "from", "to", "list"):
        if key in raw:
            out[key] = raw[key]
    if (unit := choice.unit(symbol)) is not None:
        out["unit"] = unit
    return out
