"""Rollouts by a vLLM server that follows the policy in training.

One idea: before each batch the server gets the trainer's weights, and after it the server sleeps, so trainer and server take turns on one
GPU. The weights go through a model folder in the stage's scratch folder.
The server starts with random weights, and after every update the log-probabilities of a fixed text must equal those of the trainer's own
forward pass: what no update reaches shows in the first, and is an error, not a batch. In bf16 rounding hides an update that is missed
later, until the policy has moved by more than the tolerance.

What it does not do: talk to vLLM (`synth/engines/vllm_tokens.py`), play (`train/rl/rollout_batches.py`), or correct the loss for the
rounding of 16-bit weights, in which server and trainer differ a little: the metric `sampled_kl` has it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from storage.errors import HeadraceError
from storage.files import disk_errors
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.hf import ends_in
from synth.engines.vllm import VLLMConfig, check_installed, has_gpu, serving
from synth.engines.vllm_tokens import VLLMTokenEngine
from train.device import autocast, uses_bf16
from train.models.adapters import without_wrapper
from train.spec import Precision, RLSettings, RolloutEngine
from train.tiny import CHAT_TEMPLATE

LOG = "vllm.log"
"""The server's output, beside the stage's log."""
MAX_CONVERSATIONS = 256
"""Most answers that the server generates at once; further ones wait."""
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Mean difference of a token's log-probability between server and trainer, in nats, above which it is not rounding; by the server's
floats."""
_PROBE = (
    "An agent books trains, answers questions about orders, and cancels nothing that it was not asked to. The user says: find order 4711, "
    'tell me what it cost (12.50 or more?), then close it. <tool_call>{"name": "close_order", "arguments": {"order_id": "o17"}}</tool_call>'
)


class PolicyServer:
    """A server that plays a model's rollouts.

    Args:
        model: the model in training.
        engine: of a running server, whose weights it replaces.
        scratch: folder for weights on their way.
        precision: of the trainer's forward passes, and so of the server.
    """

    def __init__(self, model: Any, tokenizer: Any, engine: VLLMTokenEngine, scratch: Path, precision: Precision = "auto") -> None:
        self._model, self.engine, self._weights, self._precision = model, engine, scratch / "weights", precision
        self._probe: list[int] = tokenizer(_PROBE, add_special_tokens=False)["input_ids"][: engine.max_length - 1]
        engine.sleep()

    @contextmanager
    def awake(self) -> Iterator[None]:
        """The engine has the model's present weights, for one batch. Outside, the server has freed its memory.

        Raises:
            EngineFailure: the server ended, or did not take the weights. HeadraceError: its weights are not the trainer's.
        """
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        with disk_errors("handing weights to vLLM", self._weights):
            write_served(self._model, self._weights, served_dtype(self._precision))
        self.engine.load_weights(self._weights)
        shutil.rmtree(self._weights)
        self._verify()
        yield
        self.engine.sleep()

    def _verify(self) -> None:
        """Compares the server's policy with the trainer's."""
        with autocast(self._precision):
            own = logprobs_of(self._model, self._probe)
        served = torch.tensor(self.engine.token_logprobs(self._probe))
        difference, tolerance = float((served - own).abs().mean()), TOLERANCES[served_dtype(self._precision)]
        if not difference <= tolerance:  # or it is no number
            raise HeadraceError(
                f"vLLM does not play the policy in training: its log-probabilities differ by {difference:.3g} nats a token, where rounding "
                f"explains {tolerance:g}; set rl.rollouts to hf, or use the version of vLLM that `make vllm` installs"
            )


@contextmanager
def serve_policy(settings: RLSettings, model: Any, tokenizer: Any, *, scratch: Path, folder: Path) -> Iterator[PolicyServer | None]:
    """A server for the rollouts of a stage; None where our own engine plays them.

    folder: of the stage; gets the server's log.

    Raises:
        BadInput: vLLM is to play and is not installed. HeadraceError: the server did not start; the message has the end of its log.
    """
    start = scratch / "served"
    if settings.staleness or not is_served(settings.rollouts, tokenizer):
        yield None
        return
    with disk_errors("handing weights to vLLM", start):
        write_served(model, start, served_dtype(settings.precision))
        tokenizer.save_pretrained(start)
    at_once = min(settings.tasks_a_step * settings.draws, MAX_CONVERSATIONS)
    config = VLLMConfig(model=str(start), tool_parser=None, max_num_seqs=at_once, is_trained=True, flags=_flags(settings))
    with ExitStack() as stack:
        server = stack.enter_context(serving(config, folder / LOG))
        shutil.rmtree(start)
        chat_format = ChatFormat(tokenizer, ends_in(model.generation_config))
        engine = VLLMTokenEngine(server, str(start), chat_format, in_flight=at_once, policy_version=folder.name)
        yield PolicyServer(model, tokenizer, stack.enter_context(engine), scratch, settings.precision)


