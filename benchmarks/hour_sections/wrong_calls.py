"""Wrong calls of `headrace`, each refused: how long the longest refusal is.

error_lines_max: lines of the longest refusal on stderr, of all calls of `WRONG_CALLS`, as a terminal of 80 columns shows it.
The calls run in this process, in a folder of files that are wrong in one way each. A call counts only if it is refused with exit code 1 or
2 and says what `says` expects: the wrong thing by its name.
It does not measure whether a refusal helps: `tests/flows/cli/test_wrong_calls.py` looks for the words.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from benchmarks.harness import Deadline, Figures
from flows.cli.main import app
from storage.record_rows import tasks_frame
from storage.store import Store, part_id
from synth.blueprints.single_goal import draw_drills
from synth.clusters.business_clusters import ClusterConfig, cluster_tools
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS

KEYS = ("error_lines_max",)
MINUTES = 2
_COLUMNS = 80


@dataclass(frozen=True)
class WrongCall:
    """A call that must be refused.

    arguments: what follows `headrace`, as in a shell.
    says: regular expression that the refusal must match.
    """

    arguments: str
    says: str


@dataclass(frozen=True)
class Refusal:
    """How a call was refused: its exit code and what it wrote to stderr."""

    code: int
    text: str

    @property
    def lines(self) -> int:
        """Lines on a terminal of 80 columns, which breaks long lines anywhere."""
        return sum(max(1, -(-len(line) // _COLUMNS)) for line in self.text.splitlines())


WRONG_CALLS: tuple[WrongCall, ...] = (
    # options and arguments
    WrongCall("trian", r"No such command 'trian'. Did you mean 'train'\?"),
    WrongCall("worlds tyr retail", r"No such command 'tyr'"),
    WrongCall("--verison", r"No such option: --verison"),
    WrongCall("train --stor small", r"No such option: --stor .*--store"),
    WrongCall("curate log.jsonl --keep", r"'--keep' requires an argument"),
    WrongCall("synthesize --n many", r"'--n'.*integer"),
    WrongCall("synthesize --n 0", r"'--n'.*greater than or equal to 1"),
    WrongCall("chat --temperature hot", r"'--temperature'.*number"),
    WrongCall("chat --seed -1", r"'--seed'.*greater than or equal to 0"),
    WrongCall("export --format onnx", r"'onnx' is not one of 'trl', 'verl', 'roll'"),
    WrongCall("synthesize --focus luck", r"'--focus'"),
    WrongCall("synthesize --usd-per-million 1", r"'--usd-per-million' requires 2 arguments"),
    WrongCall("lineage", r"Missing argument 'ID\|FILE:ROW'"),
    WrongCall("explain", r"Missing argument 'ID\|FILE:ROW'"),
    WrongCall("config check", r"Missing argument 'FILE'"),
    WrongCall("train now --store small", r"unexpected extra argument"),
    WrongCall("synthesize --preview 3 --dry-run --store new", r"--preview .*--dry-run"),
    WrongCall("chat --store small --say ''", r"--say is empty|no promoted policy"),
    # configuration files
    WrongCall("train --config nowhere.yaml", r"nowhere\.yaml: no such configuration file"),
    WrongCall("train --config good.yml", r"did you mean good\.yaml\?"),
    WrongCall("run --config empty.yaml", r"empty\.yaml: the file is empty"),
    WrongCall("config check comments.yaml", r"comments\.yaml: the file is empty or has only comments"),
    WrongCall("train --config tabs.yaml", r"tabs\.yaml:2: not valid YAML"),
    WrongCall("train --config list.yaml", r"list\.yaml:1: a configuration is a mapping"),
    WrongCall("train --config twice.yaml", r"twice\.yaml:3: the key `seed` is given twice"),
    WrongCall("train --config typo.yaml", r"typo\.yaml:2: unknown key `train\.epochz`"),
    WrongCall("train --config range.yaml", r"range\.yaml:2: `train\.max_difficulty`"),
    WrongCall("train --config kinds.yaml", r"kinds\.yaml:2: `train\.probe_tasks`.*; and \d+ more|kinds\.yaml:2: `train\.probe_tasks`"),
    WrongCall("run --config binary.bin", r"binary\.bin: cannot be read as UTF-8"),
    WrongCall("run --config folder", r"folder: cannot be read"),
    WrongCall("train --config other_world.yaml --store small", r"train\.worlds is hotel, but the tasks of .* are in banking"),
    WrongCall("tag --config easy.yaml --store small", r"train\.max_difficulty is -1, but the easiest task"),
    WrongCall("train --config no_world.yaml", r"no world is called 'retial'; did you mean 'retail'\?"),
    # stores
    WrongCall("train --store nowhere", r"nowhere is not a store yet"),
    WrongCall("export --store folder", r"folder holds note\.txt, which is not of a store"),
    WrongCall("evaluate --store log.jsonl", r"log\.jsonl cannot be a store"),
    WrongCall("tag --store broken", r"catalog\.read\.duckdb cannot be opened"),
    WrongCall("lineage policy-1", r"no store under runs/"),
    WrongCall("curate log.jsonl --store .", r"holds \S+, which is not of a store|needs a separate folder"),
    WrongCall("taxonomy show --store nowhere", r"nowhere is not a store yet"),
    WrongCall("compare sft1 rl --store small", r"has no policy sft1; it has none"),
    # names and ids
    WrongCall("chat --store small", r"no promoted policy"),
    WrongCall("chat --store small --policy sft9", r"has no policy sft9"),
    WrongCall("evaluate --store small --policy policy-0000000000000000", r"has no policy policy-0000000000000000"),
    WrongCall("tag --store small --policy gpt:4", r"gpt:4"),
    WrongCall("synthesize --world retial --store new", r"no world is called 'retial'; did you mean 'retail'\?"),
    WrongCall("synthesize --world gen-9..3 --store new", r"'gen-9\.\.3' is no range"),
    WrongCall("worlds try atlantis", r"no world is called 'atlantis'"),
    WrongCall("lineage task-0000000000000000 --store small", r"task-0000000000000000"),
    WrongCall("explain q-00000000-00000000 --store small", r"q-00000000-00000000"),
    WrongCall("explain log.jsonl:7 --store small", r"log\.jsonl:7: .*no such row"),
    WrongCall("export gold --store small", r"gold"),
    WrongCall("clusters show cluster-1 --store small", r"no cluster cluster-1"),
    WrongCall("clusters list --store small --domain moon", r"no clusters of the domain 'moon'"),
    # query files
    WrongCall("curate nowhere.jsonl --store new", r"nowhere\.jsonl"),
    WrongCall("curate 'nowhere/*.jsonl' --store new", r"nowhere/\*\.jsonl"),
    WrongCall("curate log.jsonl --column prompt --store new", r"prompt"),
    WrongCall("curate empty.jsonl --store new", r"empty\.jsonl"),
    WrongCall("curate binary.bin --store new", r"binary\.bin"),
    WrongCall("curate false.parquet --store new", r"false\.parquet"),
    WrongCall("curate folder --store new", r"folder"),
    WrongCall("curate log.jsonl --keep few --store new", r"--keep few: give a number of queries"),
    WrongCall("curate log.jsonl --keep 2/10 --store new", r"--keep 2/10: give a number of queries"),
    WrongCall("curate log.jsonl --held-out nowhere.csv --store new", r"nowhere\.csv"),
    # tools, specs, other files
    WrongCall("synthesize --tools nowhere.jsonl --store new", r"nowhere\.jsonl"),
    WrongCall("synthesize --tools log.jsonl --store new", r"log\.jsonl"),
    WrongCall("synthesize --world nowhere.yaml --store new", r"nowhere\.yaml: .*no such file"),
    WrongCall("synthesize --world empty.yaml --store new", r"empty\.yaml"),
    WrongCall("clusters build --store new", r"no tools are named: give a catalogue"),
    WrongCall("worlds new good.yaml", r"good\.yaml exists; name another file"),
    WrongCall("run --families log.jsonl --store new", r"log\.jsonl"),
    # language models and servers
    WrongCall("synthesize --assistant openai: --store new", r"openai:"),
    WrongCall("synthesize --assistant hf:nowhere --store new", r"nowhere"),
    WrongCall("evaluate --store small --policy hf:folder", r"folder"),
    WrongCall("render verl --store small --model nowhere --adapter a.B --out rendered", r"no release rl"),
)


def measure(_: Deadline) -> Figures:
    with TemporaryDirectory() as folder:
        refusals = dict(refuse_all(Path(folder)))
    faults = [f"headrace {call.arguments}: {fault}" for call, refusal in refusals.items() if (fault := find_fault(call, refusal))]
    if faults:
        raise AssertionError("; ".join(faults))
    return {"error_lines_max": max(refusal.lines for refusal in refusals.values())}


def find_fault(call: WrongCall, refusal: Refusal) -> str:
    """What is wrong with a refusal; empty if nothing is."""
    if refusal.code not in (1, 2):
        return f"exit code {refusal.code}"
    if not re.search(call.says, refusal.text):
        return f"does not say {call.says}: {refusal.text.strip()}"
    if "unexpected" in refusal.text and "unexpected extra argument" not in refusal.text:
        return f"an error that nobody planned: {refusal.text.strip()}"
    return ""


def refuse_all(folder: Path) -> Iterator[tuple[WrongCall, Refusal]]:
    """Make the wrong files in `folder`, and make each call there."""
    write_wrong_files(folder)
    with contextlib.chdir(folder):
        for call in WRONG_CALLS:
            yield call, refuse(call)


def refuse(call: WrongCall) -> Refusal:
    """Make a call in the working folder, without a server or key of the user's environment."""
    hidden = {name: None for name in os.environ if name.startswith(("OPENAI_", "PREFECT_API"))}
    result = CliRunner().invoke(app, shlex.split(call.arguments), env=hidden)
    return Refusal(result.exit_code, result.stderr)


