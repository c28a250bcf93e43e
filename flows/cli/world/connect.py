"""`headrace worlds connect`: real tools become a world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from synth.explore.conformance import Measured
    from synth.worlds.live.live_spec import LiveSpec

app = typer.Typer(
    no_args_is_help=True,
    help="""Make a world of real tools: an MCP server, Python functions, or an HTTP API, each in a private copy.

The server runs in a box without network; its tools are called again and again, in copies and after restores. A short YAML file says what
to start; a lock file beside it says what was measured, and what the world may be used for: synthesis, verification by state, RL.""",
)
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the world (default: from the command).")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="YAML file to write (default: NAME.yaml).")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="What its private folder, /data, holds at the start.")]
Variables = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable of the server's environment; may be repeated.")
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="NAME", help="Variable taken from your environment, and never stored; may be repeated."),
]
Network = Annotated[bool, typer.Option("--network", help="Let the server reach the network.")]
Clock = Annotated[str | None, typer.Option("--clock", metavar="TIME", help='What time the server sees, e.g. "2026-05-20 09:00:00".')]
Show = Annotated[str, typer.Option("--show", metavar="KEYS", help="Keys that lead to the part of a result that is shown, e.g. data.items.")]
Hide = Annotated[list[str] | None, typer.Option("--hide", metavar="TOOL", help="Tool that is not offered; may be repeated.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="TOOL", help="Tool that is offered, and no other; may be repeated.")]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="NAME=VALUE", help='Header of every request; ${NAME} in it stands for a --secret, e.g. "Bearer ${KEY}".'
    ),
]
Fixed = Annotated[
    list[str] | None, typer.Option("--fixed", metavar="NAME=VALUE", help="Argument that every call has, and that is not offered.")
]
State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="JSON", help="A part of the state, as in the YAML file (default: from the files of the folder)."),
]


@app.command("mcp", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def mcp(
    command: Annotated[
        list[str], typer.Argument(metavar="[--] COMMAND...|URL", help="Command of a server on stdio, or URL of one on HTTP.")
    ],
    name: Name = None,
    out: Out = None,
    folder: Folder = None,
    env: Variables = None,
    secret: Secrets = None,
    header: Headers = None,
    network: Network = False,
    clock: Clock = None,
    show: Show = "",
    hide: Hide = None,
    only: Only = None,
    fixed: Fixed = None,
    state: State = None,
    debug: Debug = False,
) -> None:
    """Connect an MCP server.

    A word of the command that names the folder, or a file in it, becomes its place in the box. A server that fetches itself (npx, uvx)
    cannot, as its box has no network: install it first, and name its program. Of a server at a URL, only tools that read are called, unless
    {copy} in the URL, a header or a fixed argument keeps its clients apart.

    Example: headrace worlds connect mcp --folder notes -- node_modules/.bin/mcp-server-filesystem notes
    """
    with handle_errors(debug):
        is_url = len(command) == 1 and command[0].startswith(("http://", "https://"))
        start = {"url": command[0]} if is_url else {"command": _words(command, folder)}
        _connect(
            _spec(
                start,
                name or _name_of(command[0]),
                folder=folder,
                env=env,
                secret=secret,
                network=network,
                clock=clock,
                show=show,
                hide=hide,
                fixed=fixed,
                state=state,
                only=only,
                header=header,
            ),
            out,
        )


@app.command("python")
def python(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="Class, instance, or module alone: its functions are the tools.")],
    name: Name = None,
    out: Out = None,
    env: Variables = None,
    secret: Secrets = None,
    network: Network = False,
    clock: Clock = None,
    hide: Hide = None,
    only: Only = None,
    debug: Debug = False,
) -> None:
    """Connect Python functions: type hints give the schemas, docstrings the descriptions.

    The public methods of a class are its tools, and the instance is the state; of a module, its functions and its values. A class that
    takes `seed` has another state in every seed. The module is found from this folder, or in this environment; the box sees both, and
    cannot write to them.

    Example: headrace worlds connect python shop_functions:Shop
    """
    with handle_errors(debug):
        start: dict[str, Any] = {"python": target, "mounts": [str(Path.cwd())]}
        _connect(
            _spec(
                start,
                name or _name_of(target.rpartition(":")[2]),
                env=env,
                secret=secret,
                network=network,
                clock=clock,
                hide=hide,
                only=only,
            ),
            out,
        )


@app.command("openapi", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def openapi(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="OpenAPI 3 description, JSON or YAML.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[[--] COMMAND...]", help="Starts the API in the box; without it, it runs elsewhere.")
    ] = None,
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="Of the API.")] = "http://127.0.0.1:8000",
    name: Name = None,
    out: Out = None,
    folder: Folder = None,
    env: Variables = None,
    secret: Secrets = None,
    header: Headers = None,
    clock: Clock = None,
    show: Show = "",
    hide: Hide = None,
    only: Only = None,
    fixed: Fixed = None,
    state: State = None,
    debug: Debug = False,
) -> None:
    """Connect an HTTP API by its OpenAPI description. With a command, it runs in the box and can be set back.

    Example: headrace worlds connect openapi --base-url http://127.0.0.1:8000 shop_api.json -- python3 shop_api.py
    """
    with handle_errors(debug):
        start: dict[str, Any] = {"openapi": {"file": str(file.resolve()), "base_url": base_url}, "command": _words(command or [], folder)}
        from synth.worlds.live.openapi import read_operations

        read_operations(file)
        spec = _spec(
            start,
            name or _name_of(file.stem),
            folder=folder,
            env=env,
            secret=secret,
            network=not command,
            clock=clock,
            show=show,
            hide=hide,
            fixed=fixed,
            state=state,
            only=only,
            header=header,
        )
        _connect(spec, out)


@app.command("file")
def file_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of a live world.")],
    debug: Debug = False,
) -> None:
    """Measure a live world again, after its file, its folder or its server has changed. Plans that were found are dropped.

    What is found is added to the file's end; where a key that is there has to change, the file is written anew, without its comments.

    Example: headrace worlds connect file notes.yaml
    """
    with handle_errors(debug):
        from synth.worlds.live.live_files import resolved_spec

        _connect(resolved_spec(file), file, out_is_measured=True)


# ---- parts -----------------------------------------------------------------------------------------------------------------


def _connect(spec: LiveSpec, out: Path | None, *, out_is_measured: bool = False) -> None:
    """Measures a world, writes its two files, and prints the report. out_is_measured: the spec is that of the file `out`."""
    from synth.explore.conformance import measure
    from synth.worlds.live.copies.mcp_session import require_sdk
    from synth.worlds.live.live_files import is_live_file, updated_text
    from synth.worlds.live.lock import write_lock

    require_sdk()
    target = out or Path(f"{spec.live}.yaml")
    if target.exists() and not is_live_file(target):
        raise BadInput(f"{target} exists and is no live world; name another file with --out")
    measured = measure(spec, progress=lambda what: print_text(f"{what} ..."))
    try:
        target.write_text(updated_text(target if out_is_measured else None, measured.spec), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{target}: cannot be written ({error.strerror})") from None
    write_lock(target, measured.lock)
    _print_report(measured, target)


def _print_report(measured: Measured, target: Path) -> None:
    lock = measured.lock
    writers = [tool.name for tool in lock.tools if tool.changes_state]
    print_text(f"{measured.spec.live}: {len(lock.tools)} tools; {len(writers)} change the state: {', '.join(writers) or 'none'}")
    for check in lock.checks:
        mark = {True: "yes", False: "NO", None: "not tried"}[check.holds]
        print_text(f"  {check.name.replace('_', ' '):24} {mark}{f' ({check.detail})' if check.detail else ''}")
    for note in measured.notes:
        print_text(f"  note: {note}")
    print_text(f"restored by {lock.restore} in {lock.reset_ms:g} ms; {lock.call_ms:g} ms a call")
    print_text(f"it may be used for {', '.join(lock.uses) if lock.uses else 'nothing: see what is NO above'}")
    print_text(
        f"wrote {target}; next: headrace worlds explore {target}"
        if "verification" in lock.uses
        else f"wrote {target}; mend what is NO in it, then: headrace worlds connect file {target}"
    )


def _spec(
    start: dict[str, Any],
    name: str,
    *,
    folder: Path | None = None,
    env: list[str] | None = None,
    secret: list[str] | None = None,
    network: bool = False,
    clock: str | None = None,
    show: str = "",
    hide: list[str] | None = None,
    fixed: list[str] | None = None,
    state: list[str] | None = None,
    only: list[str] | None = None,
    header: list[str] | None = None,
) -> LiveSpec:
    from synth.worlds.live.live_spec import parse_live_spec

    raw: dict[str, Any] = {"live": name, **{key: value for key, value in start.items() if value}}
    raw |= {"folder": str(folder.resolve())} if folder else {}
    raw |= {"variables": dict(_pair(each, "--env") for each in env)} if env else {}
    raw |= {"fixed": {key: _json_or_text(value) for key, value in (_pair(each, "--fixed") for each in fixed)}} if fixed else {}
    raw |= {"state": [_json(each) for each in state]} if state else {}
    raw |= {"headers": dict(_pair(each, "--header") for each in header)} if header else {}
    for key, value in (("only", only), ("secrets", secret), ("network", network), ("clock", clock), ("show", show), ("hide", hide)):
        raw |= {key: value} if value else {}
    return parse_live_spec(raw, "the command line")


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInput(f"{option} {text}: write it as NAME=VALUE")
    return name, value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadInput(f'--state {text}: is no JSON; write it as {{"files": "**"}}') from None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _name_of(word: str) -> str:
    """A world's name from a command, an object or a file."""
    stem = Path(word.rstrip("/")).name.split(".")[0] or "world"
    name = "".join(letter if letter.isalnum() else "-" for letter in stem.lower()).strip("-")
    return name if name[:1].isalpha() else f"world-{name}"


def _words(command: list[str], folder: Path | None) -> list[str]:
    """The command with absolute paths, and with the folder's place in the box."""
    from synth.worlds.live.live_spec import DATA

    fetchers = {
        "npx": "npm install PACKAGE, then node_modules/.bin/PROGRAM",
        "uvx": "python3 -m venv ENV && ENV/bin/pip install PACKAGE, then ENV/bin/PROGRAM",
    }
    if command and (hint := fetchers.get(Path(command[0]).name)):
        raise BadInput(f"{command[0]} fetches the server from the network, which its box has not; install it first: {hint}")
    words: list[str] = []
    for word in command[1:] if command[:1] == ["--"] else command:
        path = Path(word)
        if folder is not None and path.exists() and path.resolve().is_relative_to(folder.resolve()):
            rest = path.resolve().relative_to(folder.resolve())
            words.append(DATA if str(rest) == "." else f"{DATA}/{rest}")
        else:
            is_file = path.is_file() and bool(words)
            words.append(str(path.absolute()) if is_file or ("/" in word and path.exists()) else word)
    return words
