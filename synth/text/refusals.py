"""How a refusal is worded, and how it names its reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from storage.records import Language, RefusalReason
from synth.text.claims import normalise

REFUSALS: Mapping[RefusalReason, Mapping[Language, str]] = MappingProxyType(
    {
        RefusalReason.MISSING_TOOL: {"en": "I have no tool for that.", "zh": "我没有这样的工具。"},
        RefusalReason.MISSING_INFORMATION: {"en": "Please tell me more about what you need.", "zh": "请告诉我更多信息。"},
        RefusalReason.RULE: {"en": "That is against the rules.", "zh": "按规定不能这样做。"},
        RefusalReason.NOT_ACTIONABLE: {"en": "That is impossible for anyone.", "zh": "这谁也办不到。"},
    }
)
"""The expert's answer where a world says that refusing is right, but not in which words."""

REFUSAL_PHRASES: Mapping[RefusalReason, tuple[str, ...]] = MappingProxyType(
    {
        reason: tuple(phrases.split("|"))
        for reason, phrases in {
            RefusalReason.MISSING_TOOL: (
                "no tool|not have a tool|n't have a tool|without a tool|none of my tools|missing tool|not supported|"
                "没有这样的工具|没有相应的工具|没有工具|缺少工具|工具不支持|不支持"
            ),
            RefusalReason.MISSING_INFORMATION: (
                "please tell me|please provide|please specify|could you tell me|could you provide|can you tell me|"
                "need to know|need more information|missing information|"
                "请告诉我|请提供|请说明|需要知道|需要更多信息|缺少信息"
            ),
            RefusalReason.RULE: (
                "against the rules|rules do not allow|rules don't allow|not allowed|not permitted|rule forbids|"
                "rules forbid|"
                "规定|规则|不允许"
            ),
            RefusalReason.NOT_ACTIONABLE: (
                "impossible|nothing i can do|nobody can|no one can|cannot be done by anyone|not actionable|"
                "谁也办不到|无法执行|不可能|无能为力"
            ),
        }.items()
    }
)
"""How a refusal names its reason: it contains at least one phrase of that reason, and none of another."""


def refusal_reasons(answer: str) -> set[RefusalReason]:
    """The reasons that a text names (`REFUSAL_PHRASES`)."""
    text = normalise(answer)
    return {reason for reason, phrases in REFUSAL_PHRASES.items() if any(phrase in text for phrase in phrases)}
