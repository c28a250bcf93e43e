"""`headrace clusters`: build business clusters from tools of anywhere, list them, show one.

Clusters of tools that no world executes are marked: `simulated only`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import validation
from flows.cli.terminal import out, told

if TYPE_CHECKING:
    from storage.records import Tool
    from synth.clusters.business_clusters import Cluster
    from synth.clusters.catalog import Catalogue
    from synth.clusters.cluster_store import Kept

app = typer.Typer(
    no_args_is_help=True,
    help="""Business clusters: 3 to 12 tools that a real job would use together, with the graph of which tool feeds which.

They are found in the tools of worlds, or in a catalogue of your own: names, descriptions and parameters are enough.""",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
ReadStore = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to read (default: the newest under runs/).")]
_SHOWN, _SUMMARY, _DROPPED_SHOWN = 20, 76, 8


@app.command()
def build(
    store: Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="Store to write the tools and clusters to.")],
    tools: Annotated[
        Path | None,
        typer.Option("--tools", "-t", metavar="FILE", help="Catalogue: JSONL (or .jsonl.gz), a tool a line, in OpenAI's or MCP's form."),
    ] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option("--world", "-w", metavar="NAME", help="World whose tools are clustered too; gen-1..100 for a range. May be repeated."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Find the clusters of a catalogue, of worlds, or of both, and keep them in a store.

    A row may name its server (`server`, `server_id`) and a `label`, the business it is about; schemas may be missing or broken. Rows that
    cannot be used are dropped and told, with their lines. The same tools a second time change nothing.

    Examples:

      headrace clusters build --tools mcp_tools.jsonl.gz --store runs/tools/store

      headrace clusters build --tools mine.jsonl --world retail --world gen-1..20 --store runs/mine/store
    """
    with told(debug):
        from flows.runtime.progress import report, show_on_console
        from storage.report.page import write_report
        from storage.store import Store
        from synth.clusters.catalog import joined
        from synth.clusters.cluster_store import keep_clusters

        names = validation.world_names(worlds or [])
        opened = Store(store)
        catalogue = validation.catalogue(tools, names)
        found = joined([*(catalogue.tools if catalogue else ()), *validation.tools_of(names)])
        with show_on_console(out):
            kept = keep_clusters(opened, found, progress=report)
        if catalogue is not None:
            _tell_catalogue(catalogue)
        _tell_kept(kept, found, store)
        out.print(f"drawn in: {write_report(opened)}", markup=False, soft_wrap=True)


@app.command("list")
def list_(
    store: ReadStore = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only clusters of this domain.")] = None,
    limit: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many, the best first.")] = _SHOWN,
    debug: Debug = False,
) -> None:
    """List the clusters of the build that a store got last, those that cover most first.

    Example: headrace clusters list --store runs/tools/store --domain "Travel & Maps"
    """
    with told(debug):
        from flows.summary_tables import Table, draw
        from synth.clusters.cluster_store import stored_clusters

        found = validation.some_clusters(stored_clusters(validation.readable(None, store), domain=domain), domain)
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
            for cluster in found[:limit]
        ]
        more = f", the first {limit:,}" if len(found) > limit else ""
        draw(Table("clusters", f"Clusters: {len(found):,}{more} (chain: edges of the longest)", rows), out)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="A cluster's id, or as much of it as is needed.")],
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Show one cluster: its tools in an order in which they could be called, and what each feeds to which.

    Example: headrace clusters show cluster-0123456789abcdef --store runs/tools/store
    """
    with told(debug):
        from synth.clusters.cluster_store import stored_cluster

        cluster, tools = stored_cluster(validation.readable(None, store), id)
        for line in _drawn(cluster, {tool.id: tool for tool in tools}):
            out.print(line, markup=False, soft_wrap=True)


# ---- what is said -----------------------------------------------------------------------------------------------------


def _tell_catalogue(catalogue: Catalogue) -> None:
    dropped = sum(reason.count for reason in catalogue.dropped)
    out.print(
        f"{catalogue.path}: {catalogue.rows:,} rows, {len(catalogue.tools):,} tools, {catalogue.copies:,} exact copies folded, "
        f"{dropped:,} dropped; of {catalogue.unknown:,} the parameters are unknown",
        markup=False,
        soft_wrap=True,
    )
    for reason in catalogue.dropped[:_DROPPED_SHOWN]:
        first = "line" if reason.count == 1 else "first in line"
        out.print(f"  dropped {reason.count:,}: {reason.reason} ({first} {reason.line:,})", markup=False, soft_wrap=True)


def _tell_kept(kept: Kept, tools: Sequence[Tool], store: Path) -> None:
    from synth.clusters.world_plans import plans_of, served

    covered = {tool for cluster in kept.clusters for tool in cluster.tool_ids}
    executable = sum(cluster.world is not None for cluster in kept.clusters)
    spanning = sum(len(_servers(cluster)) > 1 for cluster in kept.clusters)
    out.print(
        f"clusters: {len(kept.clusters):,}, with {len(covered):,} of {len(tools):,} tools ({len(covered) / len(tools):.0%}); "
        f"{executable:,} executable, {len(kept.clusters) - executable:,} simulated only; {spanning:,} span servers"
        + ("" if kept.is_new else " (they were there already; what is listed and drawn is the build that the store got last)"),
        markup=False,
        soft_wrap=True,
    )
    if plans := plans_of(tools):
        done = served(plans, [cluster.tool_ids for cluster in kept.clusters])
        out.print(f"intents of worlds: {done:,} of {len(plans):,} ({done / len(plans):.0%}) have all tools of their plan in one cluster")
    commands = (f"list --store {store}", f"show {kept.clusters[0].id} --store {store}")
    for lead, command in zip(("see them:", "         "), commands, strict=True):
        out.print(f"{lead} headrace clusters {command}", markup=False, soft_wrap=True)


def _drawn(cluster: Cluster, tools: dict[str, Tool]) -> list[str]:
    from synth.clusters.edges import levels

    level = levels(cluster.tool_ids, cluster.edges)
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
        said = " ".join(tools[tool].description.split())
        summary = said if len(said) <= _SUMMARY else said[: _SUMMARY - 1] + "…"
        mark = "*" if tools[tool].changes_state else " "
        lines.append(f"{number[tool]:>3} {label[tool]:<{width}} {mark} {summary}".rstrip())
        fed = sorted((edge for edge in cluster.edges if edge.source == tool), key=lambda edge: number[edge.target])
        lines += [f"      └─ {edge.entity} → {number[edge.target]} {label[edge.target]}  ({edge.score:.2f})" for edge in fed]
    return [*lines, "", "* changes state"] if any(tools[tool].changes_state for tool in order) else lines


def _longest(cluster: Cluster) -> int:
    from synth.clusters.edges import levels

    return max(levels(cluster.tool_ids, cluster.edges).values())


def _kind(cluster: Cluster) -> str:
    return f"executable in {cluster.world}" if cluster.world else "simulated only"


def _servers(cluster: Cluster) -> list[str]:
    return sorted({tool.partition(".")[0] for tool in cluster.tool_ids})
