"""Greetings and closings around a request, and texts that are nothing else, in both languages.

One idea: the phrases of greetings are few, so every slip of one letter (lost, doubled, swapped with the next) in each of their words is
listed beforehand, and a regular expression finds them. `strip_greetings` takes them off both ends; what is left is the request. Phrases
that requests begin with too ("how are you going to", "good evening dress") need a mark after them. `is_small_talk` finds texts without a
request: known phrases of small talk, or greetings alone, whose blanks may be misplaced ("thanky ou so much") and in which a finger may have
hit the next key ("thanls bye").

What it does not do: find greetings in the middle of a text, or two slips in a word.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from filters.requests.keyboard import neighbours

_SMALL_TALK_PHRASES = (
    "yo|sup|good night|go{3,}d (?:morning|afternoon|evening|night|day)|morning|"
    "nothing(?: else)?|that(?:'s| is) (?:all|it)|got it|i see|whatever|idk|nvm|omg|"
    "how(?:'s| is) it going|what'?s up|nice to meet you|long time no see|are you there|"
    "you'?re welcome|see you(?: soon| tomorrow)?|have a (?:nice|good|great) (?:day|one|weekend)|"
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
_HELLO = ("hello", "hi", "hey", "hiya", "howdy", "good morning", "good afternoon")
_MARKED_GREETINGS = (
    *("good evening", "good day", "greetings"),
    *("how are you", "how are you today", "how are you doing", "how are you doing today"),
)
_ADDRESSED = ("there", "all", "again", "everyone", "everybody", "team", "folks", "guys", "sir or madam", "sir", "madam")
_THANKS = ("thank you", "many thanks", "thanks")
_HOW_MUCH = ("a lot", "so much", "very much", "again", "in advance", "for your help", "for the help", "for your time", "for your support")
_CLOSINGS = ("kind regards", "best regards", "regards", "best wishes", "cheers", "goodbye", "have a nice day", "see you later")
_SHORT_CLOSINGS = "thx|thnx|tnx|ty|bye(?:[ -]?bye)?"
_FILLERS = ("ok", "okay", "test", "bye", "thx", "please")
_WORDS_THAT_ARE_OTHERS = frozenset(
    {"hell", "jello", "here", "where", "three", "thee", "these", "tank", "tanks", "than", "bet", "bets", "knight", "tea", "tam", "tem"}
    | {"cheer", "sheers", "rest", "text", "nest", "vest", "beat", "resting", "texting", "food", "hood", "gold", "lease", "pleas"}
)
"""What a slip makes of a greeting's word, and is a word of its own."""
_NEVER_IN_PHRASES = frozenset({"food", "hood", "gold"})
"""Of these, those that make a request of a phrase ("food day")."""
_LONGEST = 60
_MARKS, _MARKS_ZH = ",.!?~;:…", ",.!?~;:，。！？、；…"
_BREAK, _MARK, _BREAK_ZH = rf"[ {_MARKS}]+", rf" ?[{_MARKS}-][ {_MARKS}-]*", f"[ {_MARKS_ZH}]*"
_BEGINNINGS = (
    "i|i'm|i'd|i've|we|my|our|can|could|would|will|may|please|what|what's|where|when|which|who|why|how|is|are|do|does|did|have|has|there|need|"
    "want|help"
)
"""Words that a sentence begins with."""


def _slips(word: str, *, hits_neighbours: bool = False) -> set[str]:
    """The word with one letter lost, doubled, or swapped with the next, or the next key hit; two letters at least."""
    places = range(len(word))
    lost = {word[:at] + word[at + 1 :] for at in places if len(word) > 2}
    doubled = {word[: at + 1] + word[at:] for at in places}
    swapped = {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places[:-1]}
    hit = {word[:at] + other + word[at + 1 :] for at in places for other in neighbours(word[at])} if hits_neighbours else set()
    return (lost | doubled | swapped | hit) - {word}


def _forms_of_greetings() -> frozenset[str]:
    phrases = (*_HELLO, *_MARKED_GREETINGS, *_ADDRESSED, *_THANKS, *_HOW_MUCH, *_CLOSINGS, *_FILLERS, "good night")
    words = {word for phrase in phrases for word in phrase.split(" ")}
    return frozenset(words.union(*(_slips(word, hits_neighbours=True) for word in words if len(word) >= 3)) - _NEVER_IN_PHRASES)


