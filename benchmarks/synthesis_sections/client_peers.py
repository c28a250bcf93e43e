"""One contestant of the comparison of clients (`client.py`), in a process and an environment of its own.

    python -m benchmarks.synthesis_sections.client_peers NAME URL CALLS FOLDER

It asks a mock server `q 0`, `q 1` and so on, at most 250 in flight, in its own plainest way, as its documentation shows for a server that
speaks as OpenAI's does. It writes below FOLDER alone, and prints how many answers it got. The imports at the head of this file are all that
the peers' environments share with ours.

curator asks through LiteLLM: its own OpenAI backend fetches files of tiktoken first, which needs the network. Data Designer wants the same
files for a statistic of its own, warns, and goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

IN_FLIGHT = 250
MODEL = "mock"


def headrace(url: str, calls: int, folder: Path) -> int:
    """All at once, as its peers are asked."""
    requests = _requests(calls)
    with _engine(url, folder) as (engine, answers):
        right = sum(_is_right(request, answer) for request, answer in zip(requests, engine.chat(requests), strict=True))
        answers.commit()
        return right


def headrace_threads(url: str, calls: int, folder: Path) -> int:
    """One by one from as many threads as calls may be in flight, as conversations ask."""
    requests = _requests(calls)
    with _engine(url, folder) as (engine, answers), ThreadPoolExecutor(IN_FLIGHT) as threads:
        given = threads.map(lambda request: engine.chat([request])[0], requests)
        right = sum(_is_right(request, answer) for request, answer in zip(requests, given, strict=True))
        answers.commit()
        return right


def _requests(calls: int) -> list[Any]:
    from storage.records import Message
    from synth.engines.base import ChatRequest

    return [ChatRequest((Message(role="user", content=f"q {number}"),)) for number in range(calls)]


@contextlib.contextmanager
def _engine(url: str, folder: Path) -> Iterator[tuple[Any, Any]]:
    """With a store of its own: answers are looked up, kept in its journal, and committed at the end."""
    from storage.store import Store
    from synth.engines.cache import Answers
    from synth.engines.openai import OpenAIConfig, OpenAIEngine

    config = OpenAIConfig(model=MODEL, base_url=url, in_flight=IN_FLIGHT)
    answers = Answers(Store(folder / "store"))
    with OpenAIEngine(config, answers=answers) as engine:
        yield engine, answers
    answers.close()


def _is_right(request: Any, answer: Any) -> bool:
    """The mock says everything backwards."""
    return bool(answer.message.content == request.messages[0].content[::-1])


def distilabel(url: str, calls: int, folder: Path) -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from distilabel.models import OpenAILLM
    from distilabel.pipeline import Pipeline
    from distilabel.steps import LoadDataFromDicts
    from distilabel.steps.tasks import TextGeneration

    with Pipeline(name="bench", cache_dir=folder) as pipeline:
        rows = LoadDataFromDicts(data=[{"instruction": f"q {number}"} for number in range(calls)], batch_size=IN_FLIGHT)
        rows >> TextGeneration(llm=OpenAILLM(model=MODEL, base_url=url, api_key="x"), input_batch_size=IN_FLIGHT)
    made = pipeline.run(use_cache=False)["default"]["train"]
    return sum(bool(text) for text in made["generation"])


def data_designer(url: str, calls: int, folder: Path) -> int:
    os.environ["NEMO_TELEMETRY_ENABLED"] = "false"
    import data_designer.config as dd
    from data_designer.interface import DataDesigner

    provider = dd.ModelProvider(name="mock", endpoint=url, provider_type="openai", api_key="x")
    parameters = dd.ChatCompletionInferenceParams(max_parallel_requests=IN_FLIGHT)
    model = dd.ModelConfig(alias="m", model=MODEL, provider="mock", inference_parameters=parameters)
    designer = DataDesigner(model_providers=[provider], artifact_path=folder)
    designer.set_run_config(dd.RunConfig(display_tui=False))
    builder = dd.DataDesignerConfigBuilder(model_configs=[model])
    sampled = dd.CategorySamplerParams(values=[f"{number}" for number in range(calls)])
    builder.add_column(dd.SamplerColumnConfig(name="c", sampler_type=dd.SamplerType.CATEGORY, params=sampled))
    builder.add_column(dd.LLMTextColumnConfig(name="r", model_alias="m", prompt="q {{ c }}"))
    made = designer.create(builder, num_records=calls).load_dataset()
    return int(made["r"].str.len().gt(0).sum())


def curator(url: str, calls: int, folder: Path) -> int:
    settings = {"CURATOR_DISABLE_CACHE": "1", "TELEMETRY_ENABLED": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    os.environ.update(settings | {"CURATOR_CACHE_DIR": str(folder)})
    from bespokelabs import curator

    asked = {"base_url": url, "max_concurrent_requests": IN_FLIGHT, "max_requests_per_minute": 10**7, "max_tokens_per_minute": 10**9}
    made = curator.LLM(model_name=f"hosted_vllm/{MODEL}", backend="litellm", backend_params=asked)(
        [f"q {number}" for number in range(calls)]
    )
    dataset = getattr(made, "dataset", made)
    return sum(bool(text) for text in dataset["response"])


CONTESTANTS = {one.__name__: one for one in (headrace, headrace_threads, distilabel, data_designer, curator)}


def main() -> int:
    name, url, calls, folder = sys.argv[1:5]
    print("answered", CONTESTANTS[name](url, int(calls), Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
