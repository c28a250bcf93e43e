"""What a call returned, as the policy sees it: JSON text, an error by the key `error`, without what differs from run to run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.outside.known_secrets import mask_these
from storage.outside.safe_text import safe_text
from storage.records import JSON, MAX_NESTING, plain_json
from synth.worlds.base import Observation
from synth.worlds.live.copies.mcp_session import RawResult
from synth.worlds.live.live_spec import LiveSpec

STATE_TOOL, SNAPSHOT_TOOL, RESTORE_TOOL = "_headrace_state", "_headrace_snapshot", "_headrace_restore"
"""Tools of `inside/function_server.py` for the host."""
RESULT = "result"
"""The key of a result that is no JSON object."""

Shower = Callable[[str, RawResult], Observation]


def compile_shower(spec: LiveSpec, secrets: Sequence[str] = ()) -> Shower:
    """The function (tool, result) -> observation of a live world. secrets: values that are masked wherever they stand."""
    errors = [re.compile(pattern) for pattern in spec.errors]
    volatile = [(each.tool, re.compile(each.pattern), each.shown) for each in spec.volatile]
    keys = [key for key in spec.show.split(".") if key]

    def show(tool: str, raw: RawResult) -> Observation:
        value = _picked(_value(_without(raw, secrets) if secrets and tool != SNAPSHOT_TOOL else raw), keys)
        text = value if isinstance(value, str) else None
        is_error = raw.is_error or (text is not None and any(pattern.search(text) for pattern in errors))
        masks = [(pattern, shown) for of_tool, pattern, shown in volatile if of_tool in ("", tool) and not tool.startswith("_headrace")]
        value = _masked(value, masks) if masks else value
        content = _as_json(value, is_error)
        if "\\u00" in content:  # control characters, which JSON escapes
            content = _as_json(_safe(value), is_error)
        return Observation(safe_text(content.encode("utf-8", errors="replace")), is_error)

    return show


def _without(raw: RawResult, secrets: Sequence[str]) -> RawResult:
    return RawResult(tuple(mask_these(text, secrets) for text in raw.texts), mask_value(raw.structured, secrets), raw.is_error)


def mask_value(value: JSON, secrets: Sequence[str]) -> JSON:
    """The JSON value with every secret in its texts, keys and numbers replaced; a number that holds one becomes a text."""
    if isinstance(value, Mapping):
        return {mask_these(str(key), secrets): mask_value(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_value(each, secrets) for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    masked = mask_these(str(value), secrets)
    return value if masked == str(value) else masked


def _as_json(value: JSON, is_error: bool) -> str:
    return _error_text(value) if is_error else plain_json(value if isinstance(value, Mapping) else {RESULT: value})


def _safe(value: JSON) -> JSON:
    """The value with safe texts."""
    if isinstance(value, Mapping):
        return {_safe(key): _safe(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_safe(each) for each in value]
    return safe_text(value.encode("utf-8", errors="replace")) if isinstance(value, str) else value


def _masked(value: JSON, masks: Sequence[tuple[re.Pattern[str], str]]) -> JSON:
    """The value with every match of a mask replaced, in texts and in numbers; a number that is masked becomes a text."""
    if isinstance(value, Mapping):
        return {key: _masked(inner, masks) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(each, masks) for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    text = masked = str(value)
    for pattern, shown in masks:
        masked = pattern.sub(shown, masked)
    return value if masked == text else masked


def _value(raw: RawResult) -> JSON:
    """The result as JSON: its text where that is JSON, else its structured content, else its text."""
    text = "\n".join(raw.texts)
    parsed = _parse(text) if len(raw.texts) == 1 else None
    if parsed is not None:
        return parsed
    if raw.structured is not None and not _is_deep(raw.structured):
        return raw.structured
    return text


def _picked(value: JSON, keys: list[str]) -> JSON:
    """What the keys lead to, as far as they do."""
    for key in keys:
        if not (isinstance(value, Mapping) and key in value):
            break
        value = value[key]
    parsed = _parse(value) if isinstance(value, str) else None
    return parsed if parsed is not None else value


def _parse(text: str) -> JSON | None:
    """A JSON object or list; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) and not _is_deep(value) else None


def _is_deep(value: Any, left: int = MAX_NESTING) -> bool:
    if left == 0:
        return True
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(_is_deep(each, left - 1) for each in inner)


def _error_text(value: JSON) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("error"), str):
        return plain_json(value)
    return plain_json({"error": value if isinstance(value, str) else plain_json(value)})