@contextmanager
def serve_folder(folder: Path, *, log: Path, policy_version: str) -> Iterator[VLLMTokenEngine]:
    """An engine with a server of its own for a policy whose weights stay as they are. Raises as `serve_policy`."""
    from transformers import AutoTokenizer, GenerationConfig

    flags = ("--dtype", str(served_dtype("auto")).removeprefix("torch."), *(("--max-model-len", "auto") if has_gpu() else ()))
    config = VLLMConfig(model=str(folder), tool_parser=None, max_num_seqs=MAX_CONVERSATIONS, flags=flags)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    chat_format = ChatFormat(tokenizer, ends_in(GenerationConfig.from_pretrained(folder)))
    with (
        serving(config, log) as server,
        VLLMTokenEngine(server, str(folder), chat_format, in_flight=MAX_CONVERSATIONS, policy_version=policy_version) as engine,
    ):
        yield engine


def is_served(wanted: RolloutEngine, tokenizer: Any) -> bool:
    """Whether vLLM plays rollouts on this machine. Raises BadInput if it is to play and is not installed."""
    config = VLLMConfig(model="policy")
    if wanted == "vllm":
        check_installed(config)
        return True
    return wanted == "auto" and has_gpu() and config.python.exists() and tokenizer.chat_template != CHAT_TEMPLATE


def _flags(settings: RLSettings) -> tuple[str, ...]:
    """The floats; on a GPU also the share of its memory, and as long a context as fits there."""
    dtype = ("--dtype", str(served_dtype(settings.precision)).removeprefix("torch."))
    return (*dtype, "--gpu-memory-utilization", str(settings.vllm_memory_share), "--max-model-len", "auto") if has_gpu() else dtype


# ---- weights -------------------------------------------------------------------------------------------------------------------------


def served_dtype(precision: Precision) -> torch.dtype:
    """The floats that the server computes in on this machine."""
    return torch.bfloat16 if uses_bf16(precision) else torch.float32


def logprobs_of(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-probability of each token after the first, at temperature 1, by the model's own forward pass."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids], device=model.device)).logits[0, :-1].float().cpu()
    model.train(was_training)
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def write_served(model: Any, folder: Path, dtype: torch.dtype) -> None:
    """Writes a model folder for vLLM in these floats, without tokenizer; adapters are merged into the weights, the model stays as it is.

    On a CPU, a head that shares the weights of the embeddings is written as weights of its own: there vLLM keeps a copy of the head, which
    an update of the embeddings does not reach.
    """
    base = without_wrapper(model)
    is_untied = bool(base.config.tie_word_embeddings) and not has_gpu()
    places: set[object] = set()
    weights = {}
    for name, tensor, layer in _parts(base):
        place = (tensor.data_ptr(), tensor.shape)
        if is_untied or place not in places:
            weights[name] = _merge(tensor, layer).to("cpu", dtype, copy=is_untied)
        places.add(place)
    base.save_pretrained(folder, state_dict=weights)
    if is_untied:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))


def _parts(base: Any) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """Name (as without adapters) and tensor of every weight, and its layer if that has LoRA adapters."""
    adapted = {f"{name}.weight": layer for name, layer in base.named_modules() if hasattr(layer, "get_delta_weight")}
    for name, tensor in base.state_dict().items():
        if ".lora_" not in name:
            plain = name.replace(".base_layer.", ".")
            yield plain, tensor, adapted.get(plain)


def _merge(tensor: torch.Tensor, layer: Any) -> torch.Tensor:
    """A weight with the adapters of its layer added."""
    for adapter in layer.active_adapters if layer is not None else ():
        tensor = tensor + layer.get_delta_weight(adapter).detach()
    return tensor
