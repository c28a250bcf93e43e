"""A stand-in for the Jobs REST API of a Ray cluster, scripted by a test: it runs nothing. It shows what the launcher does with answers that
a real cluster gives only when something is wrong with it; `test_on_ray.py` has the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

RUNNING, SUCCEEDED, STOPPED = {"status": "RUNNING"}, {"status": "SUCCEEDED", "driver_exit_code": 0}, {"status": "STOPPED"}


class FakeJobs:
    """Jobs by their ids, each a list of what is said of it, one look after another; the last is said again and again.

    Args:
        life: of a job that is submitted. on_end: called when a job is first said to have succeeded.
    """

    def __init__(self, *life: dict[str, Any], version: str = "2.60.0", log: str = "a line\n", on_end: Callable[[], object] = bool) -> None:
        self.life, self.version, self.log, self.on_end = list(life or [RUNNING, SUCCEEDED]), version, log, on_end
        self.jobs: dict[str, list[dict[str, Any] | None]] = {}
        self.calls: list[tuple[str, str]] = []
        self.submitted: list[dict[str, Any]] = []
        self.broken: list[int] = []
        """Statuses of the next answers, whatever was asked for."""
        self.before_submission: Callable[[dict[str, Any]], object] = bool
        self.headers: dict[str, str] = {}
        self.gpus: float | None = None
        """Of the one node; None: the cluster does not tell."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        self.headers = dict(request.headers)
        self.calls.append((request.method, request.path))
        if self.broken:
            return web.Response(status=self.broken.pop(0), text="Traceback (most recent call last):\n  ...\nOSError: the head is unwell")
        if request.path == "/api/version":
            return web.json_response({"version": "4", "ray_version": self.version})
        if request.path == "/api/v0/nodes" and self.gpus is not None:
            node = {"state": "ALIVE", "resources_total": {"CPU": 8.0, **({"GPU": self.gpus} if self.gpus else {})}}
            return web.json_response({"result": True, "data": {"result": {"total": 1, "result": [node]}}})
        if request.method == "POST" and request.path == "/api/jobs/":
            return self._submit(await request.json())
        job, _, what = request.path.removeprefix("/api/jobs/").partition("/")
        if what == "stop":
            self.jobs[job] = [STOPPED]
            return web.json_response({"stopped": True})
        if what == "logs":
            return web.json_response({"logs": self.log})
        return self._info(job)

    def _submit(self, body: dict[str, Any]) -> web.Response:
        self.before_submission(body)
        if body["submission_id"] in self.jobs:
            return web.Response(status=400, text=f"ValueError: Job with submission_id {body['submission_id']} already exists.")
        self.submitted.append(body)
        self.jobs[body["submission_id"]] = list(self.life)
        return web.json_response({"submission_id": body["submission_id"]})

    def _info(self, job: str) -> web.Response:
        life = self.jobs.get(job, [None])
        said = life.pop(0) if len(life) > 1 else life[0]
        if said is None:
            return web.Response(status=404, text=f"Job {job} does not exist")
        if said["status"] == "SUCCEEDED":
            self.on_end()
        return web.json_response(said)
