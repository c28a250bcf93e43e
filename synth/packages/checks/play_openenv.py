"""Plays given actions on an OpenEnv server with OpenEnv's own client; runs in OpenEnv's environment, needs nothing of Headrace.

`python play_openenv.py URL ACTIONS.json REWARDS.json`: task id -> actions; task id -> the sum of the episode's rewards.
"""

import json
import sys
from pathlib import Path

from openenv import GenericEnvClient


def main(url: str, actions: str, rewards: str) -> None:
    found = {}
    with GenericEnvClient(base_url=url).sync() as client:
        for task_id, calls in json.loads(Path(actions).read_text()).items():
            assert client.reset(task_id=task_id).observation["task_id"] == task_id
            results = [client.step({"type": "call_tool", **call}) for call in calls]
            assert [result.done for result in results] == [False] * (len(calls) - 1) + [True]
            found[task_id] = sum(result.reward or 0.0 for result in results)
    Path(rewards).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
