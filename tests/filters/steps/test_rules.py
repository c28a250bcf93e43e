"""What a line of text is refused for, and what is not refused."""

import polars as pl
import pytest

from filters import normalised_text
from filters.steps import rules
from filters.steps.rules import RulesConfig


def reasons(texts: list[str], config: RulesConfig | None = None) -> list[str | None]:
    rows = normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String}))
    return rules.step(rows, config or RulesConfig())["reason"].to_list()


REFUSED = {
    "keyboard_mash": [
        "asdfghjkl",
        "sdkjfhskdjfh",
        "qwer asdf zxcv",
        "aaaaaaaaaaaaaaaa",
        "kjhkjhkjh jkhkjh",
        "hello dfkgj",
        "asdfgh",
        "哈哈哈哈哈哈哈",
    ],
    "no_words": ["hello 12345", "!!!???", "12345", "12 34 56", "..."],
    "language": ["привет как дела сегодня", "近くのカフェを教えてください"],
    "too_short": ["cafe", "x y", "店"],
    "too_long": ["find a cafe " * 300],
    "only_link": ["https://example.com/a?b=c", "www.example.com/find-a-cafe"],
    "only_personal_data": ["bob@example.com", "13812345678 bob@example.com"],
    "chit_chat": [
        "hello there!",
        "Hi, how are you?",
        "thanks, bye",
        "tell me a joke please",
        "你好，在吗",
        "谢谢，再见",
        "讲个笑话",
        "Good morning!!",
        "test test test",
        "Hello tehre. hi",
        "thanky ou so much",
        "gooood morning",
    ],
}
KEPT = [
    *(
        "find a cafe near the old bridge",
        "取消o17",
        "附近的咖啡馆",
        "thanks, please cancel order o17",
        "hello, find a hotel",
        "hello kitty",
        "你好，帮我找个酒店",
        "Hi, can you change my flight",
        "Hi there can i get a refund, thanks a lot",
        "i want pizza",
    ),
    *(
        "pleaseeeeeeee find a cafe",
        "qwerty keyboard under 50 dollars",
        "see https://example.com for the menu of the bar",
        "call 13812345678 about order o17",
    ),
    *("what is the strength of the rhythm section", "will it rain tomorrow", "天气怎么样", "hotpot!!", "find 海底捞 near me"),
]


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    assert reasons(REFUSED[reason]) == [reason] * len(REFUSED[reason])


def test_kept() -> None:
    assert [text for text, reason in zip(KEPT, reasons(KEPT), strict=True) if reason] == []


def test_languages_and_lengths_are_configured() -> None:
    assert reasons(["附近的咖啡馆", "find a cafe"], RulesConfig(languages=("en",))) == ["language", None]
    assert reasons(["cafe", "find a cafe"], RulesConfig(min_letters=3, max_chars=10)) == [None, "too_long"]


def test_batches_of_any_size_give_the_same() -> None:
    texts = [text for group in REFUSED.values() for text in group] + KEPT
    assert reasons(texts) == [reason for text in texts for reason in reasons([text])]
    assert reasons([]) == []
