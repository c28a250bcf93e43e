"""Values in results: a result that holds JSON or Python literals as text is read as what it says."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping

from storage.records import JSON

LONGEST_LITERAL = 200_000


def parse_loosely(value: JSON) -> JSON:
    """The value with every text that is a JSON or Python list or mapping replaced by that. A mapping of `result` or `content` alone is
    replaced by what it holds."""
    if isinstance(value, str):
        return _literal(value)
    if isinstance(value, Mapping):
        if len(value) == 1 and (inner := value.get("result", value.get("content"))) is not None:
            return parse_loosely(inner)
        return {key: parse_loosely(each) for key, each in value.items()}
    return [parse_loosely(each) for each in value] if isinstance(value, list) else value


def _literal(text: str) -> JSON:
    if text[:1] not in "[{" or text[-1:] not in "]}" or len(text) > LONGEST_LITERAL:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
    return value
