"""A cascade starts from a model of one's own; what cannot be trained for tool use is refused in one line before anything is trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from flows.config import Config, read
from flows.dry_run import plan
from storage.errors import BadInput
from storage.records import Outcome
from storage.releases.lineage import lineage
from storage.store import Store
from synth.conversations.expert import expert_trajectory
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.hf import HFEngine
from synth.rollouts.draws import rollout
from synth.worlds import WORLDS
from tests.synth.engines.local.chat_tokenizers import chat_template, chat_tokenizer
from tests.train.base_folders import write_base
from tests.train.in_process import run_here
from tests.train.tiny_policies import expert_store, retail_tasks
from train.cascade import Cascade
from train.config import CascadeConfig
from train.models.base_model import check_base_model, model_id, resolve_model, window_of
from train.models.weight_files import parameters_of
from train.spec import SFTSettings

TASKS = retail_tasks("order_status", "close_order", each=4)
SFT = SFTSettings(max_steps=2, batch_size=4, learning_rate=1e-3, warmup_steps=0)
SHORT = SFT.model_copy(update={"max_steps": 1, "batch_size": 1})


TEXTS = [message.content or "" for task in TASKS for message in expert_trajectory(WORLDS["retail"], task).messages]
TEXTS += [json.dumps(tool.to_openai()) for tool in WORLDS["retail"].tools]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base") / "model", TEXTS)


def changed(base: Path, folder: Path, change: Callable[[Path], object]) -> Path:
    change(Path(shutil.copytree(base, folder)))
    return folder


def write_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))


def test_a_stage_without_a_parent_starts_from_the_base_and_its_id_says_which(base: Path, tmp_path: Path) -> None:
    """Given a base model, then the first stage trains it, prompts list the tools, and another base is another stage."""
    store, _ = expert_store(tmp_path / "store", TASKS)
    config = CascadeConfig(worlds=("retail",), model=str(base), synthesised_share=0.0)
    cascade = Cascade(store, config, run=run_here)
    items = cascade.scripted_experts(TASKS)
    release = cascade.seed_release(items)
    policy = cascade.stage("sft1", None, release, "seed", SFT)
    spec = json.loads(store.query("SELECT spec FROM stages").item())
    assert f"began with\n  base model {base}\nlearned from" in str(lineage(store, policy.id))
    assert spec["model_in"] == str(base) and (policy.path / "chat_template.jinja").read_text() == chat_template("qwen2_5")
    assert json.loads((policy.path / "config.json").read_text())["vocab_size"] > 700
    assert Cascade(store, config, run=None).stage("sft1", None, release, "seed", SFT) == policy, "trained once"

    other = changed(base, tmp_path / "other", lambda folder: (folder / "chat_template.jinja").write_text(chat_template("qwen2_5") + "\n"))
    assert model_id(other) != model_id(base)
    with pytest.raises(Launched):
        Cascade(store, config.model_copy(update={"model": str(other)}), run=launch).stage("sft1", None, release, "seed", SFT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3_1", "mistral_v3", "gptoss"])
def test_a_base_of_another_family_trains_and_plays(tmp_path: Path, name: str) -> None:
    """Given a base model of this family, then a stage trains it, and its policy's answers are judged like any other's."""
    base = write_base(tmp_path / "base", TEXTS, chat_template=name, positions=16_384)
    store, _ = expert_store(tmp_path / "store", TASKS)
    cascade = Cascade(store, CascadeConfig(worlds=("retail",), model=str(base), synthesised_share=0.0), run=run_here)
    policy = cascade.stage("sft1", None, cascade.seed_release(cascade.scripted_experts(TASKS)), "seed", SHORT)
    rollouts = rollout(HFEngine(policy.path), TASKS[:1], 1, max_tokens=4)
    assert {one.outcome for one in rollouts} == {Outcome.POLICY_FAILURE}
    assert all(turn.token_ids for one in rollouts for turn in one.turns)


def test_conversations_beyond_the_window_are_counted_for_the_user(tmp_path: Path) -> None:
    """Given a window that some conversations outgrow with their tools, then the cascade warns how many its stage has left out."""
    base = write_base(tmp_path / "base", TEXTS)
    chat_format = ChatFormat(AutoTokenizer.from_pretrained(base))
    experts = [expert_trajectory(WORLDS["retail"], task).messages for task in TASKS]
    tools = {tool.name: tool for tool in WORLDS["retail"].tools}
    lengths = sorted(
        len(chat_format.prompt_ids(one, [tools[name] for name in task.tools])) for one, task in zip(experts, TASKS, strict=True)
    )
    write_json(base / "config.json", max_position_embeddings=lengths[-1] - 1)
    store, _ = expert_store(tmp_path / "store", TASKS)
    cascade = Cascade(store, CascadeConfig(worlds=("retail",), model=str(base), synthesised_share=0.0), run=run_here)
    release = cascade.seed_release(cascade.scripted_experts(TASKS))
    too_long = sum(length > lengths[-1] - 1 for length in lengths)
    with pytest.warns(UserWarning, match=rf"stage sft1: of 8 conversations .*: {too_long} longer than [\d,]+ tokens"):
        cascade.stage("sft1", None, release, "seed", SFT)


class Launched(Exception):
    pass


def launch(*_: object) -> None:
    raise Launched


def test_the_window_is_the_models(base: Path, tmp_path: Path) -> None:
    assert window_of(base) == 4096 == Cascade(Store(tmp_path / "store"), CascadeConfig(worlds=("retail",), model=str(base))).window


def test_a_sound_folder_passes(base: Path) -> None:
    check_base_model(base)
    assert resolve_model(str(base)) == base


NO_TOOLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_CALLS = "{{ tools }}" + NO_TOOLS
NO_RESULTS = chat_template("qwen3").replace('message.role == "tool"', 'message.role == "nobody"')


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
        (lambda folder: (folder / "chat_template.jinja").write_text(NO_TOOLS), "does not list the tools on offer"),
        (lambda folder: (folder / "chat_template.jinja").write_text(chat_template("llama3_1")), "no special token of the tokenizer"),
        (
            lambda folder: (folder / "chat_template.jinja").write_text(chat_template("qwen3_5_nothink")),
            "writes them in a form that the engine of rollouts does not read",
        ),
        (lambda folder: (folder / "chat_template.jinja").write_text(NO_CALLS), "drops calls, or writes them"),
        (lambda folder: (folder / "chat_template.jinja").write_text(NO_RESULTS), "drops what tools answer"),
        (lambda folder: cut(folder / "model.safetensors"), "model.safetensors is cut off"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "model.safetensors is cut off, or holds no weights"),
        (
            lambda folder: write_json(folder / "config.json", eos_token_id=300),
            "token 300, which is the word .* of another model",
        ),
        (
            lambda folder: (folder / "chat_template.jinja").write_text("{{ raise_exception('no tools') }}"),
            "the chat template fails .no tools",
        ),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "as pickles, which can run any program"),
        (
            lambda folder: write_json(folder / "model.safetensors.index.json", weight_map={"a": "model-2.safetensors"}),
            "lacks 1 of its weight files, model-2.safetensors",
        ),
        (lambda folder: write_json(folder / "config.json", vocab_size=9), "is the tokenizer of another model"),
        (lambda folder: write_json(folder / "config.json", max_position_embeddings=None), "the longest conversation is unknown"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "its tokenizer cannot be loaded"),
        (lambda folder: (folder / "config.json").unlink(), "no Hugging Face model folder"),
    ],
)
def test_a_folder_that_cannot_be_trained_is_refused_in_one_line(
    base: Path, tmp_path: Path, change: Callable[[Path], object], said: str
) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        check_base_model(changed(base, tmp_path / "model", change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["/nowhere/model", "./model", "model"])
def test_a_folder_that_is_not_there_is_said_by_name(name: str) -> None:
    with pytest.raises(BadInput, match=f"there is no folder {name}"):
        resolve_model(name)


def test_a_hub_that_gives_nothing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError("offline\nmore")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuses)
    with pytest.raises(BadInput, match=r"Qwen/Qwen3-0.6B is no folder here, and the hub does not give it \(OSError: offline\)"):
        resolve_model("Qwen/Qwen3-0.6B")


def test_parameters_are_those_of_the_weights(base: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    assert parameters_of(base) == sum(weights.numel() for weights in model.state_dict().values()) - model.lm_head.weight.numel() * (
        model.config.tie_word_embeddings
    )


def test_a_dry_run_says_what_a_base_model_takes(base: Path, tmp_path: Path) -> None:
    config = Config(store=tmp_path / "store", train=CascadeConfig(model=str(base)))
    rows = {row["step"]: row["what"] for row in plan(config, ["train"]).rows}
    assert f"{parameters_of(base) / 1e6:,.1f} M parameters" in rows["model"] and "GiB a process" in rows["sft1"]
    (base_free,) = [row for row in plan(Config(store=tmp_path / "store"), ["train"]).rows if row["step"] == "sft1"]
    assert "conversations (up to" in base_free["what"]


def write_header(folder: Path, **shape: int) -> Path:
    """A Qwen3 folder whose weights are a header and a hole, for estimates that read no more."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder.mkdir()
    config = Qwen3Config(**shape, head_dim=128, tie_word_embeddings=False)
    with torch.device("meta"):
        weights = Qwen3ForCausalLM(config).state_dict()
    header, end = {}, 0
    for name, tensor in weights.items():
        begin, end = end, end + 2 * tensor.numel()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    config.save_pretrained(folder)
    chat_tokenizer("qwen3", ["hello"]).save_pretrained(folder)
    return folder