FORMS_OF_GREETINGS = _forms_of_greetings()
"""The words of greetings, and every slip in one."""


def _any_of(forms: Iterable[str]) -> str:
    """A pattern of these texts, longer ones first."""
    return f"(?:{'|'.join(sorted(forms, key=lambda form: (-len(form), form)))})"


def _phrase(text: str) -> str:
    """A pattern of a phrase whose blanks may be missing, with slips in words of four letters or more."""
    return " ?".join(_any_of({word} | _slips(word) - _WORDS_THAT_ARE_OTHERS if len(word) >= 4 else {word}) for word in text.split(" "))


def _phrases(texts: Iterable[str]) -> str:
    return "|".join(map(_phrase, texts))


def _letters(text: str) -> str:
    """A pattern of the letters of a phrase, with a slip in each word of three letters or more; of five where the word stands alone."""
    words, shortest, others = (text.split(" "), 3, _NEVER_IN_PHRASES) if " " in text else ([text], 5, _WORDS_THAT_ARE_OTHERS)
    return "".join(_any_of({word} | _slips(word, hits_neighbours=True) - others if len(word) >= shortest else {word}) for word in words)


_TO = rf"(?: (?:{_phrases(_ADDRESSED)})\b)?"
_OPENERS = "|".join(
    (
        rf"(?:hi+|hello+|hey+|{_phrases(_HELLO)}){_TO}",
        rf"dear (?:{_phrases(_ADDRESSED)}|support|customer service)\b",
        r"(?:i )?hope (?:you(?:'re| are)(?: all)? (?:doing )?(?:well|fine|good)|this (?:message |email )?finds you well)",
    )
)
_DOUBTFUL = rf"(?:{_phrases(sorted(_MARKED_GREETINGS, key=len, reverse=True))}|excuse me){_TO}"
_CLOSERS = "|".join(
    (
        rf"(?:{_phrases(_THANKS)})(?: (?:{'|'.join(_HOW_MUCH)}))*",
        _phrases(_CLOSINGS),
        _SHORT_CLOSINGS,
    )
)
_OPENERS_ZH = "(?:你好[啊呀]?|您好|嗨|哈喽|哈罗|早上好|中午好|下午好|晚上好|在吗|请问(?:一下)?)"
_FIRST = rf"^(?:(?:{_OPENERS})(?:{_BREAK}|$)|(?:{_DOUBTFUL})(?:{_MARK}|$)|{_OPENERS_ZH}{_BREAK_ZH})+"
_FIRST_UNMARKED = rf"^(?:{_DOUBTFUL}) ((?:{_BEGINNINGS})\b)"
_LAST = rf"(?:(?:^|{_BREAK})(?:{_CLOSERS})|{_BREAK_ZH}(?:谢谢[你您啦了]?|多谢|感谢|拜拜|再见|辛苦了|麻烦[你您]?了))+$"
_ALONE = "|".join(
    map(
        _letters,
        (
            *_MARKED_GREETINGS,
            *(f"{word} {to}" for word in _HELLO for to in ("there", "all", "again", "everyone", "team")),
            *_HELLO,
            *(f"{thanks} {how_much}" for thanks in ("thank you", "thanks") for how_much in _HOW_MUCH),
            *(*_THANKS, *_CLOSINGS, *_FILLERS, "good night"),
        ),
    )
)
_RUN_TOGETHER = rf"^(?:h+i+|he+y+|{_ALONE})+$"
_SMALL_TALK = rf"^(?:(?:{_SMALL_TALK_PHRASES}|{_OPENERS}|{_DOUBTFUL}|{_CLOSERS})[ ,.!?~，。！？、;:…]*)+$"


def strip_greetings(norm: pl.Expr) -> pl.Expr:
    """Normalised texts without the greetings before and the closings after the request; empty where nothing else is there."""
    opened = norm.str.replace(_FIRST, "").str.replace(_FIRST_UNMARKED, "$1")
    return opened.str.replace(_LAST, "").str.strip_chars(" .!?~,;:-、。！？，；：…")


def is_small_talk(norm: pl.Expr) -> pl.Expr:
    """Whether a normalised text is greetings, closings and small talk alone."""
    letters = pl.when(norm.str.len_bytes() <= _LONGEST).then(norm.str.replace_all("[ ,.!?~;:'…-]", ""))
    return norm.str.contains(_SMALL_TALK) | letters.str.contains(_RUN_TOGETHER).fill_null(False)
