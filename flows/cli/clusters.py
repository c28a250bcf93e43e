"""`headrace clusters`: build business clusters from a catalogue of tools or from worlds, list them, show one.

Clusters of tools that no world executes are marked: `of no world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import validation
from flows.cli.shared import Debug, NewestStore
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from storage.records import Tool
    from synth.clusters.business_clusters import Cluster
    from synth.clusters.catalog import Catalogue
    from synth.clusters.cluster_store import SavedClusters

app = typer.Typer(
    no_args_is_help=True,
    help="""Business clusters: 3 to 12 tools that a real job uses together, with a graph of which tool feeds which.

They are built from the tools of worlds or from your own catalogue: names, descriptions and parameters are enough.""",
)

_SHOWN, _SUMMARY, _DROPPED_SHOWN = 20, 76, 8


@app.command()
def build(
    store: Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="Store to write the tools and clusters to.")],
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools",
            "-t",
            metavar="FILE",
            help="Catalogue (also .gz): JSONL, a list, {tools: [...]}, or a JSON-RPC answer; OpenAI or MCP.",
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="COMMAND", help="Live MCP server that is asked for its tools: a command, or a URL.")
    ] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option("--world", "-w", metavar="NAME", help="World whose tools are clustered too; gen-1..100 for a range; may be repeated."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Build the clusters of a catalogue, of worlds, or of both, and save them in a store.

    A row may name its server (`server`, `server_id`) and its business (`label`); its schemas may be missing or broken. Unusable rows are
    dropped and reported with their lines. Building the same tools again changes nothing. A world that was written for tools of the
    catalogue (`headrace worlds draft --cluster`, `worlds write --cluster`) takes their place.

    Examples:

      headrace clusters build --tools mcp_tools.jsonl.gz --store runs/tools/store

      headrace clusters build --tools mine.jsonl --world retail --world gen-1..20 --store runs/mine/store
    """
    with handle_errors(debug):
        from flows.runtime.progress import report, show_on_console
        from storage.report.page import write_report
        from storage.store import Store
        from synth.clusters.catalog import merge_tools
        from synth.clusters.cluster_store import save_clusters
        from synth.worlds import WORLDS

        names = validation.resolve_worlds(worlds or [])
        target = Store(store)
        catalogue = validation.read_tools(tools, names, server)
        all_tools = merge_tools([*(catalogue.tools if catalogue else ()), *(tool for name in names for tool in WORLDS[name].tools)])
        with show_on_console(out):
            saved = save_clusters(target, all_tools, progress=report)
        if catalogue is not None:
            _print_catalogue(catalogue)
        _print_saved(saved, all_tools, store)
        print_text(f"drawing: {write_report(target)}")


@app.command("list")
def list_(
    store: NewestStore = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only clusters of this domain.")] = None,
    limit: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of clusters, the best first.")] = _SHOWN,
    debug: Debug = False,
) -> None:
    """List the clusters of the last build in a store, those with the widest coverage first.

    Example: headrace clusters list --store runs/tools/store --domain "Travel & Maps"
    """
    with handle_errors(debug):
        from flows.summaries.summary_tables import Table, print_table
        from synth.clusters.cluster_store import read_clusters

        clusters = validation.require_clusters(read_clusters(validation.open_store(None, store), domain=domain), domain)
        rows = [
            {
                "cluster": cluster.id,
                "domain": cluster.domain,
                "tools": len(cluster.tool_ids),
                "edges": len(cluster.edges),
                "chain": _longest(cluster),
                "kind": _kind(cluster),
                "servers": ", ".join(_servers(cluster)),
            }
            for cluster in clusters[:limit]
        ]
        more = f", the first {limit:,}" if len(clusters) > limit else ""
        print_table(Table("clusters", f"Clusters: {len(clusters):,}{more} (chain: edges of the longest)", rows), out)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a cluster, or an unambiguous beginning of it.")],
    store: NewestStore = None,
    debug: Debug = False,
) -> None:
    """Show one cluster: its tools in a possible order of calls, and the values that they pass to each other.

    Example: headrace clusters show cluster-0123456789abcdef --store runs/tools/store
    """
    with handle_errors(debug):
        from synth.clusters.cluster_store import read_cluster

        cluster, tools = read_cluster(validation.open_store(None, store), id)
        for line in _draw(cluster, {tool.id: tool for tool in tools}):
            print_text(line)


