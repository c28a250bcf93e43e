"""Dataset classes with which verl 0.9 trains on exported rows; an export for verl has a copy of this file.

One idea: Parquet has no form of its own for objects with other keys in each row, so messages and tools are JSON text there, which these
classes parse. Two things that verl's own classes get wrong for such rows are put right: results of parallel calls are one turn of a chat
template, but verl renders each message alone and then refuses the conversation; and verl measures a prompt without the tools of its row.
What they do not do: render other messages, or mask, which stays with verl's classes.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.tokenizer import normalize_token_ids


class ExportedConversations(MultiTurnSFTDataset):  # type: ignore[misc]
    """`MultiTurnSFTDataset` over files of `headrace export --format verl`: set it as `data.custom_cls`."""

    tools: list[Any]
    """By row: a JSON text, then the tools in OpenAI form; None: no tools."""

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        self.tools = [json.loads(text) or None for text in self.tools]

    def _build_messages(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        parsed = {**example, self.messages_key: json.loads(example[self.messages_key])}
        messages: list[dict[str, Any]] = super()._build_messages(parsed)
        return messages

    def _process_single_message(
        self,
        index: int,
        message: dict[str, Any],
        full_message: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        enable_thinking: bool | None = None,
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Token ids, loss mask, attention mask and other inputs of a message; all results of parallel calls come with the last of them."""
        if message["role"] != "tool":
            found: tuple[Any, Any, Any, dict[str, Any]] = super()._process_single_message(
                index, message, full_message, tools, enable_thinking
            )
            return found
        if index + 1 < len(full_message) and full_message[index + 1]["role"] == "tool":
            nothing = torch.empty(0, dtype=torch.long)
            return nothing, nothing, nothing, {}
        first = index
        while full_message[first - 1]["role"] == "tool":
            first -= 1
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        rendered = self.tokenizer.apply_chat_template(
            full_message[first : index + 1],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            **{**self.apply_chat_template_kwargs, **thinking},
        )
        ids = rendered["input_ids"][0][len(self.system_prompt) :]
        return ids, torch.zeros_like(ids), torch.ones_like(ids), {}


class ExportedPrompts(RLHFDataset):  # type: ignore[misc]
    """`RLHFDataset` over files of `headrace export --format verl`, less the prompts that are too long with the tools of their row."""

    def maybe_filter_out_long_prompts(self, dataframe: Any = None) -> Any:
        if not self.filter_overlong_prompts:
            return dataframe
        tokenizer, key, most, given = self.tokenizer, self.prompt_key, self.max_prompt_length, dict(self.apply_chat_template_kwargs)

        def fits(row: dict[str, Any]) -> bool:
            tools = json.loads(row["extra_info"]["tools"]) or None
            ids = tokenizer.apply_chat_template(row[key], tools=tools, add_generation_prompt=True, tokenize=True, **given)
            return bool(len(normalize_token_ids(ids)) <= most)

        kept = dataframe.filter(fits, num_proc=self.num_workers, desc=f"Leaving out prompts longer than {most} tokens, tools included")
        print(f"{len(dataframe) - len(kept)} of {len(dataframe)} prompts are longer than {most} tokens with their tools, and left out")
        return kept
