"""Log records that are safe to show: without control characters and known secrets, whoever writes them and wherever they go.

One idea: every record of this process is made by one factory, so handlers of libraries (Prefect's own log, its server) are covered too.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from storage.outside.known_secrets import shown


def make_logs_safe() -> None:
    """Makes all further log records of this process safe. Safe to repeat."""
    make = logging.getLogRecordFactory()
    if getattr(make, "is_safe", False):
        return

    def make_safe(*args: Any, **more: Any) -> logging.LogRecord:
        return _make_safe(make(*args, **more))

    make_safe.is_safe = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_safe)


def _make_safe(record: logging.LogRecord) -> logging.LogRecord:
    if isinstance(record.args, tuple):
        record.args = tuple(shown(value) if isinstance(value, str) else value for value in record.args)
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError):  # the handler reports arguments that do not fit
        return record
    if (clean := shown(text)) != text:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = shown("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
    return record