# ---- output -----------------------------------------------------------------------------------------------------------


def _print_catalogue(catalogue: Catalogue) -> None:
    dropped = sum(reason.count for reason in catalogue.dropped)
    print_text(
        f"{catalogue.path}: {catalogue.rows:,} rows, {len(catalogue.tools):,} tools, {catalogue.copies:,} exact copies merged, "
        f"{dropped:,} dropped; {catalogue.unknown:,} with unknown parameters"
    )
    for reason in catalogue.dropped[:_DROPPED_SHOWN]:
        first = catalogue.unit if reason.count == 1 else f"first in {catalogue.unit}"
        print_text(f"  dropped {reason.count:,}: {reason.reason} ({first} {reason.line:,})")


def _print_saved(saved: SavedClusters, tools: Sequence[Tool], store: Path) -> None:
    from synth.clusters.world_plans import count_covered_plans, plans_of

    covered = {tool for cluster in saved.clusters for tool in cluster.tool_ids}
    executable = sum(cluster.world is not None for cluster in saved.clusters)
    spanning = sum(len(_servers(cluster)) > 1 for cluster in saved.clusters)
    print_text(
        f"clusters: {len(saved.clusters):,}, with {len(covered):,} of {len(tools):,} tools ({len(covered) / len(tools):.0%}); "
        f"{executable:,} executable, {len(saved.clusters) - executable:,} of no world; {spanning:,} span servers"
        + ("" if saved.is_new else " (the store has them already; `list` and the drawing show the last build)")
    )
    if plans := plans_of(tools):
        complete = count_covered_plans(plans, [cluster.tool_ids for cluster in saved.clusters])
        out.print(
            f"intents of worlds: {complete:,} of {len(plans):,} ({complete / len(plans):.0%}) have all tools of their plan in one cluster"
        )
    commands = (f"list --store {store}", f"show {saved.clusters[0].id} --store {store}")
    for lead, command in zip(("see them:", "         "), commands, strict=True):
        print_text(f"{lead} headrace clusters {command}")


def _draw(cluster: Cluster, tools: dict[str, Tool]) -> list[str]:
    from synth.clusters.edges import chain_depths

    level = chain_depths(cluster.tool_ids, cluster.edges)
    order = sorted(cluster.tool_ids, key=lambda tool: (level[tool], tool))
    is_spanning = len(_servers(cluster)) > 1
    number = {tool: place for place, tool in enumerate(order, 1)}
    label = {tool: tool if is_spanning else tools[tool].name for tool in order}
    width = max(map(len, label.values()))
    lines = [
        f"{cluster.id}  {cluster.domain}  {_kind(cluster)}",
        f"{len(order)} tools of {', '.join(_servers(cluster))}; {len(cluster.edges)} edges, longest chain {_longest(cluster)}",
        "",
    ]
    for tool in order:
        description = " ".join(tools[tool].description.split())
        summary = description if len(description) <= _SUMMARY else description[: _SUMMARY - 1] + "…"
        mark = "*" if tools[tool].changes_state else " "
        lines.append(f"{number[tool]:>3} {label[tool]:<{width}} {mark} {summary}".rstrip())
        out_edges = sorted((edge for edge in cluster.edges if edge.source == tool), key=lambda edge: number[edge.target])
        lines += [f"      └─ {edge.entity} → {number[edge.target]} {label[edge.target]}  ({edge.score:.2f})" for edge in out_edges]
    return [*lines, "", "* changes state"] if any(tools[tool].changes_state for tool in order) else lines


def _longest(cluster: Cluster) -> int:
    from synth.clusters.edges import chain_depths

    return max(chain_depths(cluster.tool_ids, cluster.edges).values())


def _kind(cluster: Cluster) -> str:
    return f"executable in {cluster.world}" if cluster.world else "of no world"


def _servers(cluster: Cluster) -> list[str]:
    return sorted({tool.partition(".")[0] for tool in cluster.tool_ids})
