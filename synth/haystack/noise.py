"""Noise of a real log: exact and near duplicates, personal data, junk.

Slot values in the texts are between two private characters (`OPEN`, `CLOSE`), so that typos can avoid them; `remove_marks` removes these at
the end. All draws use the generator that the caller passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import polars as pl

OPEN, CLOSE = "\ue000", "\ue001"
_TRIES = 8
"""Positions tried for a typo before the text gets a filler word instead."""
_WIDE_DIGITS = {str(digit): chr(0xFF10 + digit) for digit in range(10)}
_FILLERS = {False: (" um", " well", " you know", " hmm", " like", " erm"), True: ("嗯", "那个", "就是", "呃", "啊", "哦")}
_LETTERS = "etaoinshrdlucm"
_CHINESE = re.compile("[\u4e00-\u9fff]")


def remove_marks(texts: pl.Expr) -> pl.Expr:
    """The texts without marks; also writes `a apple` as `an apple`, and 最贵的的 as 最贵的."""
    unmarked = texts.str.replace_all(f"[{OPEN}{CLOSE}]", "")
    return unmarked.str.replace_all(r"\b([Aa])([ \u200b]+)([aeioAEIO])", "${1}n${2}${3}").str.replace_all("的的", "的", literal=True)


def exact_variants(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """The rows in a form that normalisation undoes (case, spaces, punctuation ...); kind `exact`."""
    text = pl.col("text")
    variants = (
        text.str.to_uppercase(),
        text.str.to_titlecase(),
        text.str.replace_all(" ", "  ", literal=True) + " ",
        pl.lit("  ") + text + "\t",
        text.str.replace_many(_WIDE_DIGITS) + "。",
        text.str.replace(" ", " \u200b") + "\u200b",
        text + "!!",
        text + " ...",
        text + "？",
    )
    choice = pl.Series(rng.integers(0, len(variants), rows.height))
    varied = pl.coalesce(pl.when(pl.lit(choice) == number).then(variant) for number, variant in enumerate(variants))
    return rows.with_columns(text=varied, kind=pl.lit("exact"))


def near_variants(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """The rows with one typo or filler word each, never inside a slot's value; kind `near`."""
    draws = rng.random((rows.height, _TRIES + 2))
    texts = [_add_typo(text, row) for text, row in zip(rows["text"], draws.tolist(), strict=True)]
    return rows.with_columns(text=pl.Series(texts, dtype=pl.String), kind=pl.lit("near"))


def _add_typo(text: str, draws: list[float]) -> str:
    """The text with a letter removed, swapped or added, or with a filler word.

    draws: uniform numbers: one for the typo, one for its letter or word, the others for positions to try.
    """
    place = next((at for at in (int(share * len(text)) for share in draws[2:]) if _may_change(text, at)), -1)
    typo = int(draws[0] * 4)
    if place < 0:
        return text + _filler(text, draws[1])
    if typo == 1 and _may_change(text, place + 1):
        return text[:place] + text[place + 1 : place + 2] + text[place] + text[place + 2 :]
    if typo in (0, 1):
        return text[:place] + text[place + 1 :]
    if typo == 2:
        return text[:place] + _LETTERS[int(draws[1] * len(_LETTERS))] + text[place:]
    gap = text.find(" ", place)
    if gap > 0 and _is_outside(text, gap):
        return text[:gap] + _filler(text, draws[1]) + text[gap:]
    return _filler(text, draws[1]).strip() + " " + text


def _filler(text: str, share: float) -> str:
    words = _FILLERS[_CHINESE.search(text) is not None]
    return words[int(share * len(words))]


def _may_change(text: str, place: int) -> bool:
    return place < len(text) and text[place].isalpha() and _is_outside(text, place)


def _is_outside(text: str, place: int) -> bool:
    """Whether a position is outside all marked values."""
    return text.count(OPEN, 0, place) == text.count(CLOSE, 0, place) and text[place] not in (OPEN, CLOSE)


def with_personal_data(rows: pl.DataFrame, share: float, rng: np.random.Generator) -> pl.DataFrame:
    """The rows; a share of them gets an invented phone number or e-mail address at the end."""
    digits = pl.Series(rng.integers(10**7, 10**8, rows.height)).cast(pl.String)
    is_zh = pl.col("text").str.contains(r"\p{Han}")
    kind = pl.Series(np.where(rng.random(rows.height) < share, rng.integers(0, 2, rows.height), 2))
    phone = (
        pl.when(is_zh)
        .then(pl.concat_str(pl.lit("，我的电话是138"), pl.lit(digits)))
        .otherwise(pl.concat_str(pl.lit(", call me at +1 555 "), pl.lit(digits)))
    )
    mail = pl.when(is_zh).then(pl.lit("，邮箱user")).otherwise(pl.lit(", my mail is user")) + pl.lit(digits) + pl.lit("@example.com")
    tail = pl.when(pl.lit(kind) == 0).then(phone).when(pl.lit(kind) == 1).then(mail).otherwise(pl.lit(""))
    return rows.with_columns(text=pl.col("text") + tail)


