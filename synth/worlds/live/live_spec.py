"""The YAML file of a live world: what to start, what its state is, what it may use.

One idea: a file of a dozen lines that a person can read and change; `headrace worlds connect` writes it. What is measured is not here, but
in the lock file beside it. Secrets are named, never written: their values come from the environment of the caller.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from storage.errors import BadInput
from storage.outside.known_secrets import LOGIN, holds_secret, is_secret_name
from storage.records import JSON, content_id

DATA = "/data"
"""The private folder, as a server sees it."""
COPY = "{copy}"
SECRET = re.compile(r"\$\{(\w+)\}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}")
Arguments = dict[str, JSON]
NamedCall = tuple[str, Arguments]
Restore = Literal["live", "restart", "replay", "none"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StatePart(_Part):
    """A part of the state. Exactly one of the first five.

    files: pattern of files of the private folder (`**` for all), each by its text, or its hash.
    sqlite, json, jsonl: file of the private folder, or a pattern of one.
    calls: read-only calls, whose results are the state.
    at: of `json`: the keys that lead to the state, joined by dots.
    key: of `jsonl`: the fields that tell rows apart; all of them if not said.
    ignore: patterns of paths that are no state, such as a log of calls.
    """

    files: str | None = None
    sqlite: str | None = None
    json_file: str | None = Field(default=None, alias="json")
    jsonl: str | None = None
    calls: tuple[NamedCall, ...] | None = None
    at: str = ""
    key: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_one(self) -> StatePart:
        kinds = (self.files, self.sqlite, self.json_file, self.jsonl, self.calls)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("a part of the state has one of files, sqlite, json, jsonl, calls")
        return self


class Limits(_Part):
    """call_s, start_s: seconds of a call, and of a start. answer_mib: of one answer. processes: alive at a time."""

    call_s: float = Field(default=10.0, gt=0, le=600)
    start_s: float = Field(default=60.0, gt=0, le=600)
    memory_mib: int = Field(default=512, ge=64)
    disk_mib: int = Field(default=64, ge=1)
    answer_mib: int = Field(default=20, ge=1)
    processes: int = Field(default=64, ge=8)


class OpenApi(_Part):
    """file: the description, JSON or YAML. base_url: of the API, as the box reaches it."""

    file: str
    base_url: str


class Volatile(_Part):
    """Text of observations that differs from call to call, such as a clock: every match of `pattern` is shown as `shown`.

    tool: of which tool; of all, if empty.
    """

    pattern: str
    tool: str = ""
    shown: str = "(varies)"


class LiveSpec(_Part):
    """A live world.

    live: its name.
    command, url, python, openapi: what to start (`python`: `module:object`); `command` beside `openapi` starts the API itself.
    about: what the world is for: the system prompt of its conversations.
    mounts: folders of this machine that the command needs, read-only in the box at the same path.
    In command, url, headers, variables and fixed, `{seed}` stands for the world's seed, and `{copy}` for an id that every start of a copy
        has alone.
    variables: of the server's environment.
    secrets: names of variables that are taken from the caller's environment; what the server repeats of their values is masked.
    headers: of every request to `url` or to the API of `openapi`; `${NAME}` stands for a secret.
    folder: what the private folder holds at the start, a path from the YAML file. start: calls that are made before the first one.
    state: parts of the state; empty where nothing has one.
    restore: how a copy gets back to an earlier state; measured by `connect`.
    clock: the time that the server sees; it goes on from there.
    only, hide: the tools that are offered (all if not said), and those that are not.
    fixed: arguments that every call has, and that are not offered.
    show: keys, joined by dots, that lead to what of a result is shown; all of it if not said.
    errors: patterns of results that are errors, although the server does not say so.
    reads, writes: tools that do not change the state, and tools that do, where the measurement is wrong.
    network: whether the box reaches the network.
    isolation: the box of a server that is started here: `bubblewrap`, `docker` (in `image`, which has what the command needs), or `none`.
    limits: of a copy. What they end is a failure of the server, not of the policy.
    """

    live: str
    command: tuple[str, ...] = ()
    url: str | None = None
    python: str | None = None
    openapi: OpenApi | None = None
    about: str = ""
    mounts: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    headers: dict[str, str] = Field(default_factory=dict)
    folder: str | None = None
    start: tuple[NamedCall, ...] = ()
    state: tuple[StatePart, ...] = ()
    restore: Restore | Literal["measured"] = "measured"
    clock: str | None = None
    only: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    fixed: Arguments = Field(default_factory=dict)
    show: str = ""
    errors: tuple[str, ...] = ()
    volatile: tuple[Volatile, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    network: bool = False
    isolation: Literal["bubblewrap", "docker", "none"] = "bubblewrap"
    image: str = ""
    limits: Limits = Limits()

    @field_validator("live")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("a name has lower-case letters, digits, - and _, and begins with a letter")
        return name

    @field_validator("errors", "volatile")
    @classmethod
    def _check_patterns(cls, patterns: Any) -> Any:
        for pattern in patterns:
            try:
                re.compile(pattern if isinstance(pattern, str) else pattern.pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns

    @model_validator(mode="after")
    def _is_startable(self) -> LiveSpec:
        ways = [bool(self.url), bool(self.python), bool(self.openapi), bool(self.command) and not self.openapi]
        if sum(ways) != 1:
            raise ValueError("say what to start: one of command, url, python, openapi")
        if self.isolation == "docker" and not self.image:
            raise ValueError("isolation: docker needs an `image` in which the command runs")
        if self.clock and self.isolation != "bubblewrap":
            raise ValueError("`clock` needs isolation: bubblewrap")
        if self.headers and not (self.url or self.openapi):
            raise ValueError("`headers` are for `url` and `openapi`")
        unknown = [name for value in self.headers.values() for name in SECRET.findall(value) if name not in self.secrets]
        if unknown:
            raise ValueError(f"`headers` name ${{{unknown[0]}}}, which is none of `secrets`")
        self._check_secrets()
        return self

    def _check_secrets(self) -> None:
        """Raises ValueError: a secret is written in the spec, which is stored and handed on."""
        if any(url and holds_secret(url) for url in (self.url, self.openapi and self.openapi.base_url)):
            raise ValueError("the URL has a password or a token in it; name a variable in `secrets`, and give it by `headers`")
        for name, value in self.headers.items():
            is_secret = is_secret_name(name) or name.lower() in ("authorization", "proxy-authorization", "cookie")
            if (is_secret and not SECRET.search(value)) or holds_secret(value):
                raise ValueError(f"`headers`: {name} holds a secret; name its variable in `secrets`, and write ${{NAME}} for it here")
        for name, value in self.variables.items():
            if LOGIN.search(value):
                raise ValueError(f"`variables`: {name} holds a secret; name it in `secrets`, and set it in the environment")

    @property
    def is_remote(self) -> bool:
        return self.url is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the server is not started here, and so cannot be stopped or set back from here."""
        return self.is_remote or (self.openapi is not None and not self.command)

    @property
    def has_way_back(self) -> bool:
        """Whether a copy can be set back at all: one that is started here, or elsewhere a namespace of its own (`{copy}`)."""
        return not self.is_elsewhere or COPY in str(self.model_dump(mode="json"))

    @property
    def id(self) -> str:
        """A hash of all that is here."""
        return content_id("live", self.model_dump(mode="json", by_alias=True))[5:]


def read_live_spec(path: Path) -> LiveSpec:
    """The live world of a YAML file.

    Raises:
        BadInput: there is no such file, or it is not of this form; the message names the key.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; `headrace worlds connect` writes one") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{path}: cannot be read as YAML: {' '.join(str(error).split())[:160]}") from None
    return parse_live_spec(raw, str(path))


def parse_live_spec(raw: JSON, where: str) -> LiveSpec:
    """As `read_live_spec`. where: said in messages."""
    if not isinstance(raw, dict):
        raise BadInput(f"{where}: a live world is a mapping that begins with `live: NAME`")
    try:
        return LiveSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            names = [field.alias or name for name, field in LiveSpec.model_fields.items()]
            near = difflib.get_close_matches(place, names, n=1)
            raise BadInput(f"{where}: unknown key {place!r}{f'; did you mean {near[0]!r}?' if near else ''}") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"{where}: {f'{place}: ' if place else ''}{reason}") from None


def is_live(raw: JSON) -> bool:
    """Whether a parsed YAML file is a live world's."""
    return isinstance(raw, dict) and "live" in raw


def dump_live_spec(spec: LiveSpec) -> str:
    """The YAML text of a spec, without what is as by default."""
    data = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
