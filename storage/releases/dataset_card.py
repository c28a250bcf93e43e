"""The dataset card of an export: contents, origin, selection, licences and hashes.

All values come from the store; the card has no times and no paths. It uses only parts that were committed before the release, so later
commits do not change the card of a release, except for what was withdrawn since.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from storage.records import JSON
from storage.releases.card_usage import table_files, usage
from storage.releases.export_rows import DEFAULT_FORM, TRAJECTORIES, Format, MessageForm
from storage.releases.release import BEFORE_SQL, GENERAL, ORIGINS, ReleasedItem
from storage.store import Store
from storage.tombstones.withdrawn_rows import list_withdrawals, marked_policies

UNSTATED = "not stated: find out before you publish"
_PROMISE = (
    "Every conversation was executed in a real, seeded world; every task comes with a plan that passes, and doing nothing fails it. "
    "A conversation with several goals is one task, whose user is simulated."
)
_SCALE = "Static difficulty of the tasks: -1 refusal, 0 no tool, 1 to 5 rising with tool load, chain depth and constraints."


def card(
    store: Store,
    release_id: str,
    manifest: Mapping[str, Any],
    splits: Mapping[str, Sequence[ReleasedItem]],
    format: Format,
    *,
    form: MessageForm = DEFAULT_FORM,
    files: Mapping[str, str],
    licences: Mapping[str, str],
) -> str:
    """The card as Markdown with a YAML head.

    splits: the exported items. files: names -> SHA-256. licences: sources of raw queries -> licences.
    """
    sections = [
        _head(splits, files),
        f"# {manifest['name']}\n\nTool-use data made by Headrace: release `{release_id}`, written for {format}. {_PROMISE}",
        usage(format, form, files),
        "## Splits\n\n" + _split_table(splits, manifest) + _left_out(splits, manifest, format),
        f"## Difficulty\n\n{_SCALE}\n\n" + _difficulty_table(splits),
        _certainty(store, release_id, manifest),
        _funnel(store, release_id),
        _diversity(store, release_id),
        _withdrawn(store, release_id, manifest),
        "## How it was chosen\n\n" + _selection_text(manifest),
        "## Licences\n\n" + licences_text(store, release_id, licences),
        "## Hashes\n\n" + _hashes(release_id, manifest, files),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[JSON]]) -> str:
    """A table of Markdown."""
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _head(splits: Mapping[str, Sequence[ReleasedItem]], files: Mapping[str, str]) -> str:
    languages = sorted({item.setting.language for items in splits.values() for item in items})
    configs: list[str] = []
    for kind in ("conversations", "prompts"):
        names = table_files(files, kind)
        if names:
            listed = "".join(f"\n  - split: {name.split('.')[0]}\n    path: {name}" for name in names)
            default = "" if configs else "\n  default: true"
            configs.append(f"- config_name: {kind}{default}\n  data_files:{listed}")
    head = ["---", "language:", *(f"- {language}" for language in languages), "tags:", "- tool-use", "- agent", "configs:", *configs, "---"]
    return "\n".join(head)


def _split_table(splits: Mapping[str, Sequence[ReleasedItem]], manifest: Mapping[str, Any]) -> str:
    rows = []
    for split, items in splits.items():
        kinds = Counter(item.item.kind for item in items)
        tasks = {item.task.id: item.task for item in items if item.task}
        origins = manifest["splits"][split]["origins"]
        shares = ", ".join(f"{ORIGINS[origin]} {n / max(len(items), 1):.0%}" for origin, n in origins.items())
        settings = {item.item.task_id or item.item.item_id: item.setting for item in items}.values()
        worlds = ", ".join(f"{world} {n}" for world, n in sorted(Counter(setting.world for setting in settings).items()))
        languages = ", ".join(f"{language} {n}" for language, n in sorted(Counter(setting.language for setting in settings).items()))
        shown = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        rows.append((split, len(items), shown, len(tasks), shares, worlds, languages))
    return markdown_table(("split", "items", "kinds", "tasks", "origins", "worlds", "languages"), rows)


def _left_out(splits: Mapping[str, Sequence[ReleasedItem]], manifest: Mapping[str, Any], format: Format) -> str:
    missing = sum(described["items"] for described in manifest["splits"].values()) - sum(map(len, splits.values()))
    what = "tasks without a conversation, and conversations with a call" if format in TRAJECTORIES else "conversations with a call"
    return f"\n\nLeft out: {what} whose arguments are no JSON object, {missing}." if missing else ""


def _difficulty_table(splits: Mapping[str, Sequence[ReleasedItem]]) -> str:
    levels = range(-1, 6)
    rows = []
    for split, items in splits.items():
        counts = Counter({item.task.id: item.task.difficulty for item in items if item.task}.values())
        rows.append((split, *(counts[level] for level in levels)))
    return markdown_table(("split", *map(str, levels)), rows)


def _certainty(store: Store, release_id: str, manifest: Mapping[str, Any]) -> str:
    rows = store.query(
        f"""SELECT i.split, t.policy_id, t.region, count(DISTINCT t.task_id) FROM release_items i JOIN tags t USING (task_id)
            WHERE i.release_id = ? AND t.policy_id = ? AND t.purpose = 'probe' AND t.part_id IN {BEFORE_SQL} GROUP BY ALL ORDER BY ALL""",
        [release_id, manifest.get("probed_policy"), release_id],
    ).rows()
    return (
        "## Certainty\n\nTasks by what a probe of the policy made of them, by the thresholds of their first tagging; once for each k.\n\n"
        + markdown_table(("split", "policy", "region", "tasks"), rows)
        if rows
        else ""
    )


_RUNS_SQL = f"""(SELECT run FROM frames WHERE status = 'admitted' AND part_id IN {BEFORE_SQL} AND query_id IN (
    SELECT t.query_id FROM release_items i JOIN tasks t USING (task_id) WHERE i.release_id = ?))"""
"""Funnel runs that admitted queries of a release, before it was made; parameters: its id, twice."""


def _funnel(store: Store, release_id: str) -> str:
    rows = store.query(
        f"SELECT run, step, rows_in, kept, dropped, reasons FROM funnel WHERE run IN {_RUNS_SQL} ORDER BY run, position", [release_id] * 2
    ).rows()
    return (
        "## Funnel\n\nHow the raw queries were sifted.\n\n" + markdown_table(("run", "step", "rows in", "kept", "dropped", "reasons"), rows)
        if rows
        else ""
    )


def _diversity(store: Store, release_id: str) -> str:
    """A round's blueprints and figures are committed together, which identifies the synthesis runs behind a release."""
    rows = store.query(
        f"""SELECT run, metric, round(value, 4), n FROM diversity WHERE part_id IN {BEFORE_SQL} AND run IN (
              SELECT run FROM diversity JOIN parts USING (part_id) WHERE committed_at IN (
                SELECT committed_at FROM blueprints JOIN parts USING (part_id) WHERE blueprint_id IN (
                  SELECT coalesce(t.blueprint_id, c.blueprint_id) FROM release_items i LEFT JOIN tasks t USING (task_id)
                    LEFT JOIN trajectories c ON c.trajectory_id = i.item_id WHERE i.release_id = ?)))
            QUALIFY round = max(round) OVER (PARTITION BY run) ORDER BY run, metric""",
        [release_id] * 2,
    ).rows()
    return (
        "## Diversity\n\nOf all accepted trajectories of the runs that its blueprints came from, last round.\n\n"
        + markdown_table(("run", "metric", "value", "n"), rows)
        if rows
        else ""
    )


