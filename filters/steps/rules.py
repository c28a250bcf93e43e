"""Rules that drop a text without reading its meaning: its language, its length, or that it is no request.

Each rule is one pattern over the normalised text, with ASCII classes and anchors where possible (0.02 to 0.2 us a row); the first match
gives the reason. Noise inside a good request ("pleaseeeeee find a cafe") is no reason: most letters must be noise. Grounding drops what the
rules do not catch.
"""

from __future__ import annotations

from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.normalised_text import LETTERS_A_HAN
from filters.personal import MASK
from filters.step import BatchStep

_GREETINGS = (
    "(?:hi+|hello+|hey+)(?: there| again| all| everyone)?|yo|sup|good (?:morning|afternoon|evening|night|day)|morning|greetings|"
    "howdy|"
    "how are you(?: doing)?(?: today)?|how(?:'s| is) it going|what'?s up|nice to meet you|long time no see|are you there|"
    "(?:many |so many )?thanks?(?: a lot| so much| again)?|thank you(?: very much| so much)?|thx|ty|cheers|you'?re welcome|"
    "bye(?:[ -]?bye)?|goodbye|see you(?: later| soon| tomorrow)?|good ?night|have a (?:nice|good|great) (?:day|one|weekend)|"
    "ok(?:ay)?|yes|yeah|yep|no|nope|sure|fine|cool|great|nice|awesome|wow|lol|lmao|haha(?:ha)*|hmm+|um+|uh+|oh+|ah+|well|never ?mind|"
    "pl(?:ea)?se?|plz|pls|test(?:ing)?(?: (?:test|testing|one|two|three|[0-9]+))*|ping|hello world|anybody (?:there|here)|"
    "anyone (?:there|here)|"
    "who are you|what(?:'s| is) your name|are you (?:a )?(?:real|human|robot|bot|an ai|ai)(?: person)?|how old are you|"
    "what can you do|tell me (?:a joke|something funny|a story)|sing me a song|i(?:'m| am) (?:so )?(?:bored|tired|sad|happy)|"
    "i love you|do you love me|what(?:'s| is) the meaning of life|you(?:'re| are) (?:so )?(?:cute|funny|smart|stupid|great)|"
    "你好[啊呀吗]?|您好|嗨|哈喽|哈罗|早上好|早安?|中午好|下午好|晚上好|晚安|在吗|在不在|有人吗|喂|"
    "吃了吗|你吃饭了吗|最近(?:怎么样|好吗)|好久不见|谢谢[你您啦了]?|多谢|感谢|再见|拜拜|回头见|辛苦了|"
    "好[的吧啊呀]?|行[吧啊]?|嗯+|哦+|啊+|哈哈+|呵呵+|嘿嘿+|嘻嘻+|额+|呃+|是的?|不是|没事|算了|"
    "你是谁|你叫什么(?:名字)?|你几岁了?|你是(?:真人|机器人|人工智能|ai)吗?|你会(?:做|干)什么|你能(?:做|干)什么|"
    "(?:给我)?(?:讲|说)个?(?:笑话|故事)|唱首歌|陪我聊(?:聊天|天|会儿)?|我(?:好|很|有点)(?:无聊|累|难过|开心|困)|我爱你|测试(?:一下)?"
)
_CHIT_CHAT = rf"^(?:(?:{_GREETINGS})[ ,.!?~，。！？、;:…]*)+$"
_LINK = r"(?:https?://|www\.)[^ ]*"
_REPEATED = "|".join(f"{character}{{6,}}" for character in "abcdefghijklmnopqrstuvwxyz0123456789哈呵嘿嘻啊哦嗯额呃呜")
_ROLLED = "qwer|asdf|zxcv|sdfg|dfgh|fghj|ghjk|hjkl|xcvb|cvbn|vbnm|yuio|poiu|lkjh|kjhg|jhgf|hgfd|gfds|fdsa|trewq|mnbv|nbvc"
_MASHED = rf"(?:{_ROLLED}|[bcdfghjklmnpqrstvwxz]{{6,}}|{_REPEATED})"
_MASHED_WORD = rf"[a-z0-9;\[\]',./\\]*{_MASHED}[a-z0-9;\[\]',./\\]*"
_NOT_LETTERS = r"[^a-z\u00df-\u024f\u3400-\u4dbf\u4e00-\u9fff]+"


class RulesConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    languages: tuple[Literal["en", "zh"], ...] = Field(
        default=("en", "zh"), min_length=1, description="Languages of the rows that are kept."
    )
    min_letters: int = Field(
        default=6, ge=1, description="Length of the shortest text that is kept, in letters; a Chinese character counts as three."
    )
    max_chars: int = Field(default=2000, ge=10, description="Length of the longest text that is kept, in characters after normalisation.")


def step(rows: pl.DataFrame, config: RulesConfig) -> pl.DataFrame:
    """The batch step (columns norm, language). Reasons: `no_words`, `language`, `too_short`, `too_long`, `only_link`,
    `only_personal_data`, `keyboard_mash`, `chit_chat`."""
    norm, chars = pl.col("norm"), pl.col("norm").str.len_chars().cast(pl.Int32)
    wide = (norm.str.len_bytes().cast(pl.Int32) - chars) // 2
    has_link = norm.str.contains("http", literal=True) | norm.str.contains("www.", literal=True)
    fits: dict[str, pl.Expr | pl.Series] = {
        "keyboard_mash": _is_mostly(rows, norm.str.contains(_MASHED), _MASHED_WORD, config.min_letters),
        "no_words": (pl.col("language") == "other") & ~norm.str.contains(r"\p{L}"),
        "language": ~pl.col("language").is_in(config.languages),
        "only_link": _is_mostly(rows, has_link, _LINK, config.min_letters),
        "only_personal_data": _is_mostly(rows, norm.str.contains("<", literal=True), MASK, config.min_letters),
        "chit_chat": pl.when(chars <= 80).then(norm).str.contains(_CHIT_CHAT),
        "too_short": chars + (LETTERS_A_HAN - 1) * wide < config.min_letters,
        "too_long": chars > config.max_chars,
    }
    number = pl.coalesce(*(pl.when(rule).then(pl.lit(index, pl.UInt8)) for index, rule in enumerate(fits.values())))
    return rows.with_columns(reason=number.replace_strict(dict(enumerate(fits)), return_dtype=pl.String))


def _is_mostly(rows: pl.DataFrame, is_suspect: pl.Expr, pattern: str, min_letters: int) -> pl.Series:
    """Whether matches of the pattern are most of a text: fewer than `min_letters` letters, or a third of them, are left without.

    Only the few suspect rows are checked, because counting letters is slow.
    """
    suspects = rows.select("norm", is_suspect=is_suspect).with_row_index("index").filter("is_suspect")
    left, letters = _letters(pl.col("norm").str.replace_all(pattern, " ")), _letters(pl.col("norm"))
    guilty = suspects.filter((left < min_letters) | (left * 3 < letters))["index"]
    return pl.select(pl.repeat(False, rows.height)).to_series().scatter(guilty, True)


def _letters(text: pl.Expr) -> pl.Expr:
    """How many Latin letters a text has, a Chinese character counting as three."""
    letters = text.str.replace_all(_NOT_LETTERS, "")
    return letters.str.len_chars().cast(pl.Int32) + (LETTERS_A_HAN - 1) * letters.str.count_matches(r"[\u3400-\u9fff]").cast(pl.Int32)


STEP = BatchStep(
    name="rules",
    needs=("norm", "language"),
    reasons=("keyboard_mash", "no_words", "language", "only_link", "only_personal_data", "chit_chat", "too_short", "too_long"),
    config=RulesConfig,
    function=step,
)
