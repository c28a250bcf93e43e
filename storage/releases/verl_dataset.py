"""Dataset class with which verl 0.9 trains on exported conversations; an export for verl has a copy of this file.

One idea: Parquet has no form of its own for objects with other keys in each row, so `messages` and `tools` are JSON text there, which this
class parses after verl has read the files. What it does not do: render, tokenise or mask, which stays with verl's class.
"""

from __future__ import annotations

import json
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


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
