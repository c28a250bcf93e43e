"""The intents of a domain: every goal with the ways of naming that suit it.

One idea: intents are combinations (`row_references.py` with `questions.py`, `acts.py`, `refusal_intents.py`). They are chosen here so that
a domain gets chains of one to five calls, every act in at least one of them, a request that each business rule forbids, all four reasons
to refuse, and numbers to compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.records import RefusalReason
from synth.worlds.declarative.domain import Act, Domain, Entity, Field
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.computing import computing
from synth.worlds.declarative.intents.questions import Counting, Finding, QuestionIntent, askable
from synth.worlds.declarative.intents.refusal_intents import IMPOSSIBLE, NO_TOOL, Information, Plain, Unnamed, attribute_of
from synth.worlds.declarative.intents.row_references import ById, ByName, Finder, Owned, Picked, fixed_words, pick_filters, pick_orders
from synth.worlds.declarative.intents.spec_jobs import Scripted

_WISHERS = 3
"""Entities that people have wishes about which are refused."""


def intents_of(domain: Domain) -> list[SpecIntent]:
    """All intents that a domain could have, acts first, the spec's own last (in place of ours of the same name); whether their tasks can be
    solved is not known yet."""
    spec_jobs: list[SpecIntent] = [Scripted(domain, script) for script in domain.jobs]
    if not domain.spec.head.combined:
        return spec_jobs
    combined = [*_acts(domain), *_questions(domain), *computing(domain, searched_name), *_refusals(domain)]
    names = [intent.name for intent in combined]
    assert len(names) == len(set(names)), names
    return [*(intent for intent in combined if intent.name not in domain.spec.intents), *spec_jobs]


def _acts(domain: Domain) -> Iterator[SpecIntent]:
    for act in domain.acts.values():
        plain = _plain(domain, act)
        yield ActIntent(domain, act, act.name, plain)
        if act.on is not None:
            others = frozenset(act.params) - {act.on.name}
            for by_name, suffix in ((False, "owned"), (True, "named")):
                finder = owned_reference(domain, act.on, by_name=by_name, used_names=others)
                if finder is not None:
                    yield ActIntent(domain, act, f"{act.name}_{suffix}", {**plain, act.on.name: finder})
        for name in plain:
            picked = _picked_reference(domain, act, name)
            if picked is not None:
                yield ActIntent(domain, act, f"{act.name}_pick_{name}", {**plain, name: picked})
        for rule in domain.spec.actions[act.name].rules:
            yield ActIntent(domain, act, f"{act.name}_against_{rule}", plain, against=rule)


def _plain(domain: Domain, act: Act) -> dict[str, Finder]:
    """Every row of an act by its id."""
    return {
        param.name: ById(domain, domain.entities[param.type.entity], param.name)
        for param in act.params.values()
        if param.type.kind == "ref"
    }


def _picked_reference(domain: Domain, act: Act, name: str) -> Picked | None:
    param = act.params[name]
    entity = domain.entities[param.type.entity]
    if param.is_person or "search" not in entity.spec.tools or not pick_orders(entity):
        return None
    fixed: dict[str, tuple[Field, object]] = {}
    for condition in act.conditions:
        for root, field, value in condition.test.equalities:
            if root == name and entity.fields[field].filter == "equal" and fixed_words(entity.fields[field], value) is not None:
                fixed[field] = (entity.fields[field], value)
    return Picked(domain, entity, used_names=frozenset(act.params) - {name}, fixed=tuple(fixed.values()))


def owned_reference(domain: Domain, entity: Entity, *, by_name: bool, used_names: frozenset[str] = frozenset()) -> Owned | None:
    """As somebody's only one of its kind, where there are such."""
    attribute = attribute_of(domain, entity)
    owner = next(iter(entity.owners()), None)
    if attribute is None or owner is None or owner.place < 0 or owner.spec.detail:
        return None
    name = searched_name(domain.entities[owner.type.entity]) if by_name else None
    if by_name and name is None:
        return None
    return Owned(domain, entity, owner, attribute, name=name, used_names=used_names)


def searched_name(entity: Entity) -> Field | None:
    """The proper name by which an entity can be searched."""
    if "search" not in entity.spec.tools:
        return None
    return next((each for each in entity.fields.values() if each.type.kind == "name" and each.filter == "equal" and each.place >= 0), None)


def _questions(domain: Domain) -> Iterator[SpecIntent]:
    for entity in domain.by_number:
        if "get" in entity.spec.tools:
            yield QuestionIntent(domain, f"ask_{entity.name}", ById(domain, entity, entity.name), askable(entity, with_details=True))
            yield from _asked_along(domain, entity)
        finder = owned_reference(domain, entity, by_name=False)
        if finder is not None:
            aspects = askable(entity, with_details=False, without=(finder.owner.name, finder.attribute.name))
            if aspects:
                yield QuestionIntent(domain, f"ask_owned_{entity.name}", finder, aspects)
        name = searched_name(entity)
        if name is not None:
            aspects = askable(entity, with_details=False, without=(name.name,))
            if aspects:
                yield QuestionIntent(domain, f"ask_named_{entity.name}", ByName(domain, entity, name, f"{entity.name}_name"), aspects)
        if "search" in entity.spec.tools and pick_orders(entity):
            yield Finding(domain, f"find_{entity.name}", Picked(domain, entity, used_names=frozenset()))
        if "search" in entity.spec.tools and any(each.type.kind in ("choice", "flag") for each in pick_filters(entity)):
            yield Counting(domain, f"count_{entity.name}", entity)


def _asked_along(domain: Domain, entity: Entity) -> Iterator[SpecIntent]:
    """Questions about a row that this one refers to: by its id, and from an owner's name on."""
    for each in entity.fields.values():
        if each.type.kind != "ref" or each.place < 0:
            continue
        other = domain.entities[each.type.entity]
        aspects = [aspect for aspect in askable(other, with_details=True) if aspect.type.kind != "ref"]
        if "get" not in other.spec.tools or not aspects:
            continue
        yield QuestionIntent(domain, f"ask_{each.name}_of_{entity.name}", ById(domain, entity, entity.name), aspects, along=each)
        finder = owned_reference(domain, entity, by_name=True)
        if finder is not None and each is not finder.owner and not each.spec.detail:
            yield QuestionIntent(domain, f"ask_{each.name}_of_named_{entity.name}", finder, aspects, along=each)


def _refusals(domain: Domain) -> Iterator[SpecIntent]:
    acted = list(dict.fromkeys(act.on.name for act in domain.acts.values() if act.on is not None)) or list(domain.entities)
    head = domain.spec.head
    for name in acted[:_WISHERS]:
        entity = domain.entities[name]
        yield Plain(domain, f"unsupported_{name}", entity, head.unsupported or NO_TOOL, RefusalReason.MISSING_TOOL)
        yield Plain(domain, f"impossible_{name}", entity, head.impossible or IMPOSSIBLE, RefusalReason.NOT_ACTIONABLE)
    for act in domain.acts.values():
        if act.on is not None:
            yield Unnamed(domain, act)
    information = Information(domain)
    if information.topics:
        yield information
