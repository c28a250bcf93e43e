"""Greetings and closings around a request, and texts that are nothing else, in both languages.

One idea: the words of greetings are few, so every slip of one letter (lost, doubled, swapped with the next) in every one of them is listed
beforehand, and a regular expression finds them. `strip_greetings` takes them off both ends; what is left is the request. `is_small_talk`
finds texts without a request: known phrases, or texts of greeting words alone, whose blanks may be misplaced ("thanky ou so much").

What it does not do: find greetings in the middle of a text, or slips of two letters in a word.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

_PHRASES = (
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
_SMALL_TALK = rf"^(?:(?:{_PHRASES})[ ,.!?~，。！？、;:…]*)+$"
WORDS_OF_GREETINGS = (
    *("hi", "hello", "hey", "hiya", "howdy", "there", "everyone", "team", "greetings", "good", "morning", "afternoon", "evening"),
    *("night", "day", "how", "are", "you", "doing", "today", "thank", "thanks", "thx", "many", "so", "very", "much", "again", "cheers"),
    *("kind", "best", "regards", "bye", "goodbye", "see", "later", "have", "nice", "ok", "okay", "test", "testing"),
)
_WORDS_THAT_ARE_OTHERS = frozenset({"hell", "here", "three", "thee", "tank", "tanks", "than", "bet", "bets", "knight", "tea", "tam", "tem"})
"""What a slip makes of a greeting's word, and is a word of its own."""
_LONGEST = 60
_BREAK, _BREAK_ZH = r"[ ,.!?~;:…-]+", r"[ ,.!?~;:，。！？、；…]*"


def _slips(word: str) -> set[str]:
    """The word with one letter lost, doubled, or swapped with the next; two letters at least."""
    places = range(len(word))
    lost = {word[:at] + word[at + 1 :] for at in places if len(word) > 2}
    doubled = {word[: at + 1] + word[at:] for at in places}
    swapped = {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places[:-1]}
    return (lost | doubled | swapped) - _WORDS_THAT_ARE_OTHERS - {word}


def _any_of(words: Iterable[str], *, shortest: int) -> str:
    """A pattern of these words, and of the slips in those of at least `shortest` letters; longer forms first."""
    forms = {form for word in words for form in ({word} | _slips(word) if len(word) >= shortest else {word})}
    return f"(?:{'|'.join(sorted(forms, key=lambda form: (-len(form), form)))})"


def _phrase(text: str) -> str:
    """A pattern of a phrase whose blanks may be missing."""
    return " ?".join(_any_of([word], shortest=4) for word in text.split(" "))


_ADDRESSED = "|".join(
    map(_phrase, ("there", "all", "again", "everyone", "everybody", "team", "folks", "guys", "sir or madam", "sir", "madam"))
)
_OPENERS = "|".join(
    (
        rf"(?:hi+|{_any_of(['hello'], shortest=4)}|hello+|hey+|hiya|{_phrase('good morning')}|{_phrase('good afternoon')}|"
        rf"{_phrase('good evening')}|{_phrase('good day')})(?: (?:{_ADDRESSED})\b)?",
        rf"dear (?:{_ADDRESSED}|support|customer service)\b",
        *map(_phrase, ("greetings", "how are you doing", "how are you today", "how are you", "excuse me")),
        r"(?:i )?hope (?:you(?:'re| are)(?: all)? (?:doing )?(?:well|fine|good)|this (?:message |email )?finds you well)",
    )
)
_CLOSERS = "|".join(
    (
        rf"(?:{_phrase('many thanks')}|{_phrase('thank you')}|{_phrase('thanks')})"
        r"(?: (?:a lot|so much|very much|again|in advance|for (?:your|the) (?:help|time|support)))*",
        *map(_phrase, ("kind regards", "best regards", "regards", "best wishes", "cheers", "goodbye", "have a nice day", "see you later")),
        "thx|thnx|tnx|ty|bye(?:[ -]?bye)?",
    )
)
_FIRST = rf"^(?:(?:{_OPENERS})(?:{_BREAK}|$)|(?:你好[啊呀]?|您好|嗨|哈喽|哈罗|早上好|中午好|下午好|晚上好|在吗|请问(?:一下)?){_BREAK_ZH})+"
_LAST = rf"(?:(?:^|{_BREAK})(?:{_CLOSERS})|{_BREAK_ZH}(?:谢谢[你您啦了]?|多谢|感谢|拜拜|再见|辛苦了|麻烦[你您]?了))+$"
_RUN_TOGETHER = rf"^{_any_of(WORDS_OF_GREETINGS, shortest=2)}+$"


def strip_greetings(norm: pl.Expr) -> pl.Expr:
    """Normalised texts without the greetings before and the closings after the request; empty where nothing else is there."""
    return norm.str.replace(_FIRST, "").str.replace(_LAST, "").str.strip_chars(" .!?~,;:-、。！？，；：…")


def is_small_talk(norm: pl.Expr) -> pl.Expr:
    """Whether a normalised text is greetings, closings and small talk alone."""
    letters = pl.when(norm.str.len_bytes() <= _LONGEST).then(norm.str.replace_all("[ ,.!?~;:'…-]", ""))
    return norm.str.contains(_SMALL_TALK) | letters.str.contains(_RUN_TOGETHER).fill_null(False)
