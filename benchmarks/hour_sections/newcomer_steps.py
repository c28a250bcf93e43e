"""What a newcomer does in the first hour, step by step: each a command as typed in a shell, and what has to come of it.

In a command, `{files}` is the folder of the newcomer's files, and the names of `IDS` are ids from the stores as they are at that step.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST, MINE, LOGS, TOOLS = "runs/first/store", "runs/mine/store", "runs/logs/store", "runs/tools/store"
"""Stores: of the small sample, of the newcomer's own world, of their queries, of their tools."""


@dataclass(frozen=True)
class Step:
    """One step.

    aim: what the newcomer wants to know or have.
    command: line of a shell.
    says: regular expressions, each of which the output must match.
    never: regular expressions that the output must not match, beside those of every step.
    status: exit status. A refusal (status 1 or 2) must be at most three lines.
    makes: files that exist afterwards.
    is_first_product: it counts for the time from a world of their own to a policy of their own.
    """

    aim: str
    command: str
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    status: int = 0
    makes: tuple[str, ...] = ()
    is_first_product: bool = False


@dataclass(frozen=True)
class Id:
    """An id for later commands. store: where to look it up; sql: a query with one row and one column."""

    store: str
    sql: str


IDS = {
    "trajectory": Id(MINE, "SELECT trajectory_id FROM trajectories WHERE accepted ORDER BY 1 LIMIT 1"),
    "task": Id(MINE, "SELECT task_id FROM tasks ORDER BY 1 LIMIT 1"),
    "blueprint": Id(MINE, "SELECT blueprint_id FROM blueprints ORDER BY 1 LIMIT 1"),
    "calibration": Id(MINE, "SELECT trajectory_id FROM trajectories WHERE NOT accepted ORDER BY 1 LIMIT 1"),
    "failed": Id(MINE, "SELECT rollout_id FROM rollouts WHERE reward = 0 ORDER BY 1 LIMIT 1"),
    "policy": Id(MINE, "SELECT policy_id FROM policies JOIN parts USING (part_id) ORDER BY committed_at DESC LIMIT 1"),
    "release": Id(MINE, "SELECT release_id FROM releases ORDER BY 1 LIMIT 1"),
    "query": Id(FIRST, "SELECT query_id FROM queries JOIN tasks USING (query_id) ORDER BY 1 LIMIT 1"),
    "kept": Id(LOGS, "SELECT query_id FROM verdicts WHERE kept ORDER BY 1 LIMIT 1"),
    "cluster": Id(TOOLS, "SELECT cluster_id FROM clusters ORDER BY 1 LIMIT 1"),
}

_CHAT = f"headrace chat --policy latest --world bike_hire --store {MINE}"

