"""Runs a snippet of Python in a fork of a box's supervisor: the core of `run_python`.

It uses the standard library only. The value of a snippet's last line, if that is an expression, is its result, as in a notebook. A snippet
may import only the modules of ALLOWED, so that results are the same everywhere. This is a rule of the tool and no protection: the box
protects. Changes of modules, built-ins or names of this file end with the fork.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import datetime
import decimal
import fractions
import functools
import itertools
import json
import linecache
import math
import os
import random
import re
import statistics
import string
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOADED = (math, statistics, json, re, datetime, itertools, functools, collections, decimal, fractions, random, string)
ALLOWED = tuple(module.__name__ for module in LOADED)
NAME = "<snippet>"
IMPORTED_BY_C = ("_pylong", "_strptime", "struct", "time", "traceback", "typing", "unicodedata", "warnings")
"""What the library's own C code imports for the running code: `datetime.strptime`, division of long integers, `def f[T]()`."""


def importer(allowed: tuple[str, ...]) -> Any:
    """An `__import__` that knows these modules only, and those of IMPORTED_BY_C where the names wanted are a list, as C code gives them and
    an import statement never does. A snippet that digs finds other ways (`random._os`); what it does there is the box's business."""

    def limited_import(name: str, names: Any = None, local_names: Any = None, wanted: Any = (), level: int = 0) -> Any:
        passing = (*allowed, "__future__", *(IMPORTED_BY_C if isinstance(wanted, list) else ()))
        if level or name.partition(".")[0] not in passing:
            raise ImportError(f"{name} is not allowed here; these are: {', '.join(allowed)}")
        return __import__(name, names, local_names, wanted, level)

    return limited_import


def run(code: str, fd: int) -> int:
    """Runs `code`; writes the representation of its last line's value to `fd`, if it has one; returns the exit code."""
    random.seed(0)
    lines = [line + "\n" for line in code.split("\n")]
    linecache.cache[NAME] = (len(code), None, lines, NAME)
    names = {"__name__": "__main__", "__builtins__": {**vars(builtins), "__import__": importer(ALLOWED)}}
    exit_code = 0
    try:
        # Not ast.parse, whose own line would stand in the traceback.
        tree = compile(code, NAME, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, NAME, "exec", dont_inherit=True), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), NAME, "eval", dont_inherit=True), names)
            if value is not None:
                os.write(fd, repr(value).encode("utf-8", errors="backslashreplace"))
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        exit_code = 1
        print_error(error)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return exit_code & 255


def print_error(error: BaseException) -> None:
    """The traceback, as far as it is the snippet's own: lines of the library differ from one Python to the next."""
    report = traceback.TracebackException.from_exception(error, limit=-8)
    report.stack = traceback.StackSummary.from_list([frame for frame in report.stack if frame.filename == NAME])
    print("".join(report.format()), end="", file=sys.stderr)
