"""`headrace taxonomy`: look at the tree that queries are labelled with, edit it as YAML, let it grow with a store's queries."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import validation
from flows.cli.terminal import out, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from filters.taxonomy.agreement import Agreement
    from filters.taxonomy.evolve import EvolveConfig, Evolved
    from filters.taxonomy.tree import Tree
    from filters.taxonomy.versions import Version
    from storage.store import Store
    from synth.engines.base import Engine
    from synth.engines.encoder import Encode

app = typer.Typer(
    no_args_is_help=True,
    help="""The taxonomy: the tree of classes that tells what queries are about, a leaf a query, `other` where none fits.

A store begins with the tree of the worlds that come with Headrace, and keeps each later version; the newest counts. To change it by
hand: `export` it, edit the YAML, `import` it. To let it grow with your own queries: `evolve`. Then curate again.""",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
ReadStore = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to read (default: the newest under runs/).")]
WriteStore = Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="Store that keeps what comes of it.")]
Annotator = Annotated[
    str | None,
    typer.Option("--annotator", metavar="ENGINE", help="Language model that reads: openai:MODEL, vllm:MODEL or hf:FOLDER (default: none)."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", metavar="N", min=1, help="Tokens that the model may cost; then it stops; called again with more, it goes on."
    ),
]
Which = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="Which version, from 1 on (default: the newest).")]
QueryFiles = Annotated[
    list[str] | None, typer.Argument(metavar="[FILES]...", help="Query files instead of the store's queries: paths, patterns, URLs.")
]
Column = Annotated[str, typer.Option("--column", metavar="NAME", help="Column or key that holds the query in FILES.")]
Rows = Annotated[
    int, typer.Option("--rows", metavar="N", min=100, max=200_000, help="Queries at most, drawn; encoding them takes longest.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of all draws.")]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, max=100, help="Rounds at most.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Induce a tree from the queries alone, whatever the newest is.")]
EncoderFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="YAML configuration whose `curate.encoder` makes the vectors.")
]
OnlyShow = Annotated[bool, typer.Option("--dry-run", help="Show what would come of it, and keep no version.")]
_SHOWN = 12


@app.command()
def show(store: ReadStore = None, number: Which = None, debug: Debug = False) -> None:
    """Show the tree, with the rows of every class: those it was evolved on, and the distinct frames of the last curation.

    Example: headrace taxonomy show --store runs/mine/store
    """
    with told(debug):
        from filters.taxonomy.versions import version

        opened = validation.readable(None, store)
        shown = version(opened, number)
        for line in (_head(shown), "", *_drawn(shown, opened)):
            _say(line)


@app.command()
def versions(store: ReadStore = None, debug: Debug = False) -> None:
    """List the versions of the tree in a store: how each came from the one before, and how well it fitted.

    Example: headrace taxonomy versions --store runs/mine/store
    """
    with told(debug):
        from filters.taxonomy.versions import versions as all_of
        from flows.summary_tables import Table, draw

        rows = [
            {
                "version": each.position,
                "id": each.tree.id,
                "from": each.parent or "",
                "how": each.origin,
                "leaves": len(each.tree.leaves),
                "agreement": _share(each.statistics.get("agreement")),
                "other": _share(each.statistics.get("other")),
                "rows": f"{each.statistics['rows']:,}" if "rows" in each.statistics else "",
            }
            for each in all_of(validation.readable(None, store))
        ]
        draw(Table("taxonomy", f"Versions of the taxonomy: {len(rows)}", rows), out)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file to write; one that exists is left alone.")],
    store: ReadStore = None,
    number: Which = None,
    debug: Debug = False,
) -> None:
    """Write the tree as a YAML file to edit; its head says what may be changed.

    Example: headrace taxonomy export mine.yaml --store runs/mine/store
    """
    with told(debug):
        from filters.taxonomy.versions import version
        from filters.taxonomy.yaml_form import dump
        from storage.errors import BadInput

        opened = validation.readable(None, store)
        written = version(opened, number)
        try:
            with file.open("x", encoding="utf-8") as target:
                target.write(dump(written.tree))
        except FileExistsError:
            raise BadInput(f"{file} exists; name another file") from None
        except OSError as error:
            raise BadInput(f"{file}: cannot be written ({error.strerror})") from None
        _say(f"wrote {file} ({_head(written)}); edit it, then: headrace taxonomy import {file} --store {opened.root}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An edited YAML file.")],
    store: WriteStore,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file, and say what is new in it.")] = False,
    debug: Debug = False,
) -> None:
    """Keep an edited tree as the newest version of a store; refused whole, with line and node, where anything in it is wrong.

    Example: headrace taxonomy import mine.yaml --store runs/mine/store
    """
    with told(debug):
        from filters.taxonomy.versions import keep, newest
        from filters.taxonomy.yaml_form import load
        from storage.store import Store

        opened, tree = Store(store), load(file)
        last = newest(opened)
        if tree.id == last.tree.id:
            _say(f"{file}: nothing new; {_head(last)}")
            return
        before, after = ({leaf.id for leaf in each.leaves} for each in (last.tree, tree))
        for word, leaves in (("new", after - before), ("gone", before - after)):
            for leaf in sorted(leaves):
                _say(f"{word:<5}{leaf}")
        if dry_run:
            _say(f"{file}: {len(tree.leaves)} leaves, would follow {_head(last)}; nothing was written")
        else:
            _say(f"{file}: {_head(keep(opened, tree, 'edited'))}")


@app.command()
def evolve(
    store: WriteStore,
    files: QueryFiles = None,
    column: Column = "text",
    rows: Rows = 5_000,
    seed: Seed = 0,
    rounds: Rounds = 10,
    fresh: Fresh = False,
    config: EncoderFile = None,
    annotator: Annotator = None,
    max_tokens: MaxTokens = None,
    dry_run: OnlyShow = False,
    debug: Debug = False,
) -> None:
    """Let the tree grow with queries: label them, feed back, make classes of what is coherent in `other`, until the labels stand still.

    The queries are the survivors of near duplicates that the store holds, or those of FILES. Classes that are there stay; they take up
    examples, and new ones appear below the node whose `other` they came from. Without --annotator the annotator is scripted (rules and
    sentence vectors, no language model), so new classes are named by their salient words: export the tree, name them, import it. What a
    model answers is kept in the store, and paid for once.

    Examples:

      headrace taxonomy evolve --store runs/mine/store --dry-run

      headrace taxonomy evolve 'logs/*.jsonl' --column request.text --store runs/mine/store --fresh

      headrace taxonomy evolve --store runs/mine/store --annotator openai:gpt-5-mini --max-tokens 2000000
    """
    with told(debug):
        from filters.taxonomy.evolve import EvolveConfig
        from filters.taxonomy.versions import keep, newest, statistics_of
        from flows.config import read
        from storage.store import Store
        from synth.engines.encoder import encoder

        opened, encode = Store(store), encoder(read(config).curate.encoder)
        with _model(annotator, opened, max_tokens) as engine:
            texts = _texts(opened, files or [], column, rows, seed)
            last, settings = newest(opened), EvolveConfig(seed=seed, rounds=rounds)
            base = None if fresh else last.tree
            evolved, made_by = _grow(texts, encode, engine, base, settings)
        _tell(evolved, {leaf.id for leaf in base.leaves} if base else set())
        _tell_unusable(annotator, made_by.get("reasons", {}))
        if dry_run:
            _say(f"nothing was written{' but the answers of the model' if engine else ''}")
        else:
            facts = statistics_of(evolved, settings) | ({"annotator": made_by} if made_by else {})
            kept = keep(opened, evolved.tree, "induced" if fresh else "refined", facts)
            _say(_head(kept) if kept.tree.id != last.tree.id else f"nothing new; {_head(last)}")


@app.command()
def agreement(
    store: WriteStore,
    annotator: Annotator = None,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=10, max=20_000, help="Generated requests that are asked about.")] = 300,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the requests.")] = 0,
    max_tokens: MaxTokens = None,
    debug: Debug = False,
) -> None:
    """Measure how right a language model's labels and frames are, on generated requests whose meaning is known.

    Labels by the store's newest tree; frames as `curate.ground.engine` would have the model read them. Without --annotator the scripted
    annotator and the parser are measured, to compare with. Intervals are Wilson's, 95 %.

    Example: headrace taxonomy agreement --annotator vllm:Qwen/Qwen3-8B --store runs/mine/store
    """
    with told(debug):
        from functools import partial

        from filters.grounding.ground_model import read as read_with
        from filters.taxonomy.agreement import known, of_frames, of_labels, parsed
        from filters.taxonomy.annotate import Scripted
        from filters.taxonomy.model_annotator import ModelAnnotator
        from filters.taxonomy.salient_terms import Corpus
        from filters.taxonomy.versions import newest
        from flows.runtime.progress import report, show_on_console
        from storage.store import Store
        from synth.engines.encoder import encode

        opened = Store(store)
        with _model(annotator, opened, max_tokens) as engine, show_on_console(out):
            asked = known(rows, seed)
            scripted = Scripted(encode, Corpus(one.norm for one in asked))
            frames = of_frames(partial(read_with, engine, progress=report) if engine else parsed, asked)
            labels = of_labels(ModelAnnotator(engine, progress=report) if engine else scripted, asked, encode, newest(opened).tree)
        for what, found in (("labels", labels), ("frames", frames)):
            _say(f"{what} of {annotator or 'the scripted annotator and parser'}: {_agreed(found)}")


def _texts(store: Store, files: list[str], column: str, rows: int, seed: int) -> list[str]:
    """Queries of the files, or where none are named, of the store."""
    from filters.ingest import IngestConfig
    from filters.taxonomy.sample import of_files, of_store

    return of_files(files, IngestConfig(column=column), rows, seed) if files else of_store(store, rows, seed)


def _grow(
    texts: list[str], encode: Encode, engine: Engine | None, base: Tree | None, settings: EvolveConfig
) -> tuple[Evolved, dict[str, Any]]:
    """The tree that grows from `base` (None: from nothing) with these texts, and which model annotated them (empty: none did)."""
    from filters.taxonomy.annotate import Scripted
    from filters.taxonomy.evolve import evolve
    from filters.taxonomy.model_annotator import ModelAnnotator
    from filters.taxonomy.salient_terms import Corpus
    from flows.runtime.progress import report, show_on_console

    with show_on_console(out):
        report("encode", 0, 1)
        vectors = encode(texts)
        report("encode", 1, 1)
        annotator = ModelAnnotator(engine, progress=report) if engine else Scripted(encode, Corpus(texts))
        evolved = evolve(texts, vectors, annotator, base, settings, progress=report)
    return evolved, annotator.made_by if isinstance(annotator, ModelAnnotator) else {}


@contextlib.contextmanager
def _model(name: str | None, store: Store, max_tokens: int | None) -> Iterator[Engine | None]:
    """The language model of this name, whose answers the store keeps; None where none is named."""
    if name is None:
        yield None
    else:
        from filters.llm_calls import kept_engine
        from synth.engines.budget import Budget

        with kept_engine(store, name, Budget(tokens=max_tokens)) as engine:
            yield engine


# ---- what is said -----------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _agreed(found: Agreement) -> str:
    low, high = found.interval
    misses = [f"{why} {count:,}" for why, count in found.misses.items()]
    rest = [*([", ".join(misses)] if misses else []), *([f"{found.unanswered:,} unanswered"] if found.unanswered else [])]
    return "; ".join([f"{found.right:,} of {found.of:,} right, {found.rate:.1%} ({low:.1%} to {high:.1%})", *rest])


def _head(version: Version) -> str:
    return f"version {version.position}, {version.origin}: {version.tree.id}, {len(version.tree.leaves)} leaves"


def _drawn(version: Version, store: Store) -> list[str]:
    from filters.taxonomy.tree import is_below

    evolved: dict[str, int] = version.statistics.get("counts", {})
    frames = store.query(
        """SELECT leaf, count(*) AS frames FROM frames
           WHERE run = (SELECT run FROM frames JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1) GROUP BY leaf"""
    )
    curated: dict[str, int] = dict(frames.iter_rows())
    nodes = [*(node.id for node in version.tree.nodes), *(label for label in {**evolved, **curated} if label.split(".")[-1] == "other")]
    lines = [f"{'evolved on':>10}  {'frames':>8}"]
    for node in sorted(set(nodes), key=lambda node: (node == "other", node.split("."))):
        counts = (sum(count for label, count in found.items() if is_below(label, node)) for found in (evolved, curated))
        told = "  ".join(f"{count:>{width},}" if count else " " * width for count, width in zip(counts, (10, 8), strict=True))
        lines.append(f"{told}  {'  ' * node.count('.')}{node.rpartition('.')[2]}")
    return lines


def _tell(evolved: Evolved, known: set[str]) -> None:
    for number, each in enumerate(evolved.rounds, 1):
        _say(
            f"round {number}: agreement {each.agreement:.1%}, other {each.other:.1%}, {len(each.added)} new, "
            f"{len(each.merged)} groups taken up"
        )
    _say(f"stopped: {evolved.stopped}")
    new = [leaf for leaf in evolved.tree.leaves if leaf.id not in known]
    for leaf in sorted(new, key=lambda leaf: (-evolved.counts.get(leaf.id, 0), leaf.id))[:_SHOWN]:
        _say(f"new  {evolved.counts.get(leaf.id, 0):>7,}  {leaf.id}: {leaf.texts[0]}")
    if len(new) > _SHOWN:
        _say(f"     and {len(new) - _SHOWN} more")


def _tell_unusable(annotator: str | None, reasons: Mapping[str, int]) -> None:
    """What was wrong with answers of the annotator, and how often."""
    if reasons:
        _say(f"no usable answer of {annotator}: {', '.join(f'{why} {count:,}' for why, count in reasons.items())}")