def test_a_dry_run_of_eight_billion_weights_on_eight_gpus_says_memory_and_time(tmp_path: Path) -> None:
    """Given Qwen3-8B's shape, then sharding divides what a GPU holds, and a plan reads no weights."""
    shape = {"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8}
    folder = write_header(tmp_path / "eight", vocab_size=151_936, max_position_embeddings=40_960, **shape)
    sft = {
        "name": "sft1",
        "learning_rate": 1e-5,
        "pack_tokens": 8192,
        "batch_size": 64,
        "micro_batch_size": 1,
        "gradient_checkpointing": True,
    }
    held = {}
    for sharding in ("none", "fsdp"):
        cluster = {"address": "http://head:8265", "gpus_per_node": 8, "sharding": sharding}
        train = {"model": str(folder), "backend": "ray", "cluster": cluster, "stages": [sft]}
        rows = {row["step"]: row for row in plan(Config.model_validate({"store": tmp_path / "store", "train": train}), ["train"]).rows}
        assert rows["model"]["what"].endswith("8,190.7 M parameters, window 40,960 tokens") and rows["sft1"]["about"] == "39 min"
        held[sharding] = float(rows["sft1"]["what"].partition("about ")[2].partition(" GiB a GPU")[0])
    assert held["none"] > 122 and held["fsdp"] == pytest.approx(held["none"] - 122.1 * 7 / 8, abs=1)
    assert "without rollouts" in rows["rl"]["what"] and not (tmp_path / "store").exists()


def test_the_example_for_a_gpu_is_a_whole_cascade() -> None:
    config = read(Path(__file__).parents[3] / "configs" / "gpu.yaml")
    assert [stage.name for stage in config.train.cascade] == ["sft1", "sft2", "rl"] and config.train.model is not None
    assert all(stage.learning_rate <= 1e-5 for stage in config.train.cascade)
