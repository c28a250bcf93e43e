"""Tasks of Headrace as a NeMo Gym resources server: a session is an episode, its tools are `POST /TOOL`, `/verify` replays its calls."""

import json
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import ConfigDict, PrivateAttr

from synth.packages.runtime import EpisodeLost, Episodes, Package

PACKAGE = Package(Path(__file__).parent / "tasks")


class SeedRequest(BaseSeedSessionRequest):
    task_id: str


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    task_id: str


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    r: float


class HeadraceResourcesServer(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    _episodes: Episodes = PrivateAttr(default_factory=Episodes)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{tool}")(self.call)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        self._episodes.start(request.session[SESSION_ID_KEY], PACKAGE.task(body.task_id))
        return BaseSeedSessionResponse()

    async def call(self, tool: str, request: Request) -> Response:
        try:
            episode = self._episodes.get(request.session[SESSION_ID_KEY])
        except EpisodeLost as lost:
            return Response(json.dumps({"error": str(lost)}), 409, media_type="application/json")
        return Response(episode.call(tool, (await request.body()).decode()).content, media_type="application/json")

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        key = request.session[SESSION_ID_KEY]
        try:
            verdict = self._episodes.get(key).judge(_answer(body))
        except EpisodeLost as lost:  # no reward: NeMo Gym reports that the rollout failed
            raise HTTPException(409, str(lost)) from None
        self._episodes.end(key)
        return VerifyResponse(**body.model_dump(), reward=float(verdict.success), r=verdict.reward)


def _answer(body: VerifyRequest) -> str:
    """The text of the last output, if that is a message."""
    last = body.response.output[-1] if body.response.output else None
    if last is None or last.type != "message":
        return ""
    return "".join(getattr(part, "text", "") for part in last.content)


if __name__ == "__main__":
    HeadraceResourcesServer.run_webserver()
