"""Runs the command-line tools of a scheduler (sbatch, squeue, kubectl ...).

One idea: a tool that says that its scheduler does not answer is called again until the patience is over, as a request to a Ray cluster is.
Anything else that a tool says is an answer, and the caller's to judge.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import BadInput, OutOfReach

POLL_S = 5.0
_CALL_S = 60.0
_OUT_OF_REACH = re.compile(
    r"unable to contact|connection refused|connect failure|timed out|timeout|zero bytes were transmitted|was refused|no route to host"
    r"|i/o error|unable to connect|could not resolve|no such host|serviceunavailable|too many requests|etcdserver|persistent connection"
    r"|connection reset by peer|unexpected eof|internalerror|client connection lost|tls handshake",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answer:
    """What a tool printed, and its exit code."""

    code: int
    output: str
    error: str

    @property
    def reason(self) -> str:
        """The last line that says why it failed, without the tool's name."""
        lines = [line.strip() for line in f"{self.output}\n{self.error}".splitlines() if line.strip()]
        words = lines[-1] if lines else f"no message, code {self.code}"
        return re.sub(r"^(\w+:? )?(error|Error from server \(\w+\)|fatal|allocation failure): ", "", words)[:300]


@dataclass(frozen=True)
class Tools:
    """The tools of one scheduler.

    scheduler: its name, for messages. where: on which machine the tools are, for messages. patience_s: how long a call is repeated while
    the scheduler does not answer.
    """

    scheduler: str
    where: str
    patience_s: float

    def call(self, *words: str, given: str = "", patience_s: float | None = None) -> Answer:
        """Runs a tool once the scheduler answers. given: its standard input.

        Raises:
            BadInput: the tool is not installed. OutOfReach: the scheduler has not answered for `patience_s`.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        for attempt in itertools.count():
            answer = self.try_once(*words, given=given)
            if answer.code == 0 or not _OUT_OF_REACH.search(answer.error):
                return answer
            if time.monotonic() >= deadline:
                raise OutOfReach(
                    f"{self.scheduler} does not answer {words[0]} ({answer.reason}; asked for {patience_s:g} s); a stage that runs there "
                    "goes on, and the same command finds it again"
                )
            time.sleep(min(2.0**attempt / 4, POLL_S))
        raise AssertionError

    def try_once(self, *words: str, given: str = "") -> Answer:
        """Runs a tool, whatever it says. Raises BadInput: it is not installed."""
        program = shutil.which(words[0])
        if program is None:
            raise BadInput(f"{words[0]} is not installed on this machine: call headrace {self.where}")
        try:
            done = subprocess.run(
                [program, *_words(words[1:])],
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CALL_S,
                check=False,
                env=os.environ | {"LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return Answer(124, "", f"{words[0]}: timed out after {_CALL_S:g} s")
        return Answer(done.returncode, done.stdout, done.stderr)


def _words(words: Sequence[str]) -> list[str]:
    return [word for word in words if word]
