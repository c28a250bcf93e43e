"""Many requests at once through vLLM without a server: for probing a policy on thousands of prompts, where every one is known beforehand.

A child process in vLLM's own environment reads the requests from a file, renders and answers them in one batch, and writes what it sampled
to another; it imports nothing of ours. Tool calls are read out of the text here, as of every model of our own (`hermes.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from storage.errors import BadInput, HeadraceError
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.hermes import parse_hermes
from synth.engines.vllm import CPU_ENGINE, VLLMConfig, has_gpu, server_environment

_PROGRAM = """
import json, sys
from vllm import LLM, SamplingParams
told = json.load(open(sys.argv[1]))
llm = LLM(**told["engine"])
parameters = [SamplingParams(**one["sampling"]) for one in told["requests"]]
prompts = [
    llm.get_tokenizer().apply_chat_template(one["messages"], tools=one["tools"] or None, add_generation_prompt=True, tokenize=False)
    for one in told["requests"]
]
found = llm.generate(prompts, parameters, use_tqdm=False)
rows = [
    {
        "text": one.outputs[0].text,
        "token_ids": list(one.outputs[0].token_ids),
        "logprobs": [step[token].logprob for step, token in zip(one.outputs[0].logprobs, one.outputs[0].token_ids)],
        "finish_reason": one.outputs[0].finish_reason,
        "prompt_tokens": len(one.prompt_token_ids),
    }
    for one in found
]
json.dump(rows, open(sys.argv[2], "w"))
"""
_TAIL = 12


def answer_in_bulk(config: VLLMConfig, requests: Sequence[ChatRequest], folder: Path) -> list[ChatAnswer]:
    """One answer a request, in the requests' order. folder: for what goes in and out, and the log.

    Raises:
        BadInput: vLLM is not installed in the environment. HeadraceError: it failed; with the end of its log.
    """
    if not config.python.exists():
        raise BadInput(f"no vLLM at {config.environment}: `make vllm` installs it there, or name the environment that has it")
    folder.mkdir(parents=True, exist_ok=True)
    asked, answered, log = (folder / name for name in ("requests.json", "answers.json", "vllm.log"))
    answered.unlink(missing_ok=True)
    asked.write_text(json.dumps({"engine": _engine(config), "requests": [_told(request) for request in requests]}))
    environment = server_environment() | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    with log.open("wb") as out:
        command = [str(config.python), "-c", _PROGRAM, str(asked.absolute()), str(answered.absolute())]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, check=False)
    if done.returncode or not answered.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])
        raise HeadraceError(f"vLLM ended with code {done.returncode}; the end of {log}:\n{tail}")
    return [
        ChatAnswer(
            parse_hermes(row["text"]),
            "length" if row["finish_reason"] == "length" else "tool_calls" if "<tool_call>" in row["text"] else "stop",
            token_ids=tuple(row["token_ids"]),
            logprobs=tuple(row["logprobs"]),
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=len(row["token_ids"]),
            policy_version=f"vllm:{config.model}",
        )
        for row in json.loads(answered.read_text())
    ]


def _engine(config: VLLMConfig) -> dict[str, object]:
    told: dict[str, object] = {"model": config.model, "seed": config.seed, "max_num_seqs": config.max_num_seqs}
    if config.max_model_len is not None:
        told["max_model_len"] = config.max_model_len
    return told if has_gpu() else told | dict(CPU_ENGINE)


def _told(request: ChatRequest) -> dict[str, object]:
    sampling = {"temperature": request.temperature, "max_tokens": request.max_tokens, "seed": request.seed % 2**63, "logprobs": 0}
    messages = [message.to_openai() for message in request.messages]
    return {"messages": messages, "tools": [tool.to_openai() for tool in request.tools], "sampling": sampling}
