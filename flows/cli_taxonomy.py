"""`headrace taxonomy`: look at the tree that queries are labelled with, edit it as YAML, let it grow with a store's queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import checks
from flows.terminal import out, told

if TYPE_CHECKING:
    from filters.taxonomy.evolve import Evolved
    from filters.taxonomy.versions import Version
    from storage.store import Store

app = typer.Typer(
    no_args_is_help=True,
    help="""The taxonomy: the tree of classes that tells what queries are about, a leaf a query, `other` where none fits.

A store begins with the tree of the worlds that come with Headrace, and keeps each later version; the newest counts. To change it by
hand: `export` it, edit the YAML, `import` it. To let it grow with your own queries: `evolve`. Then curate again.""",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
ReadStore = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to read (default: the newest under runs/).")]
WriteStore = Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="Store that keeps the version.")]
Which = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="Which version, from 1 on (default: the newest).")]
_SHOWN = 12


@app.command()
def show(store: ReadStore = None, number: Which = None, debug: Debug = False) -> None:
    """Show the tree, with the rows of every class: those it was evolved on, and the distinct frames of the last curation.

    Example: headrace taxonomy show --store runs/mine/store
    """
    with told(debug):
        from filters.taxonomy.versions import version

        opened = checks.readable(None, store)
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
        from flows.tables import Table, draw

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
            for each in all_of(checks.readable(None, store))
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

        opened = checks.readable(None, store)
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
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILES]...", help="Query files instead of the store's queries: paths, patterns, URLs."),
    ] = None,
    column: Annotated[str, typer.Option("--column", metavar="NAME", help="Column or key that holds the query in FILES.")] = "text",
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=100, max=200_000, help="Queries at most, drawn; encoding them takes longest.")
    ] = 5_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of all draws.")] = 0,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=1, max=100, help="Rounds at most.")] = 10,
    fresh: Annotated[bool, typer.Option("--fresh", help="Induce a tree from the queries alone, whatever the newest is.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="YAML configuration whose `curate.encoder` makes the vectors.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come of it, and keep nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Let the tree grow with queries: label them, feed back, make classes of what is coherent in `other`, until the labels stand still.

    The queries are the survivors of near duplicates that the store holds, or those of FILES. Classes that are there stay; they take up
    examples, and new ones appear below the node whose `other` they came from. The annotator is scripted (rules and sentence vectors, no
    language model), so new classes are named by their salient words: export the tree, name them, import it.

    Examples:

      headrace taxonomy evolve --store runs/mine/store --dry-run

      headrace taxonomy evolve 'logs/*.jsonl' --column request.text --store runs/mine/store --fresh
    """
    with told(debug):
        from filters.ingest import IngestConfig
        from filters.taxonomy.annotate import Scripted
        from filters.taxonomy.evolve import EvolveConfig
        from filters.taxonomy.evolve import evolve as grow
        from filters.taxonomy.sample import of_files, of_store
        from filters.taxonomy.terms import Corpus
        from filters.taxonomy.versions import keep, newest, statistics_of
        from flows.config import read
        from flows.progress import on_console, report
        from storage.store import Store
        from synth.encoder import encoder

        opened, encode = Store(store), encoder(read(config).curate.encoder)
        texts = of_files(files, IngestConfig(column=column), rows, seed) if files else of_store(opened, rows, seed)
        last, settings = newest(opened), EvolveConfig(seed=seed, rounds=rounds)
        base = None if fresh else last.tree
        with on_console(out):
            report("encode", 0, 1)
            vectors = encode(texts)
            report("encode", 1, 1)
            evolved = grow(texts, vectors, Scripted(encode, Corpus(texts)), base, settings, progress=report)
        _tell(evolved, {leaf.id for leaf in base.leaves} if base else set())
        if dry_run:
            _say("nothing was written")
        else:
            kept = keep(opened, evolved.tree, "induced" if fresh else "refined", statistics_of(evolved, settings))
            _say(_head(kept) if kept.tree.id != last.tree.id else f"nothing new; {_head(last)}")


# ---- what is said -----------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


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
