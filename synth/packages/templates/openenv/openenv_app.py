"""The server: `python -m server.app --port 8000`, or `uvicorn server.app:app`."""

import argparse

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.types import Action, Observation
from server.environment import HeadraceEnvironment, TaskObservation

app = create_app(
    HeadraceEnvironment, Action, Observation, env_name="headrace", max_concurrent_envs=64, reset_observation_cls=TaskObservation
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