STEPS: tuple[Step, ...] = (
    # ---- looking around ----
    Step("what can make do", "make help", says=("make run", "make test")),
    Step("what can the command do", "headrace --help", says=("synthesize", "curate", "train", "chat")),
    Step("is everything installed", "headrace doctor", says=("Python", "disk")),
    Step("which keys are there", "headrace config", says=("expert_budget", "learning_rate")),
    Step("is the sample's file right", "headrace config check configs/sample.yaml"),
    Step("my file with a typing error", "headrace config check {files}/typo.yaml", status=2, says=("eval_task", "eval_tasks")),
    Step("my file without a key", "headrace config check {files}/empty.yaml", status=2, says=("empty|sets no key",)),
    Step("what would the sample cost", "headrace run --dry-run", says=("sft1", "funnel|curate", "[0-9] (s|min)")),
    # ---- a small run of everything ----
    Step(
        "a small run, killed after twenty seconds",
        f"timeout --signal=KILL 20 headrace run --config configs/ci.yaml --store {FIRST}",
        status=137,
    ),
    Step(
        "the same command again",
        f"headrace run --config configs/ci.yaml --store {FIRST}",
        says=("acts", "refusals", "headrace chat"),
        makes=(f"{FIRST}/catalog.duckdb", "runs/first/report.html"),
    ),
    Step("a finished run only shows its end", f"headrace run --config configs/ci.yaml --store {FIRST}", says=("acts", "headrace chat")),
    Step("why was a query kept", f"headrace explain {{query}} --store {FIRST}", says=("task",)),
    Step(
        "why was row 7 dropped",
        f"headrace explain haystack.parquet:7 --store {FIRST} || headrace explain queries.parquet:7 --store {FIRST}",
    ),
    # ---- a world of their own, in English alone ----
    Step("a spec to start from", "headrace worlds new first.yaml", makes=("first.yaml",)),
    Step("does it hold", "headrace worlds check first.yaml", says=("tool_library",)),
    Step("a spec like the hotel", "headrace worlds new inn.yaml --like hotel", makes=("inn.yaml",)),
    Step("does that hold", "headrace worlds check inn.yaml"),
    Step("one that exists already", "headrace worlds new first.yaml", status=2, says=("first.yaml",)),
    Step("which worlds are there", "headrace worlds list", says=("hotel", "retail", "gen-")),
    Step("check my own", "headrace worlds check {files}/bike_hire.yaml", says=("bike_hire", "extend"), never=("[\u4e00-\u9fff]",)),
    Step("an entity with a typing error", "headrace worlds check {files}/unknown_entity.yaml", status=2, says=("statoin",)),
    Step("a rule that forbids nothing", "headrace worlds check {files}/idle_rule.yaml", status=2, says=("extension_limit", "[0-9]")),
    Step("an unknown name in an expression", "headrace worlds check {files}/bad_expression.yaml", status=2, says=("day",)),
    Step("too few rows", "headrace worlds check {files}/few_rows.yaml", status=2, says=("rows|row",)),
    Step("a tab in the file", "headrace worlds check {files}/tabbed.yaml", status=2, says=("tab|line [0-9]",)),
    Step(
        "conversations in a wrong world",
        f"headrace synthesize --world {{files}}/idle_rule.yaml --n 20 --store {MINE}",
        status=2,
        says=("extension_limit", "worlds check"),
    ),
    Step(
        "a task in it, and its plan",
        "printf 'task\\nsolve\\nquit\\n' | headrace worlds try {files}/bike_hire.yaml",
        says=("difficulty", "= "),
        never=("[\u4e00-\u9fff]",),
    ),
    Step(
        "what would 200 conversations cost",
        f"headrace synthesize --world {{files}}/bike_hire.yaml --n 200 --store {MINE} --dry-run",
        says=("synthesize",),
    ),
    Step(
        "200 conversations",
        f"headrace synthesize --world {{files}}/bike_hire.yaml --n 200 --store {MINE}",
        says=("200", "accepted", "headrace"),
        never=("[\u4e00-\u9fff]",),
        makes=(f"{MINE}/catalog.duckdb", "runs/mine/report.html"),
        is_first_product=True,
    ),
    Step("look at one", f"headrace explain {{trajectory}} --store {MINE}", says=("user", "assistant")),
    Step("its plan", f"headrace explain {{blueprint}} --store {MINE}"),
    Step("one that was not accepted", f"headrace explain {{calibration}} --store {MINE}", says=("not accepted: ",)),
    Step("a task", f"headrace explain {{task}} --store {MINE}"),
    Step("what came of a conversation", f"headrace lineage {{trajectory}} --store {MINE}"),
    Step("an id with a typing error", f"headrace explain trajectry-00 --store {MINE}", status=2),
    Step("a training set", f"headrace export --store {MINE} --out sets/trl", makes=("sets/trl/README.md", "sets/trl/SHA256SUMS")),
    Step(
        "read it as TRL's users do",
        "python -c \"import datasets, glob; d = datasets.load_dataset('parquet', data_files=glob.glob('sets/trl/*.conversations.parquet'));"
        " m = [c for r in d['train'] for t in r['messages'] for c in t.get('tool_calls') or []];"
        " assert all(isinstance(c['function']['arguments'], dict) for c in m), m[0]; print(len(m), 'calls')\"",
        says=("calls",),
    ),
    Step("the same for verl", f"headrace export --format verl --store {MINE} --out sets/verl", makes=("sets/verl/README.md",)),
    Step("the same for ROLL", f"headrace export --format roll --store {MINE} --out sets/roll", makes=("sets/roll/README.md",)),
    Step("over a folder that holds something else", f"headrace export --store {MINE} --out docs", status=2, says=("docs",)),
    # ---- a policy of their own ----
    Step("what would training cost", f"headrace train --config {{files}}/small.yaml --store {MINE} --dry-run", says=("sft1", "rl")),
    Step("chat before training", _CHAT, status=2, says=("train",)),
    Step(
        "train on it",
        f"headrace train --config {{files}}/small.yaml --store {MINE}",
        says=("acts", "refusals", "headrace chat", "promoted"),
        is_first_product=True,
    ),
    Step(
        "talk to it",
        f"printf '/task\\n\\n/changes\\n/quit\\n' | {_CHAT}",
        says=("I am r|rider|hire|bike",),
        never=("[\u4e00-\u9fff]",),
        is_first_product=True,
    ),
    Step("one question as JSON", f'{_CHAT} --say "When do the stations close?" --json', says=('"',)),
    Step("which tasks can it do", f"headrace tag --store {MINE} --config {{files}}/small.yaml", says=("always", "never")),
    Step("measure it again", f"headrace evaluate --policy latest --store {MINE} --config {{files}}/small.yaml", says=("acts",)),
    Step("is the last stage better than the first", f"headrace compare sft1 rl --store {MINE}", says=("95",)),
    Step("a rollout that failed", f"headrace explain {{failed}} --store {MINE}", says=("check|expected",)),
    Step("where does the policy come from", f"headrace lineage {{policy}} --store {MINE}", says=("bike_hire|release",)),
    Step("what is in a release", f"headrace explain {{release}} --store {MINE}"),
    Step("its training set", f"headrace export second --format trl --store {MINE} --out sets/second", makes=("sets/second/README.md",)),
    Step("more of what it fails at", f"headrace synthesize --focus failures --dry-run --store {MINE}"),
    Step(
        "the store in DuckDB",
        f"cd {MINE} && python -c \"import duckdb; duckdb.connect('catalog.read.duckdb', read_only=True).sql('FROM tags').show()\"",
    ),
    # ---- queries of their own ----
    Step("curate, without the column", f"headrace curate {{files}}/log.csv --store {LOGS}", status=2, says=("prompt", "--column")),
    Step("a file that is not there", f"headrace curate {{files}}/lgo.csv --store {LOGS}", status=2, says=("lgo.csv",)),
    Step(
        "a file that is no text", f"headrace curate {{files}}/not_text.jsonl --column prompt --store {LOGS}", status=2, says=("not_text",)
    ),
    Step(
        "what would it cost",
        f"headrace curate {{files}}/log.csv --column prompt --ungrounded --keep 60 --store {LOGS} --dry-run",
        says=("1,500",),
    ),
    Step(
        "curate",
        f"headrace curate {{files}}/log.csv --column prompt --ungrounded --keep 60 --store {LOGS}",
        says=("kept", "headrace"),
        makes=(f"{LOGS}/catalog.duckdb", "runs/logs/report.html"),
    ),
    Step(
        "next day's log", f"headrace curate {{files}}/more.jsonl.gz --column prompt --ungrounded --keep 60 --store {LOGS}", says=("kept",)
    ),
    Step("only new files", f"headrace curate {{files}}/log.csv --column prompt --new --store {LOGS}", says=("new|already|read",)),
    Step("why was row 3 dropped or kept", f"headrace explain log.csv:3 --store {LOGS}", says=("log.csv",)),
    Step("a query that was kept", f"headrace explain {{kept}} --store {LOGS}", says=("difficulty",)),
    Step("the queries as files", f"headrace export --queries --store {LOGS} --out sets/queries", makes=("sets/queries/README.md",)),
    Step("with my columns", "cat sets/queries/*.jsonl | head -3", says=("ticket", "channel", "stars")),
    Step("train on queries alone", f"headrace train --store {LOGS}", status=2, says=("synthesize|world",)),
    # ---- tools of their own, and a language model ----
    Step("clusters of my tools", f"headrace clusters build --tools {{files}}/tools.jsonl --store {TOOLS}", says=("clusters",)),
    Step("list them", f"headrace clusters list --store {TOOLS}"),
    Step("show one", f"headrace clusters show {{cluster}} --store {TOOLS}"),
    Step(
        "a model server that is not there",
        "OPENAI_BASE_URL=http://127.0.0.1:9/v1 OPENAI_API_KEY=x headrace doctor --engine openai:m",
        status=1,
        says=("127.0.0.1:9", "OPENAI_BASE_URL"),
    ),
    Step(
        "a model without a key",
        f"env -u OPENAI_API_KEY -u OPENAI_BASE_URL headrace synthesize --assistant openai:m --n 5 --store {MINE}",
        status=2,
        says=("OPENAI_API_KEY",),
    ),
    # ---- every day ----
    Step("server, worker and schedules", "headrace up", says=("http://",)),
    Step("stop them", "headrace down"),
    Step("an option with a typing error", "headrace curate --colunm prompt", status=2, says=("--column",)),
    Step("a command with a typing error", "headrace synthesise", status=2, says=("synthesize",)),
)
