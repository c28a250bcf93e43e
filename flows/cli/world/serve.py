"""`headrace serve`: a world, or the start state of a stored task, as an MCP server; `headrace verify-log` judges what its clients did."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug, NewestStore
from flows.cli.terminal import err, handle_errors, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from synth.serving.episodes import Episodes
    from synth.serving.served import Served

_LOOPBACK, _PORT = "127.0.0.1", 8765
_OVER_HTTP = "Over HTTP"


ServedWorld = Annotated[
    str | None, typer.Argument(metavar="WORLD|FILE", help="Name of a world, e.g. retail, banking, gen-7; or a spec file.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the world's data, where a client names none.")]
ServedTask = Annotated[
    str | None, typer.Option("--task", metavar="ID", help="Serve the start state of this task, with its tools, in place of a world.")
]
ServedStore = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Store of the task (default: the newest under runs/), or of a world of your own."),
]
Log = Annotated[Path | None, typer.Option("--log", metavar="FILE", help="Append every call and its result to this file, as JSON Lines.")]
Http = Annotated[bool, typer.Option("--http", help="Serve many clients over HTTP, instead of one on stdin and stdout.")]
Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", rich_help_panel=_OVER_HTTP, help="Any but loopback needs a token; there is no TLS."),
]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, rich_help_panel=_OVER_HTTP, help="0: any free port.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--episodes",
        metavar="N",
        min=1,
        rich_help_panel=_OVER_HTTP,
        help="Most episodes that are open at a time. Default: 1,000; of a live world 16, because each is a process.",
    ),
]
IdleMinutes = Annotated[
    float,
    typer.Option(
        "--idle",
        metavar="MIN",
        min=0.01,
        max=10_080,
        rich_help_panel=_OVER_HTTP,
        help="Minutes without a call after which an episode ends.",
    ),
]


def serve(
    world: ServedWorld = None,
    seed: Seed = 0,
    task: ServedTask = None,
    store: ServedStore = None,
    log: Log = None,
    http: Http = False,
    host: Host = _LOOPBACK,
    port: Port = _PORT,
    most: Most = None,
    idle_minutes: IdleMinutes = 30.0,
    debug: Debug = False,
) -> None:
    """Serve a world to other programs, as a server of the Model Context Protocol (MCP). docs/serving.md shows how clients connect.

    By default a client starts the command and talks to it on stdin and stdout. With --http every session of a client is an episode of its
    own; a URL that ends in ?episode=NAME&seed=N names one. The variable HEADRACE_SERVE_TOKEN holds the token that clients must send.

    Examples:

      headrace serve banking --seed 3

      headrace serve my.yaml --log calls.jsonl

      headrace serve retail --http --port 8765

      headrace serve --task task-0123456789abcdef --store runs/sample/store --log calls.jsonl
    """
    with handle_errors(debug):
        _check_sdk()
        from synth.serving.call_log import CallLog
        from synth.serving.episodes import Episodes

        if not http and (host, port) != (_LOOPBACK, _PORT):
            raise BadInput("--host and --port go with --http; without it, one client is served on stdin and stdout")
        served = _served(world, seed, task, store)
        calls = None if log is None else CallLog(log)
        if http:
            _over_http(Episodes(served, calls, most=most or served.most_open, idle_s=60.0 * idle_minutes), host, port)
        else:
            from synth.serving.stdio_transport import serve_stdio

            if sys.stdin.isatty():
                err.print(f"{_describe(served)}; waits for an MCP client on stdin, Ctrl-C ends it", markup=False)
            serve_stdio(Episodes(served, calls, most=1, idle_s=None))


def verify_log(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Log of `headrace serve --task ID --log FILE`.")],
    task: Annotated[str, typer.Option("--task", metavar="ID", help="The task that was served.")],
    episode: Annotated[str | None, typer.Option("--episode", metavar="NAME", help="Only this episode, as the URL names it.")] = None,
    answer: Annotated[str | None, typer.Option("--answer", metavar="TEXT", help="What the model told its user at the end.")] = None,
    store: NewestStore = None,
    debug: Debug = False,
) -> None:
    """Judge a served task by the log of its calls, replayed in a fresh world. Prints one JSON object an episode.

    `solved` is null if the calls are right and no answer is given: an MCP server never sees what a model tells its user. It is null too if
    the world or the log failed, which `failure` says: that is not the policy's fault.

    Example: headrace verify-log calls.jsonl --task task-0123456789abcdef --store runs/sample/store
    """
    with handle_errors(debug):
        from flows import validation
        from synth.serving.judge_log import judge_log
        from synth.serving.served import find_task, serve_task

        found = find_task(validation.open_store(None, store), task)
        serve_task(found)  # refuses a task that cannot be executed here
        for judged in judge_log(file, found, episode, answer):
            print_text(json.dumps(asdict(judged), ensure_ascii=False))


def _check_sdk() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("mcp")
    except PackageNotFoundError:
        raise BadInput("serving needs the MCP SDK: pip install 'headrace[live]'") from None
    if int(installed.partition(".")[0]) < 2:
        raise BadInput(f"serving needs version 2 of the MCP SDK, and {installed} is installed: pip install 'headrace[live]'")


def _served(world: str | None, seed: int, task: str | None, store: Path | None) -> Served:
    from flows import validation
    from synth.serving.served import find_task, serve_task, serve_world
    from synth.worlds.stored_worlds import register_stored

    if (world is None) == (task is None):
        raise BadInput("name a world to serve, or a task with --task ID; `headrace worlds list` lists the worlds")
    if task is None:
        assert world is not None
        if store is not None:
            register_stored(validation.open_store(None, store))
        return serve_world(validation.resolve_world(world), seed)
    if seed:
        raise BadInput("--seed goes with a world; a task has a seed of its own")
    return serve_task(find_task(validation.open_store(None, store), task))


def _over_http(episodes: Episodes, host: str, port: int) -> None:
    from synth.serving.http_transport import TOKEN_VARIABLE, serve_http, token_for

    token, is_new = token_for(host, os.environ)

    def ready(url: str) -> None:
        print_text(f"{_describe(episodes.served)}: {url}")
        if is_new:
            print_text(f"token (shown only now; {TOKEN_VARIABLE} sets another): {token}")

    serve_http(episodes, host, port, token, ready)


def _describe(served: Served) -> str:
    from synth.serving.served import takes_seed

    what = f"task {served.task_id} of world {served.world.name}" if served.task_id else f"world {served.world.name}"
    seed = f"seed {served.seed}" if takes_seed(served.world) else "one start state, which takes no seed"
    return f"{what}, {seed}, {len(served.tools)} tools"
