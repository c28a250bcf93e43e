"""`headrace taxonomy`: show the tree that labels queries, edit it as YAML, let it grow with a store's queries."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import validation
from flows.cli.shared import Debug, NewestStore
from flows.cli.terminal import handle_errors, out, print_text

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
    help="""The taxonomy: a tree of classes for the topics of queries. Each query gets one leaf, or `other` if none fits.

A new store has the tree of Headrace's worlds. It keeps every later version and uses the newest. To change the tree by hand, `export` it,
edit the YAML and `import` it. To let it grow with your own queries, `evolve` it. Then curate again.""",
)

WriteStore = Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="Store to write to.")]
Annotator = Annotated[
    str | None,
    typer.Option(
        "--annotator", metavar="ENGINE", help="Language model that labels queries: openai:MODEL, vllm:MODEL or hf:FOLDER (default: none)."
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", metavar="N", min=1, help="Budget of the model in tokens. Run the command again with a larger budget to continue."
    ),
]
Which = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="Number of the version, from 1 (default: the newest).")]
QueryFiles = Annotated[
    list[str] | None, typer.Argument(metavar="[FILES]...", help="Query files instead of the store's queries: paths, patterns, URLs.")
]
Column = Annotated[str, typer.Option("--column", metavar="NAME", help="Column or key of the query in FILES.")]
Rows = Annotated[
    int,
    typer.Option(
        "--rows", metavar="N", min=100, max=200_000, help="Number of queries to draw at most; encoding them takes most of the time."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of all draws.")]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, max=100, help="Most rounds.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Build a new tree from the queries only, without the newest version.")]
EncoderFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="YAML configuration; its `curate.encoder` computes the vectors.")
]
OnlyShow = Annotated[bool, typer.Option("--dry-run", help="Show the result, but save no version.")]
_SHOWN = 12


@app.command()
def show(store: NewestStore = None, number: Which = None, debug: Debug = False) -> None:
    """Show the tree, with two counts per class: queries that it was evolved on, and distinct frames of the last curation.

    Example: headrace taxonomy show --store runs/mine/store
    """
    with handle_errors(debug):
        from filters.taxonomy.versions import version

        opened = validation.open_store(None, store)
        shown = version(opened, number)
        for line in (_head(shown), "", *_draw(shown, opened)):
            print_text(line)


@app.command()
def versions(store: NewestStore = None, debug: Debug = False) -> None:
    """List the versions of the tree in a store, with their origin and how well they fit the queries.

    Example: headrace taxonomy versions --store runs/mine/store
    """
    with handle_errors(debug):
        from filters.taxonomy.versions import versions as all_versions
        from flows.summaries.summary_tables import Table, print_table

        rows = [
            {
                "version": listed.position,
                "id": listed.tree.id,
                "from": listed.parent or "",
                "how": listed.origin,
                "leaves": len(listed.tree.leaves),
                "agreement": _share(listed.statistics.get("agreement")),
                "other": _share(listed.statistics.get("other")),
                "rows": f"{listed.statistics['rows']:,}" if "rows" in listed.statistics else "",
            }
            for listed in all_versions(validation.open_store(None, store))
        ]
        print_table(Table("taxonomy", f"Versions of the taxonomy: {len(rows)}", rows), out)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file to write; an existing file is not changed.")],
    store: NewestStore = None,
    number: Which = None,
    debug: Debug = False,
) -> None:
    """Write the tree as a YAML file to edit. The head of the file explains what you may change.

    Example: headrace taxonomy export mine.yaml --store runs/mine/store
    """
    with handle_errors(debug):
        from filters.taxonomy.versions import version
        from filters.taxonomy.yaml_form import dump
        from storage.errors import BadInput

        opened = validation.open_store(None, store)
        exported = version(opened, number)
        try:
            with file.open("x", encoding="utf-8") as target:
                target.write(dump(exported.tree))
        except FileExistsError:
            raise BadInput(f"{file} exists; name another file") from None
        except OSError as error:
            raise BadInput(f"{file}: cannot be written ({error.strerror})") from None
        print_text(f"wrote {file} ({_head(exported)}); edit it, then: headrace taxonomy import {file} --store {opened.root}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Edited YAML file.")],
    store: WriteStore,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file and list its new leaves.")] = False,
    debug: Debug = False,
) -> None:
    """Save an edited tree as the newest version of a store. A file with any error is refused, with line and node.

    Example: headrace taxonomy import mine.yaml --store runs/mine/store
    """
    with handle_errors(debug):
        from filters.taxonomy.versions import newest, save_version
        from filters.taxonomy.yaml_form import load
        from storage.store import Store

        opened, tree = Store(store), load(file)
        last = newest(opened)
        if tree.id == last.tree.id:
            print_text(f"{file}: nothing new; {_head(last)}")
            return
        before, after = ({leaf.id for leaf in version.leaves} for version in (last.tree, tree))
        for word, leaves in (("new", after - before), ("gone", before - after)):
            for leaf in sorted(leaves):
                print_text(f"{word:<5}{leaf}")
        if dry_run:
            print_text(f"{file}: {len(tree.leaves)} leaves, would follow {_head(last)}; nothing was written")
        else:
            print_text(f"{file}: {_head(save_version(opened, tree, 'edited'))}")


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
    """Let the tree grow with queries: label them, and make classes of similar queries in `other`, until the labels no longer change.

    The queries are those of FILES, or those in the store that remain after near-duplicate removal. Existing classes stay and get examples.
    New classes appear below the node whose `other` held their queries. Without --annotator a scripted annotator labels (rules and sentence
    vectors, no language model) and names new classes by their typical words: export the tree, rename them, import it. The store keeps the
    answers of a model, so a repeated command reuses them.

    Examples:

      headrace taxonomy evolve --store runs/mine/store --dry-run

      headrace taxonomy evolve 'logs/*.jsonl' --column request.text --store runs/mine/store --fresh

      headrace taxonomy evolve --store runs/mine/store --annotator openai:gpt-5-mini --max-tokens 2000000
    """
    with handle_errors(debug):
        from filters.taxonomy.evolve import EvolveConfig
        from filters.taxonomy.versions import newest, save_version, statistics_of
        from flows.config import read
        from storage.store import Store
        from synth.engines.encoder import encoder

        opened, encode = Store(store), encoder(read(config).curate.encoder)
        with _open_model(annotator, opened, max_tokens) as engine:
            texts = _read_texts(opened, files or [], column, rows, seed)
            last, settings = newest(opened), EvolveConfig(seed=seed, rounds=rounds)
            base = None if fresh else last.tree
            evolved, made_by = _grow(texts, encode, engine, base, settings)
        _print_evolution(evolved, {leaf.id for leaf in base.leaves} if base else set())
        _print_unusable(annotator, made_by.get("reasons", {}))
        if dry_run:
            print_text(f"nothing was written{' except the answers of the model' if engine else ''}")
        else:
            facts = statistics_of(evolved, settings) | ({"annotator": made_by} if made_by else {})
            saved = save_version(opened, evolved.tree, "induced" if fresh else "refined", facts)
            print_text(_head(saved) if saved.tree.id != last.tree.id else f"nothing new; {_head(last)}")


@app.command()
def agreement(
    store: WriteStore,
    annotator: Annotator = None,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=10, max=20_000, help="Number of generated requests.")] = 300,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the requests.")] = 0,
    max_tokens: MaxTokens = None,
    debug: Debug = False,
) -> None:
    """Measure the accuracy of a language model's labels and frames on generated requests with known meaning.

    Labels use the store's newest tree; frames are read as with `curate.ground.engine`. Without --annotator the command measures the
    scripted annotator and the parser, for comparison. Intervals are Wilson's, 95 %.

    Example: headrace taxonomy agreement --annotator vllm:Qwen/Qwen3-8B --store runs/mine/store
    """
    with handle_errors(debug):
        from functools import partial

        from filters.grounding.ground_model import read
        from filters.lexicon_worlds import lexicon_worlds
        from filters.taxonomy.agreement import generate_requests, measure_frames, measure_labels, parse_frames
        from filters.taxonomy.annotate import Scripted
        from filters.taxonomy.model_annotator import ModelAnnotator
        from filters.taxonomy.salient_terms import Corpus
        from filters.taxonomy.versions import newest
        from flows.runtime.progress import report, show_on_console
        from storage.store import Store
        from synth.engines.encoder import encode

        opened = Store(store)
        with _open_model(annotator, opened, max_tokens) as engine, show_on_console(out):
            requests = generate_requests(rows, seed)
            scripted = Scripted(encode, Corpus(request.norm for request in requests))
            read_frames = partial(read, engine, worlds=lexicon_worlds(), progress=report) if engine else parse_frames
            frames = measure_frames(read_frames, requests)
            labels = measure_labels(ModelAnnotator(engine, progress=report) if engine else scripted, requests, encode, newest(opened).tree)
        for kind, result in (("labels", labels), ("frames", frames)):
            print_text(f"{kind} of {annotator or 'the scripted annotator and parser'}: {_agreement_text(result)}")


def _read_texts(store: Store, files: list[str], column: str, rows: int, seed: int) -> list[str]:
    """Queries of the files; without files, of the store."""
    from filters.ingest import IngestConfig
    from filters.sample_queries import sample_files, sample_store

    return sample_files(files, IngestConfig(column=column), rows, seed) if files else sample_store(store, rows, seed)


def _grow(
    texts: list[str], encode: Encode, engine: Engine | None, base: Tree | None, settings: EvolveConfig
) -> tuple[Evolved, dict[str, Any]]:
    """Grow the tree `base` (None: an empty tree) with these texts. Also returns the facts about the model that labelled (empty: none)."""
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
def _open_model(name: str | None, store: Store, max_tokens: int | None) -> Iterator[Engine | None]:
    """Open the language model `name`; the store keeps its answers. Yields None without a name."""
    if name is None:
        yield None
    else:
        from filters.llm_calls import open_cached_engine
        from synth.engines.budget import Budget

        with open_cached_engine(store, name, Budget(tokens=max_tokens)) as engine:
            yield engine


# ---- output -----------------------------------------------------------------------------------------------------------


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _agreement_text(result: Agreement) -> str:
    low, high = result.interval
    misses = [f"{reason} {count:,}" for reason, count in result.misses.items()]
    rest = [*([", ".join(misses)] if misses else []), *([f"{result.unanswered:,} unanswered"] if result.unanswered else [])]
    return "; ".join([f"{result.right:,} of {result.of:,} right, {result.rate:.1%} ({low:.1%} to {high:.1%})", *rest])


def _head(version: Version) -> str:
    return f"version {version.position}, {version.origin}: {version.tree.id}, {len(version.tree.leaves)} leaves"


def _draw(version: Version, store: Store) -> list[str]:
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
        counts = (sum(count for label, count in label_counts.items() if is_below(label, node)) for label_counts in (evolved, curated))
        columns = "  ".join(f"{count:>{width},}" if count else " " * width for count, width in zip(counts, (10, 8), strict=True))
        lines.append(f"{columns}  {'  ' * node.count('.')}{node.rpartition('.')[2]}")
    return lines


def _print_evolution(evolved: Evolved, known: set[str]) -> None:
    for number, result in enumerate(evolved.rounds, 1):
        print_text(
            f"round {number}: agreement {result.agreement:.1%}, other {result.other:.1%}, {len(result.added)} new, "
            f"{len(result.merged)} groups merged into classes"
        )
    print_text(f"stopped: {evolved.stopped}")
    new = [leaf for leaf in evolved.tree.leaves if leaf.id not in known]
    for leaf in sorted(new, key=lambda leaf: (-evolved.counts.get(leaf.id, 0), leaf.id))[:_SHOWN]:
        print_text(f"new  {evolved.counts.get(leaf.id, 0):>7,}  {leaf.id}: {leaf.texts[0]}")
    if len(new) > _SHOWN:
        print_text(f"     and {len(new) - _SHOWN} more")


def _print_unusable(annotator: str | None, reasons: Mapping[str, int]) -> None:
    """Print why answers of the annotator were unusable, and how often."""
    if reasons:
        print_text(f"no usable answer of {annotator}: {', '.join(f'{reason} {count:,}' for reason, count in reasons.items())}")