# ---- junk ---------------------------------------------------------------------------------------------------------------------

_CHAT = {
    "en": (
        "hi", "hello there", "are you a robot", "how are you today", "lol", "ok", "thanks bye", "who made you", "tell me a joke",
        "good night",
        "what is your name", "I am bored", "haha that is funny", "nice", "whatever", "never mind", "do you like music", "you are so slow",
        "are you still there", "can you hear me", "I love you", "test", "testing one two", "hmm", "cool story",
    ),
    "zh": (
        "你好", "在吗", "哈哈哈", "你是机器人吗", "今天心情不好", "晚安", "你叫什么名字", "好无聊啊", "讲个笑话", "谢谢再见", "好的",
        "嗯嗯", "你真笨",
        "还在吗", "测试", "随便聊聊", "你会唱歌吗", "没事了", "算了吧", "厉害了",
    ),
}  # fmt: skip
_OTHER_SUBJECTS = {
    "en": (
        "write a poem about {}", "what is the capital of {}", "translate {} into french", "who invented {}", "explain {} to a child",
        "how do I cook {}", "give me a recipe with {}", "what is the meaning of {}", "fix my code that sorts {}",
        "summarise the history of {}",
    ),
    "zh": (
        "写一首关于{}的诗", "{}是谁发明的", "用英语怎么说{}", "{}怎么做好吃", "给孩子解释一下{}", "{}是什么意思", "介绍一下{}的历史",
        "帮我写一篇{}的作文",
    ),
}  # fmt: skip
_THINGS = {
    "en": (
        "gravity", "the moon", "dragons", "rice", "steam engines", "democracy", "tea", "volcanoes", "chess", "the ocean", "bees",
        "mathematics",
        "winter", "robots", "friendship", "ancient rome", "penguins", "electricity", "jazz", "the printing press",
    ),
    "zh": ("月亮", "友情", "恐龙", "米饭", "蒸汽机", "数学", "春天", "大海", "围棋", "火山", "蜜蜂", "电", "唐诗", "长城", "企鹅", "咖喱"),
}  # fmt: skip


def junk(count: int, zh_share: float, rng: np.random.Generator) -> pl.DataFrame:
    """Rows that ask for nothing that a world offers: chat, other subjects, random keys, links, bare personal data."""
    makers: tuple[Callable[[str, np.random.Generator], str], ...] = (_chat, _other_subject, _other_subject, _random_keys, _link, _contact)
    choice = rng.integers(0, len(makers), count)
    languages = np.where(rng.random(count) < zh_share, "zh", "en")
    texts = [makers[number](language, rng) for number, language in zip(choice.tolist(), languages.tolist(), strict=True)]
    return pl.DataFrame({"text": texts}, schema={"text": pl.String}).with_columns(kind=pl.lit("junk"))


def _pick(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[int(rng.random() * len(options))]


def _chat(language: str, rng: np.random.Generator) -> str:
    return _pick(_CHAT[language], rng) + ("", " ", "!" * int(1 + rng.random() * 4), "~", " :)")[int(rng.random() * 5)]


def _other_subject(language: str, rng: np.random.Generator) -> str:
    text = _pick(_OTHER_SUBJECTS[language], rng).format(_pick(_THINGS[language], rng))
    return f"{text} {('in', '用')[language == 'zh']} {int(rng.random() * 900)} {('words', '字')[language == 'zh']}"


def _random_keys(language: str, rng: np.random.Generator) -> str:
    letters = "asdfghjklqwertyuiop" if language == "en" else "的了啊嗯哈啦呀"
    return "".join(letters[int(share * len(letters))] for share in rng.random(4 + int(rng.random() * 20)).tolist())


def _link(language: str, rng: np.random.Generator) -> str:
    return f"https://example.com/{int(rng.random() * 1e9):x}" + ("" if language == "en" else " 看这个")


def _contact(language: str, rng: np.random.Generator) -> str:
    number = int(rng.random() * 9e8 + 1e8)
    return f"user{number}@example.com" if language == "en" else f"13{number}"
