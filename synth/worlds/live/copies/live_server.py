"""A running copy of a live world: calls, state, snapshots, and the way back to one.

One idea: a snapshot is the private folder (`private_folder.py`), what the server's memory holds where it can say so (Python functions), and
the calls that led there. How a copy gets back is a setting that is measured, not believed (`conformance.py`):

| restore | |
|---|---|
| live | the folder is put back under the running server |
| restart | the server is started anew on the folder |
| replay | the server is started anew on the start folder, and the calls are made again |
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from storage.errors import BadInput
from storage.outside.known_secrets import declare_secrets, mask_these
from storage.records import JSON
from synth.sandbox.box import NOBODY, is_orphan, new_name
from synth.worlds.base import Observation
from synth.worlds.live.copies.copy_errors import CannotRestore, ServerFailed, ServerSpoke
from synth.worlds.live.copies.mcp_session import Connection, RawResult, RawTool
from synth.worlds.live.copies.private_folder import Contents, copy_in, folder_bytes, read_folder, remove_folder, write_folder
from synth.worlds.live.copies.server_box import INSIDE, Box, Pipes, missing_box, needed_paths
from synth.worlds.live.live_spec import SECRET, LiveSpec, Restore
from synth.worlds.live.live_state import read_state
from synth.worlds.live.observations import RESTORE_TOOL, SNAPSHOT_TOOL, STATE_TOOL, compile_shower, mask_value
from synth.worlds.live.openapi import read_operations

PREFIX = "headrace-live"
SEED, COPY = "{seed}", "{copy}"
STATE_TRIES, STATE_WAIT_S = 4, 0.05
Calls = tuple[tuple[str, str], ...]
"""Tool and arguments as JSON text."""


@dataclass(frozen=True)
class Snapshot:
    """A state of a copy, of the world's seed.

    contents: of the private folder. memory: of the server, where it can say. calls: made since the start.
    """

    seed: int
    contents: Contents
    memory: str | None
    calls: Calls


class LiveServer:
    """A copy of a server with a private folder. Not safe for threads: one caller at a time.

    Args:
        spec: what to start.
        seed: of the start state; all seeds are the same where `{seed}` stands nowhere in the spec.
        is_writer: whether a call of this tool may change the state.
        errors_change: whether a call that is an error may.

    Raises:
        ServerFailed: it does not start.
        BadInput: the machine lacks what its isolation needs, or the command is not there.
    """

    def __init__(
        self, spec: LiveSpec, seed: int = 0, *, is_writer: Callable[[str], bool] = lambda tool: True, errors_change: bool = True
    ) -> None:
        if missing := missing_box(spec):
            raise BadInput(missing)
        self.spec, self.seed, self._is_writer, self._errors_change = spec, seed, is_writer, errors_change
        self._secrets = secrets_of(spec)
        self._hidden = tuple(self._secrets.values())
        self._show = compile_shower(spec, self._hidden)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{new_name(PREFIX)}-"))
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._contents: Contents = {}
        self._calls: Calls = ()
        self._copy = ""
        self._parsed: dict[str, tuple[bytes, JSON]] = {}
        self._box: Box | None = None
        self._connection: Connection | None = None
        self.instructions = self.name = ""
        """What the server says of itself."""
        self.is_broken = False
        """Set by the user of the copy: it must not be used again."""
        try:
            self._start_anew(start_contents(spec))
            self._make_first_calls()
            self._calls = ()
        except BaseException:
            self.close()
            raise

    # ---- calls ------------------------------------------------------------------------------------------------------------

    def tools(self) -> list[RawTool]:
        """All that the server lists. Raises ServerFailed."""
        try:
            tools = self._live().tools()
        except ServerFailed as failure:
            raise self._ended(failure) from failure
        return [self._masked_tool(tool) for tool in tools] if self._hidden else tools

    def call(self, tool: str, arguments: Mapping[str, JSON]) -> Observation:
        """Raises ServerFailed, after which the copy has ended."""
        observation = self._show(tool, self._raw(tool, {**arguments, **self._filled(self.spec.fixed)}))
        if self._is_writer(tool) and (self._errors_change or not observation.is_error):
            self._calls = (*self._calls, (tool, json.dumps(arguments)))
        return observation

    @property
    def is_at_start(self) -> bool:
        """Whether no call since the start can have changed the state."""
        return not self._calls

    def state(self) -> dict[str, JSON]:
        """The state by the parts of the spec. Raises ServerFailed."""
        if self.spec.python and not self.spec.state:
            value = json.loads(self._show(STATE_TOOL, self._raw(STATE_TOOL, {})).content)
            return dict(value)
        for attempt in range(STATE_TRIES):
            contents = self.contents() if any(part.calls is None for part in self.spec.state) else {}
            try:
                state = read_state(self.spec.state, contents, self._read, self._parsed)
                return {path: mask_value(value, self._hidden) for path, value in state.items()} if self._hidden else state
            except ServerSpoke:  # a file may be read while it is being written
                if attempt == STATE_TRIES - 1:
                    raise
                time.sleep(STATE_WAIT_S)
        raise AssertionError

    def contents(self) -> Contents:
        """What the private folder holds now."""
        self._contents = read_folder(self._folder, self.spec.limits.disk_mib << 20, self._contents)
        return self._contents

    @property
    def has_tools_changed(self) -> bool:
        """Whether the server said that its tools have changed."""
        return self._connection is not None and self._connection.notes.tools_changed

    # ---- snapshots --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        memory = None
        if self.spec.python:
            observation = self._show(SNAPSHOT_TOOL, self._raw(SNAPSHOT_TOOL, {}))
            memory = None if observation.is_error else json.loads(observation.content)["result"]
        return Snapshot(self.seed, self.contents(), memory, self._calls)

    def restore(self, snapshot: Snapshot, way: Restore, *, is_forced: bool = False) -> None:
        """Goes back to a snapshot of the same spec and seed. is_forced: also where no call was made since.

        Raises:
            CannotRestore: the server has no way back.
            ServerFailed: it failed on the way.
        """
        if self._box is not None and self._connection is not None and self._calls == snapshot.calls and not is_forced:
            return
        if way == "live" and self._connection is not None:
            write_folder(self._folder, snapshot.contents, self.contents())
            self._calls = snapshot.calls
            if self.spec.python:
                self._restore_memory(snapshot)
        elif way in ("live", "restart"):
            self._start_anew(snapshot.contents)
            self._calls = snapshot.calls
            if self.spec.python:
                self._restore_memory(snapshot)
        elif way == "replay":
            self._start_anew(start_contents(self.spec))
            self._make_first_calls()
            for tool, arguments in snapshot.calls:
                self._raw(tool, {**json.loads(arguments), **self._filled(self.spec.fixed)})
            self._calls = snapshot.calls
        else:
            why = "it runs elsewhere" if self.spec.is_elsewhere else "no way back proved exact"
            raise CannotRestore(f"{self.spec.live} cannot be set back: {why}; `headrace worlds connect file` tells more")

    def close(self) -> None:
        """Ends the server, and removes its folder."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._box is not None:
            self._box.close()
            self._box = None
        remove_folder(self._folder)

    def set_call_time(self, seconds: float) -> None:
        """The longest time of a call, until the next start."""
        self._live().call_s = seconds

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of the copy, if it has started: to try what happens when it hangs or dies."""
        if self._box is None:
            return
        self._box.signal(number)

    # ---- inside -----------------------------------------------------------------------------------------------------------

    def _restore_memory(self, snapshot: Snapshot) -> None:
        if snapshot.memory is None:
            raise CannotRestore(f"{self.spec.live}: what its functions hold cannot be pickled; set `restore: replay`")
        self._raw(RESTORE_TOOL, {"data": snapshot.memory})

    def _start_anew(self, contents: Contents) -> None:
        limits, spec = self.spec.limits, self.spec
        self._copy = uuid.uuid4().hex
        where: Pipes | str = self._filled(spec.url)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if not spec.is_remote:
            if self._box is None:
                self._box = Box(self._ready_spec(), self._command(), self._folder, self._variables())
            else:
                self._box.end()
            write_folder(self._folder, contents)
            self._contents = contents
            where = self._box.start()
        try:
            self._connection = Connection(
                where,
                headers=self._headers() if spec.is_remote else {},
                start_s=limits.start_s,
                call_s=limits.call_s,
                answer_bytes=limits.answer_mib << 20,
            )
        except ServerFailed as failure:
            raise type(failure)(mask_these(str(failure), self._hidden)) from None
        self._connection.on_tick = self._check_size
        self.instructions = mask_these(self._connection.instructions, self._hidden)
        self.name = mask_these(self._connection.server_name, self._hidden)

    def _check_size(self) -> None:
        most = self.spec.limits.disk_mib << 20
        if not self.spec.is_remote and folder_bytes(self._folder, most) > most:
            raise ServerSpoke(f"the server filled its private folder with more than {self.spec.limits.disk_mib} MiB")

    def _make_first_calls(self) -> None:
        """The calls of `start`. Raises ServerSpoke: one of them is an error."""
        for tool, arguments in self.spec.start:
            observation = self._show(tool, self._raw(tool, {**self._filled(arguments), **self._filled(self.spec.fixed)}))
            if observation.is_error:
                raise ServerSpoke(f"the call {tool} of `start` is an error: {observation.content[:160]}")

    def _read(self, tool: str, arguments: Mapping[str, JSON]) -> JSON:
        observation = self._show(tool, self._raw(tool, {**arguments, **self._filled(self.spec.fixed)}))
        return json.loads(observation.content)

    def _raw(self, tool: str, arguments: Mapping[str, JSON]) -> RawResult:
        try:
            return self._live().call(tool, arguments)
        except ServerFailed as failure:
            raise self._ended(failure) from failure

    def _masked_tool(self, tool: RawTool) -> RawTool:
        parameters, output = (mask_value(schema, self._hidden) for schema in (tool.parameters, tool.output))
        return replace(tool, description=mask_these(tool.description, self._hidden), parameters=parameters, output=output)

    def _live(self) -> Connection:
        if self._connection is None:
            raise CannotRestore(f"{self.spec.live}: the server has ended")
        return self._connection

    def _ended(self, failure: ServerFailed) -> ServerFailed:
        """The failure, with how the server ended; the copy is at its end."""
        how = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._box is not None:
            with contextlib.suppress(Exception):
                how = self._box.end()
        return type(failure)(mask_these(f"{failure}{f' ({how})' if how else ''}", self._hidden))

    def _filled(self, value: JSON) -> JSON:
        """The value with `{seed}` and `{copy}` replaced."""
        if isinstance(value, str):
            return value.replace(SEED, str(self.seed)).replace(COPY, self._copy)
        if isinstance(value, Mapping):
            return {key: self._filled(inner) for key, inner in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list | tuple) else value

    def _command(self) -> list[str]:
        spec = self.spec
        python = "python3" if spec.isolation == "docker" else sys.executable
        if spec.python:
            return [python, f"{INSIDE}/function_server.py", spec.python, str(self.seed)]
        command = [self._filled(word) for word in spec.command]
        if spec.openapi:
            operations = operations_file(Path(spec.openapi.file))
            return [python, f"{INSIDE}/openapi_server.py", operations, spec.openapi.base_url, str(spec.limits.start_s), *command]
        return command

    def _ready_spec(self) -> LiveSpec:
        """The spec with the mounts that its kind needs."""
        mounts = list(self.spec.mounts)
        if self.spec.python and self.spec.isolation != "docker":
            mounts += [path for path in sys.path if Path(path).is_dir()]
        if self.spec.openapi:
            mounts += [str(Path(operations_file(Path(self.spec.openapi.file))).parent)]
            mounts += needed_paths(self.spec.command) if self.spec.command else []
        return self.spec.model_copy(update={"mounts": tuple(mounts)})

    def _variables(self) -> dict[str, str]:
        headers = {"HEADRACE_HEADERS": json.dumps(self._headers())} if self.spec.openapi and self.spec.headers else {}
        places = [*self.spec.mounts, *(path for path in sys.path if path)]
        paths = {"PYTHONPATH": os.pathsep.join(places)} if self.spec.python else {}
        return paths | {name: self._filled(value) for name, value in self.spec.variables.items()} | headers | self._secrets

    def _headers(self) -> dict[str, str]:
        return {name: SECRET.sub(lambda found: self._secrets[found[1]], self._filled(value)) for name, value in self.spec.headers.items()}


@cache
def _operations_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"{new_name(PREFIX)}-"))
    folder.chmod(0o755)
    return folder


@cache
def operations_file(path: Path) -> str:
    """A file with the operations of an OpenAPI description, for the server in the box."""
    target = _operations_folder() / f"{abs(hash(str(path)))}.json"
    target.write_text(json.dumps(read_operations(path)), encoding="utf-8")
    target.chmod(0o644)
    return str(target)


def secrets_of(spec: LiveSpec) -> dict[str, str]:
    """The secrets of a spec, from the environment. Raises BadInput: one is not set."""
    absent = [name for name in spec.secrets if not os.environ.get(name)]
    if absent:
        raise BadInput(f"{spec.live}: set the environment variable {absent[0]}, which the server needs")
    values = {name: os.environ[name] for name in spec.secrets}
    declare_secrets(*values.values())
    return values


def start_contents(spec: LiveSpec) -> Contents:
    """What the private folder of a spec holds at the start. Raises BadInput: the folder is not there."""
    return _copied(spec.folder) if spec.folder is not None else {}


@cache
def _copied(folder: str) -> Contents:
    if not Path(folder).is_dir():
        raise BadInput(f"{folder}: no such folder; `folder` says what the private folder holds at the start")
    return copy_in(Path(folder))


def remove_orphans() -> int:
    """Removes the private folders of processes that were killed. Returns their number."""
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*") if is_orphan(path.name.rpartition("-")[0], PREFIX)]
    for path in found:
        remove_folder(path)
    return len(found)
