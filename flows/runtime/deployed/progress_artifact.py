"""The progress of a flow run as an artifact in Prefect's UI: the step at work, its share, and the seconds that it still takes.

One idea: a thread sends the last report every five seconds. So no step waits for the server, and a server that is away costs nothing.
The key is that of the flow (`headrace-progress-train`), so the artifact has a history over runs.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Iterator
from uuid import UUID

from flows.runtime.progress import watch_progress

EVERY_S, LAST_WITHIN_S = 5.0, 3.0


class ProgressArtifact:
    """The last report of a flow run, and the artifact that shows it. No artifact is made for a run that is over before the first is due."""

    def __init__(self, flow: str, flow_run_id: UUID) -> None:
        self.key, self._flow_run_id = f"headrace-progress-{flow}", flow_run_id
        self._last: tuple[str, int, int, str] | None = None
        self._sent: tuple[str, int, int, str] | None = None
        self._artifact: UUID | None = None
        self._starts: dict[str, tuple[float, int]] = {}
        self._counts: dict[str, int] = {}
        """Label -> `done` of the last report."""

    def report(self, label: str, done: int, total: int, note: str = "", /) -> None:
        last_done = self._counts.get(label)
        if last_done is None or done < last_done:  # begun, or begun again: a task that is tried again has waited meanwhile
            self._starts[label] = (time.monotonic(), done)
        self._counts[label] = done
        self._last = (label, done, total, note)

    def describe(self) -> tuple[float, str]:
        """Per cent of the step at work, and what it is at, in words."""
        assert self._last is not None
        label, done, total, note = self._last
        start, first = self._starts[label]
        took = time.monotonic() - start
        share = f"{done:,} of {total:,}" if total else f"{done:,}"
        left = f", about {took * (total - done) / (done - first):.0f} s left" if first < done < total else ""
        return 100 * done / total if total else 0.0, f"{label}: {share}, {took:.0f} s{left}{note and f', {note}'}"

    @property
    def is_sent(self) -> bool:
        """Whether there is an artifact."""
        return self._artifact is not None

    def send(self) -> None:
        """Create or update the artifact, if there is news."""
        if self._last is None or self._last == self._sent:
            return
        import httpx
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
        from prefect.exceptions import PrefectException

        self._sent = self._last
        percent, text = self.describe()
        with contextlib.suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
            if self._artifact is None:
                new = ArtifactCreate(key=self.key, type="progress", data=percent, description=text, flow_run_id=self._flow_run_id)
                self._artifact = client.create_artifact(new).id
            else:
                client.update_artifact(self._artifact, ArtifactUpdate(data=percent, description=text))


@contextlib.contextmanager
def show_progress(flow: str, flow_run_id: UUID) -> Iterator[None]:
    """Show the progress of a flow run inside the context, at most once in five seconds."""
    artifact, done = ProgressArtifact(flow, flow_run_id), threading.Event()

    def keep_sending() -> None:
        while not done.wait(EVERY_S):
            artifact.send()
        if artifact.is_sent:
            artifact.send()

    context = contextvars.copy_context()  # has Prefect's settings, and so the server
    thread = threading.Thread(target=lambda: context.run(keep_sending), name="show progress", daemon=True)
    thread.start()
    try:
        with watch_progress(artifact.report):
            yield
    finally:
        done.set()
        thread.join(LAST_WITHIN_S)
