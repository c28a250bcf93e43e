"""The intents of a domain: every goal with the row references that suit it.

One idea: intents are combinations of references (`row_references.py`) and goals (`questions.py`, `acts.py`, `refusal_intents.py`). They are
chosen here so that a domain has chains of one to five calls, every action in at least one of them, a request that each business rule
forbids, all four reasons to refuse, and numbers to compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.records import RefusalReason
from synth.worlds.declarative.domain import Act, Domain, Entity, Field
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.computing import compute_intents
from synth.worlds.declarative.intents.questions import BestQuestion, CountQuestion, QuestionIntent, question_fields
from synth.worlds.declarative.intents.reading_tools import ReadingIntent
from synth.worlds.declarative.intents.refusal_intents import (
    IMPOSSIBLE,
    NO_TOOL,
    InformationIntent,
    UnnamedRowIntent,
    WishIntent,
    attribute_of,
)
from synth.worlds.declarative.intents.row_references import (
    BestReference,
    IdReference,
    NameReference,
    OwnedReference,
    RowReference,
    fixed_words,
    free_name,
    has_open_name,
    pick_filters,
    pick_orders,
    searched_name,
)
from synth.worlds.declarative.intents.spec_jobs import ScriptedIntent

_WISHED_ENTITIES = 3
"""Entities with refused wishes."""


def intents_of(domain: Domain) -> list[SpecIntent]:
    """All intents that a domain could have; not checked is whether their tasks can be solved.

    Combined intents come first; an intent that the spec defines itself replaces the combined one of the same name.
    """
    spec_jobs: list[SpecIntent] = [ScriptedIntent(domain, job) for job in domain.jobs]
    if not domain.spec.head.combined:
        return spec_jobs
    combined = [*_acts(domain), *_questions(domain), *compute_intents(domain), *_refusals(domain)]
    names = [intent.name for intent in combined]
    assert len(names) == len(set(names)), names
    return [*(intent for intent in combined if intent.name not in domain.spec.intents), *spec_jobs]


def _acts(domain: Domain) -> Iterator[SpecIntent]:
    for act in domain.acts.values():
        by_id: dict[str, RowReference] = {
            param.name: IdReference(domain, domain.entities[param.type.entity], param.name)
            for param in act.params.values()
            if param.type.kind == "ref"
        }
        if act.is_reading:
            yield ReadingIntent(domain, act, by_id)
            continue
        yield ActIntent(domain, act, act.name, by_id)
        if act.on is not None:
            others = frozenset(act.params) - {act.on.name}
            for by_name, suffix in ((False, "owned"), (True, "named")):
                owned = _owned_reference(domain, act.on, by_name=by_name, used_names=others)
                if owned is not None:
                    yield ActIntent(domain, act, f"{act.name}_{suffix}", {**by_id, act.on.name: owned})
        for name in by_id:
            entity = domain.entities[act.params[name].type.entity]
            named = searched_name(entity)
            if named is not None and has_open_name(named):
                slot = free_name(f"{name}_name", frozenset(act.params) - {name}, entity)
                yield ActIntent(domain, act, f"{act.name}_by_{name}_name", {**by_id, name: NameReference(domain, entity, named, slot)})
            best = _best_reference(domain, act, name)
            if best is not None:
                yield ActIntent(domain, act, f"{act.name}_pick_{name}", {**by_id, name: best})
        for rule in domain.spec.actions[act.name].rules:
            yield ActIntent(domain, act, f"{act.name}_against_{rule}", by_id, against=rule)


def _best_reference(domain: Domain, act: Act, name: str) -> BestReference | None:
    """A parameter's row as the best one of those that pass the action's conditions; None if its entity is not searched in an order."""
    param = act.params[name]
    entity = domain.entities[param.type.entity]
    if param.is_person or not _is_ranked(entity):
        return None
    fixed: dict[str, tuple[Field, object]] = {}
    for condition in act.conditions:
        for root, field_name, value in condition.test.equalities:
            field = entity.fields.get(field_name) if root == name else None
            if field is not None and field.filter == "equal" and fixed_words(field, value) is not None:
                fixed[field_name] = (field, value)
    return BestReference(domain, entity, used_names=frozenset(act.params) - {name}, fixed=tuple(fixed.values()))


def _is_ranked(entity: Entity) -> bool:
    return "search" in entity.spec.tools and bool(pick_orders(entity))


def _owned_reference(domain: Domain, entity: Entity, *, by_name: bool, used_names: frozenset[str] = frozenset()) -> OwnedReference | None:
    """A row as its owner's only one of its kind; None if the entity has no owner, or the owner no name where `by_name` asks for it."""
    attribute = attribute_of(domain, entity)
    owner = next(iter(entity.owners()), None)
    if attribute is None or owner is None or owner.place < 0 or owner.spec.detail:
        return None
    name = searched_name(domain.entities[owner.type.entity]) if by_name else None
    if by_name and name is None:
        return None
    return OwnedReference(domain, entity, owner, attribute, name=name, used_names=used_names)