def _withdrawn(store: Store, release_id: str, manifest: Mapping[str, Any]) -> str:
    """What was taken out of the release, and which of its draws are by policies that learned from withdrawn rows."""
    taken_out = [one for one in list_withdrawals(store) if one.withdrawal_id in manifest.get("without", ())]
    lines = [f"- taken out, with all that was made from it: {one}" for one in taken_out]
    drawn = store.query(
        "SELECT policy_id, count(DISTINCT item_id) FROM release_items JOIN rollouts ON rollout_id = item_id WHERE release_id = ? "
        "GROUP BY 1 ORDER BY 1",
        [release_id],
    )
    marked, n_of = marked_policies(store), dict(drawn.iter_rows())
    for policy in sorted(marked.keys() & (n_of.keys() | {str(manifest.get("probed_policy"))})):
        what = f"drew {n_of[policy]:,} conversations of this release" if policy in n_of else "was probed to choose its tasks"
        lines += [f"- {policy} {what}, and learned from a source that was withdrawn: {one}" for one in marked[policy]]
    return "## Withdrawn sources\n\n" + "\n".join(lines) if lines else ""


def _selection_text(manifest: Mapping[str, Any]) -> str:
    decided = {key: value for key, value in manifest.items() if key not in ("name", "splits")}
    return f"```json\n{json.dumps(decided, indent=1, ensure_ascii=False, sort_keys=True)}\n```" if decided else "Nothing was recorded."


def sources_of(store: Store, release_id: str) -> list[tuple[str, int]]:
    """The sources of the raw queries behind a release, each with its number of tasks."""
    return store.query(
        f"""SELECT q.source, count(DISTINCT t.task_id) FROM release_items i JOIN tasks t USING (task_id) JOIN queries q USING (query_id)
            WHERE i.release_id = ? AND q.run IN {_RUNS_SQL} GROUP BY 1 ORDER BY 1""",
        [release_id] * 3,
    ).rows()


def licences_text(store: Store, release_id: str, licences: Mapping[str, str]) -> str:
    """Under which licences what is in a release is, as Markdown. licences: sources of raw queries -> licences."""
    rows = [(source, tasks, licences.get(source, UNSTATED)) for source, tasks in sources_of(store, release_id)]
    user_domains = store.query(
        """SELECT DISTINCT domain FROM worlds WHERE world IN (
             SELECT t.world FROM release_items i JOIN tasks t USING (task_id) WHERE i.release_id = ?
             UNION SELECT c.world FROM release_items i JOIN trajectories c ON c.trajectory_id = i.item_id WHERE i.release_id = ?)
           ORDER BY domain""",
        [release_id] * 2,
    )["domain"].to_list()
    general = store.query(
        "SELECT DISTINCT c.teacher FROM release_items i JOIN trajectories c ON c.trajectory_id = i.item_id WHERE i.release_id = ? "
        "AND c.world = ? ORDER BY 1",
        [release_id, GENERAL],
    )["teacher"].to_list()
    text = "Scripted conversations, and the worlds and tools that Headrace ships, are under Apache-2.0."
    if user_domains:
        text += f" Not of Headrace, their licence {UNSTATED}: the worlds and tools of {', '.join(user_domains)}."
    if general:
        text += f" Not of Headrace, their licence {UNSTATED}: general conversations ({', '.join(general)})."
    return text + (" Raw queries came from:\n\n" + markdown_table(("source", "tasks", "licence"), rows) if rows else "")


def _hashes(release_id: str, manifest: Mapping[str, Any], files: Mapping[str, str]) -> str:
    rows = [("release", release_id), *((f"split {split}", described["hash"]) for split, described in manifest["splits"].items())]
    return markdown_table(("what", "SHA-256"), [*rows, *files.items()]) + "\n\n`sha256sum -c SHA256SUMS` checks the files."
