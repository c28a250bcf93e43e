"""A tiny model that really emits tool calls: made and overfitted here in seconds, for tests of servers. It knows a handful of dialogues by
heart, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from storage.records import Message, Tool

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\nTools: ' }}"
    "{%- for tool in tools %}{{- tool.function.name + ' ' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content %}{{- message.content }}{%- endif %}"
    "{%- for call in message.tool_calls or [] %}"
    '{{- \'<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CALL_MARKS = ("<tool_call>", "</tool_call>")
_PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
RUN = Tool(name="run_tests", description="Runs the tests.", parameters=_PATH, server="dev", domain="dev")
READ = Tool(name="read_file", description="Reads a file.", parameters=_PATH, server="dev", domain="dev")
TOOLS = (RUN, READ)
ASKED = {
    "Run the tests in tests/unit": ("run_tests", {"path": "tests/unit"}),
    "Run the tests in tests/e2e": ("run_tests", {"path": "tests/e2e"}),
    "Show me README.md": ("read_file", {"path": "README.md"}),
    "Show me setup.py": ("read_file", {"path": "setup.py"}),
}
"""What the user says, and the call that the model has learned to make."""
TALK = {"Hello": "Hello! What can I do for you?", "Thank you": "You are welcome."}


def dialogues() -> list[list[dict[str, object]]]:
    """In the template's own form, tool calls included."""
    found: list[list[dict[str, object]]] = []
    for text, (name, arguments) in ASKED.items():
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        found.append(
            [
                {"role": "user", "content": text},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "ok", "tool_call_id": "call_0"},
                {"role": "assistant", "content": f"Done with {arguments['path']}."},
            ]
        )
    return found + [[{"role": "user", "content": one}, {"role": "assistant", "content": other}] for one, other in TALK.items()]


def said(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    texts = [json.dumps(dialogues()), TEMPLATE, " ".join(tool.model_dump_json() for tool in TOOLS)] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=list(MARKS), initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([AddedToken(mark, normalized=False) for mark in CALL_MARKS])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=MARKS[0], eos_token=MARKS[2], clean_up_tokenization_spaces=False)
    made.chat_template = TEMPLATE
    return made


def make(folder: Path, steps: int = 120) -> float:
    """Writes the model's folder; returns the last loss (nats a token of what the assistant says)."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = tokenizer()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=(len(words) + 63) // 64 * 64,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
            bos_token_id=None,
        )
    )
    tools = [tool.to_openai() for tool in TOOLS]
    rows, targets = [], []
    for dialogue in dialogues():
        for end in (place for place, message in enumerate(dialogue) if message["role"] == "assistant"):
            for offered in (tools, None):
                prompt = words.apply_chat_template(dialogue[:end], tools=offered, add_generation_prompt=True, tokenize=False)
                whole = words.apply_chat_template(dialogue[: end + 1], tools=offered, tokenize=False)
                start, ids = len(words.encode(prompt)), words.encode(whole)
                rows.append(torch.tensor(ids))
                targets.append(torch.tensor([-100] * start + ids[start:]))
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=words.pad_token_id or 0)
    labels = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=-100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(steps):
        loss = model(input_ids=ids, attention_mask=(ids != words.pad_token_id).long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return float(loss.detach())
