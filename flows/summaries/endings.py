"""The last words of a command: what came out of it in sentences, and the commands that make sense next.

One idea: every sentence is read from the store, so a resumed run, or a finished one that is called again, ends with the words of an
undisturbed run.

What it does not do: tables (`summary_tables.py`), or print (`cli/shared.py`).
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from filters.verdicts import ADMITS
from flows.config import Config
from storage.conversation import KINDS
from storage.explanations.explain import explain
from storage.explanations.store_rows import HELD_OUT_IN_SENTENCES
from storage.records import Outcome
from storage.releases.lineage_graph import LATEST_POLICY_SQL, POLICY_NAME, PROMOTED_POLICY_SQL, chain_sql
from storage.releases.text_layout import Section
from storage.report.evaluation_queries import read_measurements
from storage.store import Store
from storage.tables import CERTAINTY, LATEST_RUN
from synth.run.outcomes import OutcomeCount, count_kinds, count_outcomes, reason_in_words
from train.measure.promotions import read_promotions

_REPEATS = "repeat another query"
_UNREAD = "are no request that a tool can carry out"
_SPARE = "were not needed beside those"
_WHY_DROPPED = {
    **dict.fromkeys(("exact", "near", "equal", "semantic"), _REPEATS),
    **dict.fromkeys(("rules", "ground"), _UNREAD),
    "quality": "are damaged or hard to read",
    "contamination": "are close to held-out questions",
    **dict.fromkeys(("pool", "coverage"), _SPARE),
    ADMITS: "have no solution in a world",
}
"""Step of the funnel -> why it drops a row, in words."""
_SPARE_REASONS = frozenset({"not_needed", "other_difficulty", "reason_full"})
"""Reasons of admission for tasks that could be made, but are not needed."""
_SINGULAR = {"were": "was", "are": "is", "repeat": "repeats", "have": "has"}
_TOPICS_SHOWN = 3


@dataclass(frozen=True)
class Ending:
    """What to print last.

    sections: of `synthesize` alone, what it made, before the sentences.
    sentences: what came out.
    commands: (what for, a command of a shell or a file to open).
    """

    sections: tuple[Section, ...]
    sentences: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]


def ending(store: Store, settings: Config, steps: Sequence[str], policy: str | None = None) -> Ending:
    """The last words of a command that ran these steps of the pipeline. policy: the id of the policy that was measured."""
    sentences = [
        *(_synthesis(store) if "synthesize" in steps else ()),
        *(_curation(store) if "curate" in steps else ()),
        *(_training(store) if "train" in steps else ()),
        *(_measurement(store, policy) if "evaluate" in steps else ()),
        *(_certainty(store) if "tag" in steps else ()),
    ]
    sections = _synthesis_sections(store) if tuple(steps) == ("synthesize",) else []
    return Ending(tuple(sections), tuple(sentences), tuple(_commands(store, settings, steps)))


# ---- sentences ---------------------------------------------------------------------------------------------------------


def _synthesis(store: Store) -> list[str]:
    counts = count_outcomes(store)
    if not counts:
        return []
    tried, accepted = sum(one.proposals for one in counts), sum(one.proposals for one in counts if not one.reason)
    kinds = count_kinds(store)
    shown = ", ".join(f"{kinds[kind]:,} {words}" for kind, words in KINDS.items() if kind in kinds)
    made = f" ({shown})" if shown else ""
    return [f"Conversations: {accepted:,} accepted of {tried:,} tried{made}; each was executed and verified."]


def _synthesis_sections(store: Store) -> list[Section]:
    """An accepted conversation, and the reasons of those that were not accepted, each with an example."""
    counts = count_outcomes(store)
    sections = []
    if (made := _accepted_example(counts)) is not None:
        explanation = explain(store, made, full=True)
        about = dict(explanation.facts)["about"]
        rows = next(section.rows for section in explanation.sections if section.title == "conversation")
        sections.append(Section(f"An accepted conversation, {made}", (("about", about), *rows)))
    rejected = [one for one in counts if one.reason]
    if rejected:
        reasons = tuple((f"{one.proposals:,}", f"{reason_in_words(one.reason)}\n{one.example}") for one in rejected)
        total = sum(one.proposals for one in rejected)
        sections.append(Section(f"Not accepted: {total:,}. `headrace explain ID` shows what an example lacks", reasons))
    return sections


def _accepted_example(counts: Sequence[OutcomeCount]) -> str | None:
    return next((one.example.id for one in counts if one.outcome == Outcome.SUCCESS), None)


def _curation(store: Store) -> list[str]:
    steps = store.query(
        f"SELECT step, rows_in, kept, dropped, reasons FROM funnel WHERE run = {LATEST_RUN.format(table='funnel')} ORDER BY position"
    )
    if steps.is_empty():
        return []
    rows, kept = steps["rows_in"][0], steps["kept"][-1]
    dropped: Counter[str] = Counter()
    for step, count, reasons in steps.select("step", "dropped", "reasons").iter_rows():
        by_reason = json.loads(reasons or "{}") if step == ADMITS else {}
        spare = sum(by_reason.get(reason, 0) for reason in _SPARE_REASONS)
        dropped[_SPARE] += spare
        dropped[_WHY_DROPPED.get(step, "failed another check")] += count - spare
    shown = ", ".join(f"{count:,} {_agreeing(why, count)}" for why, count in dropped.most_common() if count)
    share = f" (1 in {rows / kept:,.0f})" if 0 < kept <= rows / 2 else ""
    counted = f"Queries: {kept:,} kept of {rows:,}{share}. Of the others, {shown}." if shown else f"Queries: {kept:,} kept of {rows:,}."
    return [counted, *_topics(store, kept)]


def _agreeing(why: str, count: int) -> str:
    """A reason in the plural, with the verb of this many rows."""
    verb, _, rest = why.partition(" ")
    return f"{_SINGULAR.get(verb, verb)} {rest}" if count == 1 else why


def _read_topics(store: Store) -> pl.DataFrame:
    """Topics of the kept queries that no world reads: columns topic and queries (how many were kept), most queries first."""
    return store.query(
        f"""SELECT topic, count(*) AS queries FROM frames
            WHERE status = 'ungrounded' AND run = {LATEST_RUN.format(table="funnel")} GROUP BY topic ORDER BY queries DESC, topic"""
    )


def _topics(store: Store, kept: int) -> list[str]:
    """What was kept that no world reads."""
    found = _read_topics(store)
    if found.is_empty():
        return []
    count = found["queries"].sum()
    whom = "any of those kept" if count == kept else f"{count:,} of those kept"
    few = ", ".join(f"“{topic}”" for topic in found["topic"].head(_TOPICS_SHOWN))
    topics = "1 topic" if found.height == 1 else f"{found.height:,} topics"
    return [
        f"No world executes {whom}: they are no tasks, but queries taken evenly from {topics}, long and conditional ones first "
        f"({few}{' ...' if found.height > _TOPICS_SHOWN else ''})."
    ]


def _training(store: Store) -> list[str]:
    measured = read_measurements(store).filter(pl.col("decoding") == "sampled")
    trained = set(store.query(f"{chain_sql(LATEST_POLICY_SQL)} SELECT policy_id FROM trained")["policy_id"])
    measured = measured.filter(pl.col("policy_id").is_in(trained))
    sentences: list[str] = []
    for use, what in HELD_OUT_IN_SENTENCES.items():
        rows = measured.filter(use=use, facet="all")
        if rows.height:
            rates = " -> ".join(f"{row['policy']} {_percent(row['rate'])}" for row in rows.to_dicts())
            sentences.append(f"Solved of {rows['tasks'][-1]:,} {what}{'' if sentences else ' (sampled)'}: {rates}.")
    sentences += _kinds(measured)
    return [*sentences, *(f"{promotion.describe()}." for promotion in read_promotions(store)[-1:])]


def _measurement(store: Store, policy: str | None) -> list[str]:
    measured = read_measurements(store).filter((pl.col("decoding") == "sampled") & (pl.col("policy_id") == policy))
    sentences = []
    for row in measured.filter(facet="all").to_dicts():
        if row["use"] in HELD_OUT_IN_SENTENCES:
            interval = f" (95 %: {100 * row['low']:.0f} to {100 * row['high']:.0f})" if row["low"] is not None else ""
            held_out = HELD_OUT_IN_SENTENCES[row["use"]]
            sentences.append(f"{row['policy']} solves {_percent(row['rate'])} of {row['tasks']:,} {held_out}{interval}, sampled.")
    return [*sentences, *_kinds(measured)]


def _kinds(measured: pl.DataFrame) -> list[str]:
    """The success of these policies by kind of task, on the first held-out set that has kinds."""
    rows = measured.filter(facet="kind").filter(pl.col("use") == pl.col("use").min())
    shown = []
    for kind, words in KINDS.items():
        of_kind = rows.filter(facet_value=kind)
        if of_kind.height:
            shown.append(f"{words} {' -> '.join(map(_percent, of_kind['rate']))} of {of_kind['tasks'][-1]:,}")
    return [f"By kind of task: {', '.join(shown)}."] if shown else []


def _certainty(store: Store) -> list[str]:
    found = store.query(
        f"""WITH last AS (SELECT policy_id FROM tags JOIN parts USING (part_id) WHERE region IS NOT NULL AND purpose = 'probe'
              ORDER BY committed_at DESC, policy_id LIMIT 1)
            SELECT coalesce({POLICY_NAME}, policy_id) AS policy, region, count(*) AS tasks
            FROM {CERTAINTY} t JOIN last USING (policy_id) LEFT JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
            WHERE purpose = 'probe' GROUP BY ALL"""
    )
    if found.is_empty():
        return []
    of = dict(found.select("region", "tasks").iter_rows())
    always, mostly, sometimes, never = (of.get(region, 0) for region in ("mastered", "certain", "uncertain", "out_of_reach"))
    return [
        f"Of {found['tasks'].sum():,} probed tasks {found['policy'][0]} solves {always:,} always, {mostly:,} mostly, "
        f"{sometimes:,} sometimes (RL learns from these) and {never:,} never."
    ]


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f} %"


# ---- commands ----------------------------------------------------------------------------------------------------------


def _commands(store: Store, settings: Config, steps: Sequence[str]) -> list[tuple[str, str]]:
    here = f"--store {shlex.quote(str(settings.store))}"
    promoted = _first(store, PROMOTED_POLICY_SQL)
    if "train" in steps:
        commonest = _first(store, "SELECT world FROM tasks GROUP BY world ORDER BY count(*) DESC, world LIMIT 1")
        world = commonest if commonest in settings.train.worlds else settings.train.worlds[0]
        failed = _first(
            store,
            f"""SELECT rollout_id FROM rollouts WHERE reward = 0 AND purpose = 'eval_in' AND policy_id = ({LATEST_POLICY_SQL})
                ORDER BY rollout_id LIMIT 1""",
        )
        talk = [("talk to it", f"headrace chat --policy latest --world {world} {here}")] if promoted else []
        return [*talk, *([("a failure", f"headrace explain {failed} {here}")] if failed else [])]
    if "synthesize" in steps:
        counts = count_outcomes(store)
        why_not = [("why not", f"headrace explain {one.example.id} {here}") for one in counts if one.reason][:1]
        if (made := _accepted_example(counts)) is None:
            return why_not
        next_steps = [("train on them", f"headrace train {here}"), ("or export", f"headrace export {here} --out training_set/")]
        return [("its plan", f"headrace explain {made} {here}"), *why_not, *next_steps]
    if "curate" in steps:
        one = _first(store, f"SELECT query_id FROM verdicts WHERE kept AND run = {LATEST_RUN.format(table='funnel')} ORDER BY 1 LIMIT 1")
        has_conversations = _first(store, "SELECT trajectory_id FROM trajectories WHERE accepted LIMIT 1") is not None
        then = ("train on them", f"headrace train {here}") if has_conversations else ("conversations", f"headrace synthesize {here}")
        export = [("export them", f"headrace export --queries {here} --out queries/")] if _read_topics(store).height else []
        return [*([("why this one", f"headrace explain {one} {here}")] if one else []), *export, then]
    if "tag" in steps and promoted:
        return [("more of what it fails at", f"headrace synthesize --focus failures {here}")]
    return []


def _first(store: Store, sql: str) -> str | None:
    rows = store.query(sql)
    return None if rows.is_empty() else str(rows.item(0, 0))
