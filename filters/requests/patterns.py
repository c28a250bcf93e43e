"""The pattern of a request: its words without greetings, values and names, so that vectors tell what is asked, not for which id.

`mask_values` removes numbers, ids, codes, dates, times and amounts from each row alone. Names ("Boston", "Mastercard") need all rows:
`name_words` takes a word for a name if it stands capitalised inside sentences for the most part, and so finds it in lower-case rows too.

Limits: codes of letters alone, and names that are always written in lower case; Chinese names. In a language that capitalises nouns
(German) nouns would be taken for names; the funnel reads English and Chinese only.
"""

from __future__ import annotations

import polars as pl

from filters.personal import MASK
from filters.requests.greetings import strip_greetings

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|"
    "dec(?:ember)?)"
)
_DAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_CODE = r"[a-z0-9#_-]*[0-9](?:[a-z0-9#_/:,.-]*[a-z0-9])?"
VALUES = "|".join(
    (
        MASK,
        rf"\b(?:{_CODE} ?(?:of )?{_MONTH}\b(?: {_CODE})?|{_MONTH} {_CODE})",
        rf"(?:[$€£¥] ?)?{_CODE}(?: ?(?:am|pm|usd|eur|gbp|dollars?|euros?|kg|hours?|days?|weeks?|months?|minutes?)\b)?",
        rf"\b(?:(?:next|this|last) )?{_DAY}\b|\b(?:today|tonight|tomorrow|yesterday)\b",
        "[零一二三四五六七八九十两百千万0-9]+(?:年|月|日|号|点钟?|分钟?|小时|天|元|块钱?|公斤|人|个人|位)半?",
        "(?:这|下|上)?(?:个)?(?:星期|周|礼拜)[一二三四五六日天末]|今天|明天|后天|昨天|今晚|明晚|明早",
    )
)
"""A value in a normalised text: masked personal data, dates, times, amounts, numbers, and codes with a digit."""
LINK = r"(?:https?://|www\.)[^ ]*"
_NOT_WORDS = r"[^\p{L}' ]+"
_CAPITALISED = r"\b\p{Lu}\p{Ll}{2,}\b"
SENTENCE_START = r"(?:^|[.?!:;\n])[\s\"'“”‘’(\[]*\p{Lu}[\p{Ll}'’]*\b"
"""The first word of a sentence, if it is capitalised, and the mark before it."""
_MIN_NAME_ROWS, _MIN_NAME_SHARE, _MAX_NAMES, _MAX_READ = 3, 0.5, 2_000, 200_000


def mask_values(norm: pl.Expr) -> pl.Expr:
    """The words of normalised texts without greetings, closings and values; may be empty."""
    words = strip_greetings(norm).str.replace_all(VALUES, " ").str.replace_all(_NOT_WORDS, " ")
    return words.str.replace_all(" {2,}", " ").str.strip_chars(" '")


def name_words(texts: pl.Series) -> list[str]:
    """The words, in lower case, that most of the time stand capitalised inside a sentence, in three texts at least; the commonest first.

    texts: as written. Texts with a capital on half of their words say nothing, and are not read; of very many, the first are read.
    """
    rows = texts.head(_MAX_READ).alias("text").to_frame()
    words, capitals = pl.col("text").str.count_matches(r"\p{L}+"), pl.col("text").str.count_matches(_CAPITALISED)
    rows = rows.filter(capitals * 2 < words)
    inside = pl.col("text").str.replace_all(SENTENCE_START, " ").str.extract_all(_CAPITALISED)
    names = _count(rows.select(word=inside)).rename({"rows": "capitalised"}).filter(pl.col("capitalised") >= _MIN_NAME_ROWS)
    counted = names.join(_count(rows.select(word=pl.col("text").str.extract_all(r"\b\p{L}{3,}\b"))), on="word")
    found = counted.filter(pl.col("capitalised") >= _MIN_NAME_SHARE * pl.col("rows"))
    return found.sort("capitalised", "word", descending=[True, False]).head(_MAX_NAMES)["word"].to_list()


def _count(words: pl.DataFrame) -> pl.DataFrame:
    """word (lower case), rows that have it; from a column of lists."""
    return words.with_row_index("at").explode("word").drop_nulls().select("at", pl.col("word").str.to_lowercase()).unique().group_by(
        "word"
    ).agg(rows=pl.len())  # fmt: skip


def patterns(masked: pl.Series, texts: pl.Series) -> pl.Series:
    """The patterns of rows: masked texts (`mask_values`) without the names that `texts` (as written) show. A text of names and values
    alone keeps its names."""
    names = name_words(texts)
    if not names:
        return masked.alias("pattern")
    bare = pl.col("masked").str.replace_all(rf"\b(?:{'|'.join(names)})\b", " ").str.replace_all(" {2,}", " ").str.strip_chars(" '")
    return masked.alias("masked").to_frame().select(pattern=pl.when(bare.str.len_chars() > 0).then(bare).otherwise("masked")).to_series()
