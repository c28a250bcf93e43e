"""The verdict on a log of `episode_server.py`: `python -m synth.packages.replay_log --data DIR --log FILE --out FILE`.

One idea: the log says what was called, never what came back. The calls are made again in a fresh world, so a log in which a result was
forged does not exist, and a log that is no log has a reward of 0. A log that is missing is an error of the infrastructure: the program
fails and writes no reward, which Harbor reports as an error of the trial.

It writes a JSON object: `reward`, 1 if all checks hold, else 0; `r`, the graded reward R; and each check as 0 or 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from storage.records import Task
from synth.packages.runtime import Episode, Package
from synth.tasks.verify import Verdict


def judge_log(task: Task, log: str) -> Verdict:
    """The verdict on the text of a log; a line that has not its form makes it fail."""
    episode, answer = Episode(task), ""
    try:
        for line in filter(str.strip, log.split("\n")):
            entry = json.loads(line)
            if "answer" in entry:
                answer = str(entry["answer"])
                break
            episode.call(str(entry["tool"]), dict(entry["arguments"]))
        return episode.judge(answer)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Verdict(False, 0.0, {"well_formed": False})
    finally:
        episode.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="data folder with one task, its plan and its success criteria")
    parser.add_argument("--log", type=Path, required=True, help="file of the calls")
    parser.add_argument("--out", type=Path, required=True, help="file of the reward, JSON")
    options = parser.parse_args()
    package = Package(options.data)
    try:
        log = options.log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SystemExit(f"{options.log}: there is no log of the calls ({error.strerror}), so there is no reward") from None
    verdict = judge_log(package.tasks(package.splits[0])[0], log)
    rewards = {"reward": float(verdict.success), "r": verdict.reward, **{name: float(holds) for name, holds in verdict.checks.items()}}
    options.out.write_text(json.dumps(rewards), encoding="utf-8")


if __name__ == "__main__":
    main()
