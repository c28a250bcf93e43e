"""Client for the jobs of a Ray cluster, over its REST API.

It makes six calls. Ray's own client is not used: it has no time-outs, prefers RAY_ADDRESS to the given address, reports every failure as a
text, and needs Ray on the machine that runs the flow.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from storage.errors import BadInput, OutOfReach

POLL_S = 2.0
_ANSWER_S = 30.0
_MOST_NODES = 10_000
"""Ray's own limit of a list."""
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class NoAnswer(OutOfReach):
    """The cluster does not answer, or its answer is not Ray's; its jobs may still run."""


@dataclass(frozen=True)
class Job:
    """Status of a job."""

    status: str
    message: str
    error_type: str
    exit_code: int | None

    @property
    def is_over(self) -> bool:
        return self.status in _OVER


class Jobs:
    """The jobs of one cluster, by its REST API.

    address: URL of the dashboard.
    patience_s: how long a request is repeated if the cluster does not answer, is overloaded, or reports a server error.
    Requests carry the token that Ray's own clients would send.

    Raises:
        BadInput: RAY_AUTH_TOKEN_PATH names no file with a token.
    """

    def __init__(self, address: str, patience_s: float) -> None:
        self.address, self._patience_s = address.rstrip("/"), patience_s
        token = _token()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def version(self) -> str:
        """Ray's version. Raises NoAnswer: no Ray cluster answers there."""
        status, answer = self._ask("GET", "/api/version")
        if status != 200 or not isinstance(answer, dict) or "ray_version" not in answer:
            raise NoAnswer(f"{self.address} is no dashboard of a Ray cluster (status {status}); it is at port 8265 of the head as a rule")
        return str(answer["ray_version"])

    def gpus(self) -> float | None:
        """Number of GPUs of all nodes that are up; None if the cluster does not tell."""
        try:
            _, answer = self._ask("GET", f"/api/v0/nodes?limit={_MOST_NODES}", patience_s=0)
            nodes = answer["data"]["result"]["result"]
            return float(sum(node["resources_total"].get("GPU", 0) for node in nodes if node["state"] == "ALIVE"))
        except (NoAnswer, KeyError, TypeError, AttributeError):
            return None

    def find(self, job_id: str) -> Job | None:
        status, answer = self._ask("GET", f"/api/jobs/{job_id}")
        if status == 404:
            return None
        if status != 200 or not isinstance(answer, dict) or "status" not in answer:
            raise NoAnswer(f"{self.address} answers what no Ray cluster does (status {status}): {last_line(answer)}")
        return Job(answer["status"], str(answer.get("message") or ""), str(answer.get("error_type") or ""), answer.get("driver_exit_code"))

    def submit(self, body: dict[str, Any]) -> None:
        """Submits a job; does nothing if its id exists (another process was faster, or an answer was lost).

        Raises:
            BadInput: the cluster refuses the job.
        """
        status, answer = self._ask("POST", "/api/jobs/", body)
        if status != 200 and self.find(body["submission_id"]) is None:
            raise BadInput(f"the Ray cluster {self.address} does not take the job (status {status}): {last_line(answer)}")

    def stop(self, job_id: str) -> None:
        self._ask("POST", f"/api/jobs/{job_id}/stop")

    def log(self, job_id: str) -> str | None:
        """The job's output so far; None if its node does not answer."""
        with suppress(NoAnswer):
            status, answer = self._ask("GET", f"/api/jobs/{job_id}/logs", patience_s=0)
            return str(answer["logs"]) if status == 200 and isinstance(answer, dict) and "logs" in answer else None
        return None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, patience_s: float | None = None) -> tuple[int, Any]:
        """Status and decoded answer. Raises NoAnswer: no answer in time, or a token is required."""
        patience_s = self._patience_s if patience_s is None else patience_s
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, self._headers, method=method)
        deadline = time.monotonic() + patience_s
        for attempt in itertools.count():
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                    return answer.status, _read(answer)
            except urllib.error.HTTPError as error:
                if error.code in (401, 403):
                    wants = "takes another token" if "Authorization" in self._headers else "wants its token"
                    raise NoAnswer(
                        f"the Ray cluster {self.address} {wants}: set RAY_AUTH_TOKEN to what `ray get-auth-token` prints on its head"
                    ) from None
                content = _read(error)
                if error.code < 500 and error.code != 429:
                    return error.code, content
                why = f"status {error.code}: {last_line(content)}"
            except (OSError, HTTPException, UnicodeError) as error:  # the last: a name that no host can have
                why = str(getattr(error, "reason", error)) or type(error).__name__
            if time.monotonic() >= deadline:
                raise NoAnswer(
                    f"the Ray cluster {self.address} does not answer ({why}; asked for {patience_s:g} s); a job that runs there goes on, "
                    "and the same command finds it again"
                )
            time.sleep(min(2.0**attempt / 4, POLL_S))
        raise AssertionError


def _token() -> str | None:
    """The cluster's token, from the same places and in the same order as Ray's clients (token authentication, "token sources")."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    token_path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        token = Path(token_path or Path.home() / ".ray" / "auth_token").read_text().strip()
    except (OSError, UnicodeError):
        token = ""
    if token_path and not token:
        raise BadInput(f"RAY_AUTH_TOKEN_PATH is {token_path}, which holds no token: name the file of the Ray cluster's, or unset it")
    return token or None


def _read(answer: Any) -> Any:
    """The answer, decoded if it is JSON; empty if the connection breaks while an error page is read."""
    try:
        content: bytes = answer.read()
    except (OSError, HTTPException):
        if isinstance(answer, urllib.error.HTTPError):
            return ""
        raise
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def last_line(output: Any) -> str:
    """The last line of a text, such as the message of a traceback."""
    return next((line.strip() for line in reversed(str(output).splitlines()) if line.strip()), "no message")[:300]
