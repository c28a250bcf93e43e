"""Exports render with the chat templates that TRL ships, and train there; a form that a template does not take is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hour_sections import templates
from storage.releases.export_rows import DEFAULT_FORM, MessageForm
from storage.store import Store
from tests.synth.engines.local.chat_tokenizers import chat_tokenizer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A third of the measurement's conversations of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "KINDS", dict.fromkeys(templates.KINDS, 3))
        yield templates.make_conversations(tmp_path_factory.mktemp("made") / "store", accepted=80)


def test_every_template_with_tools_renders_the_export_that_the_card_names(store: Store, tmp_path: Path) -> None:
    names = templates.with_tools()
    loaded = {form: templates.load(store, tmp_path, form) for form in {templates.form_of(name) for name in names}}
    faults = {name: found for name in names if (found := templates.find_faults(name, loaded[templates.form_of(name)]))}
    assert len(names) >= 12 and not faults, {name: found[0] for name, found in faults.items()}


@pytest.mark.parametrize(
    ("name", "form", "says"),
    [
        ("qwen2_5", MessageForm("text"), "encoded twice"),
        ("qwen3_5_think", MessageForm("text"), "mapping"),
        ("llama3_1", DEFAULT_FORM, "single tool-calls"),
        ("llama3", DEFAULT_FORM, "is not there"),
    ],
)
def test_a_form_that_a_template_does_not_take_is_noticed(store: Store, tmp_path: Path, name: str, form: MessageForm, says: str) -> None:
    assert any(says in fault for fault in templates.find_faults(name, templates.load(store, tmp_path, form)))


@pytest.mark.parametrize(("name", "marks_answers"), [("qwen2_5", True), ("llama3_1", False)])
def test_trl_trains_a_step_on_the_exported_folder(store: Store, tmp_path: Path, name: str, marks_answers: bool) -> None:
    """Given a template that marks what the assistant says, or one that does not, then stock TRL trains without a change of the rows."""
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import SFTConfig, SFTTrainer

    rows = templates.load(store, tmp_path, templates.form_of(name))
    tokenizer = chat_tokenizer(name, [str(row["messages"]) for row in rows])
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), head_dim=8, **shape))
    folder = tmp_path / f"{templates.form_of(name).arguments}-{templates.form_of(name).calls}"
    dataset = Dataset.from_parquet(str(folder / "sft.conversations.parquet"), cache_dir=str(tmp_path / "cache")).select(range(4))
    settings = SFTConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        max_length=8192,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        bf16=False,
    )
    settings.assistant_only_loss, settings.save_strategy = marks_answers, "no"
    before = model.lm_head.weight.detach().clone()
    trained = SFTTrainer(model=model, args=settings, train_dataset=dataset, processing_class=tokenizer).train()
    assert trained.training_loss > 0 and not before.equal(model.lm_head.weight)