def write_wrong_files(folder: Path) -> None:
    """Files and folders that are wrong in one way each, and the store `small` with tasks in banking only."""
    texts = {
        "empty.yaml": "",
        "comments.yaml": "# train:\n#   seed: 1\n",
        "good.yaml": "train: {worlds: [banking]}\n",
        "tabs.yaml": "train:\n\tseed: 1\n",
        "list.yaml": "- train\n",
        "twice.yaml": "train:\n  seed: 1\n  seed: 2\n",
        "typo.yaml": "train:\n  epochz: 3\n",
        "range.yaml": "train:\n  max_difficulty: 9\n",
        "kinds.yaml": "train:\n  probe_tasks: many\n  eval_tasks: 0\n  seed: -1\n  backend: moon\n  language: fr\n",
        "other_world.yaml": "train: {worlds: [hotel]}\n",
        "easy.yaml": "train: {max_difficulty: -1, worlds: [banking]}\n",
        "no_world.yaml": "train: {worlds: [retial]}\n",
        "log.jsonl": '{"text": "Close order o17 please!"}\n',
        "empty.jsonl": "",
        "false.parquet": "this is no Parquet\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 8)
    for name, content in (("folder/note.txt", b"a note\n"), ("broken/catalog.read.duckdb", b"no database")):
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(content)
    world, store = WORLDS["banking"], Store(folder / "small")
    drills = draw_drills(world, 3, cluster_tools(world.tools, ClusterConfig()), STANDARD, seed=0)
    tasks = tasks_frame([drill.task.model_copy(update={"difficulty": 1}) for drill in drills])
    store.commit([store.write("tasks", part_id("tasks", ["banking"], {}, 1), tasks)])