def _questions(domain: Domain) -> Iterator[SpecIntent]:
    for entity in domain.by_number:
        if "get" in entity.spec.tools:
            fields = question_fields(entity, with_details=True)
            yield QuestionIntent(domain, f"ask_{entity.name}", IdReference(domain, entity, entity.name), fields)
            yield from _questions_along(domain, entity)
        owned = _owned_reference(domain, entity, by_name=False)
        if owned is not None:
            fields = question_fields(entity, with_details=False, without=(owned.owner.name, owned.attribute.name))
            if fields:
                yield QuestionIntent(domain, f"ask_owned_{entity.name}", owned, fields)
        name = searched_name(entity)
        if name is not None:
            fields = question_fields(entity, with_details=False, without=(name.name,))
            if fields:
                yield QuestionIntent(domain, f"ask_named_{entity.name}", NameReference(domain, entity, name, f"{entity.name}_name"), fields)
        if _is_ranked(entity):
            yield BestQuestion(domain, f"find_{entity.name}", BestReference(domain, entity, used_names=frozenset()))
        if "search" in entity.spec.tools and any(each.type.kind in ("choice", "flag") for each in pick_filters(entity)):
            yield CountQuestion(domain, f"count_{entity.name}", entity)


def _questions_along(domain: Domain, entity: Entity) -> Iterator[SpecIntent]:
    """Questions about a row to which a row of this entity refers; the latter is named by its id, or by its owner's name."""
    for each in entity.fields.values():
        if each.type.kind != "ref" or each.place < 0:
            continue
        other = domain.entities[each.type.entity]
        fields = [field for field in question_fields(other, with_details=True) if field.type.kind != "ref"]
        if "get" not in other.spec.tools or not fields:
            continue
        by_id = IdReference(domain, entity, entity.name)
        yield QuestionIntent(domain, f"ask_{each.name}_of_{entity.name}", by_id, fields, along=each)
        owned = _owned_reference(domain, entity, by_name=True)
        if owned is not None and each is not owned.owner and not each.spec.detail:
            yield QuestionIntent(domain, f"ask_{each.name}_of_named_{entity.name}", owned, fields, along=each)


def _refusals(domain: Domain) -> Iterator[SpecIntent]:
    names = list(dict.fromkeys(act.on.name for act in domain.acts.values() if act.on is not None)) or list(domain.entities)
    head = domain.spec.head
    for name in names[:_WISHED_ENTITIES]:
        entity = domain.entities[name]
        yield WishIntent(domain, f"unsupported_{name}", entity, head.unsupported or NO_TOOL, RefusalReason.MISSING_TOOL)
        yield WishIntent(domain, f"impossible_{name}", entity, head.impossible or IMPOSSIBLE, RefusalReason.NOT_ACTIONABLE)
    for act in domain.acts.values():
        if act.on is not None and not act.is_reading:
            yield UnnamedRowIntent(domain, act)
    information = InformationIntent(domain)
    if information.topics:
        yield information
