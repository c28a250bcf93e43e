"""Names that every domain may use (people, towns, companies, streets), and English plurals and participles.

One idea: a name combines two parts (first and family name), so short lists give more names than a domain needs. A domain's names are drawn
by a fixed salt, so its vocabulary is small and the same in every seed.
"""

from __future__ import annotations

import random
import re
from functools import cache, lru_cache

from synth.worlds.declarative.language.values import Words


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parses `Anna/安娜 Ben/本`."""
    return tuple((left, right) for left, _, right in (pair.partition("/") for pair in text.split()))


_FIRST = _pairs(
    "Anna/安娜 Ben/本 Clara/克拉拉 Daniel/丹尼尔 Elena/埃琳娜 Felix/菲利克斯 Grace/格蕾丝 Henry/亨利 Iris/艾丽斯 Jonas/乔纳斯 "
    "Karin/卡琳 Leo/利奥 Marta/玛尔塔 Nora/诺拉 Oscar/奥斯卡 Paula/葆拉 Quentin/昆廷 Rosa/罗莎 Simon/西蒙 Tessa/泰莎 "
    "Ulrich/乌尔里希 Vera/薇拉 Walter/沃尔特 Yvonne/伊冯娜 Zoe/佐伊 Amir/阿米尔 Bruno/布鲁诺 Celia/西莉亚"
)
_LAST = _pairs(
    "Abbott/阿博特 Baker/贝克 Castell/卡斯特尔 Dorn/多恩 Ellis/埃利斯 Fontana/丰塔纳 Gray/格雷 Hollis/霍利斯 Ingram/英格拉姆 "
    "Jensen/延森 Kovac/科瓦奇 Lindt/林特 Moreau/莫罗 Novak/诺瓦克 Osborne/奥斯本 Pereira/佩雷拉 Quinn/奎因 Rossi/罗西 "
    "Santos/桑托斯 Tanaka/田中 Ueda/上田 Varga/瓦尔加 Weiss/魏斯 Yilmaz/伊尔马兹 Zimmer/齐默 Okafor/奥卡福 Haddad/哈达德 "
    "Larsen/拉森"
)
_TOWN_HEADS = _pairs(
    "Ash/阿什 Brook/布鲁克 Cliff/克利夫 Dale/戴尔 Elm/埃尔姆 Fern/弗恩 Glen/格伦 Hazel/黑兹尔 Iron/艾恩 Kings/金斯 Lark/拉克 "
    "Maple/梅普尔 North/诺思 Oak/奥克 Pine/派恩 River/里弗 Stone/斯通 Thorn/索恩 West/韦斯特 Willow/威洛"
)
_TOWN_TAILS = _pairs("bridge/布里奇 field/菲尔德 ford/福德 haven/黑文 mouth/茅斯 port/波特 ton/顿 wick/威克")
_FIRM_TAILS = _pairs("Works/工坊 Group/集团 Partners/事务所 Trading/贸易 Systems/系统公司 Foods/食品 Media/传媒 Logistics/物流")
_STREET_TAILS = _pairs("Street/街 Road/路 Lane/巷 Avenue/大道 Square/广场")

_PARTS = {
    "person": (_FIRST, " ", "·", _LAST),
    "city": (_TOWN_HEADS, "", "", _TOWN_TAILS),
    "company": (_TOWN_HEADS, " ", "", _FIRM_TAILS),
    "street": (_TOWN_HEADS, " ", "", _STREET_TAILS),
}


@cache
def _all_names(kind: str) -> tuple[Words, ...]:
    heads, gap_en, gap_zh, tails = _PARTS[kind]
    return tuple(Words(en=f"{head[0]}{gap_en}{tail[0]}", zh=f"{head[1]}{gap_zh}{tail[1]}") for head in heads for tail in tails)


@lru_cache(maxsize=4096)
def names_of(kind: str, count: int, salt: str) -> tuple[Words, ...]:
    """`count` different names of a list (all, if it has fewer), drawn by `salt`, in the order of the list."""
    names = _all_names(kind)
    indices = random.Random(f"names/{salt}").sample(range(len(names)), min(count, len(names)))
    return tuple(names[at] for at in sorted(indices))


@cache
def possible_names() -> dict[str, tuple[str, ...]]:
    """Every spelling of every name of every list -> all spellings of that name."""
    return {spelling: (name.en, name.zh) for kind in _PARTS for name in _all_names(kind) for spelling in (name.en, name.zh)}


_IRREGULAR = dict(
    _pairs("person/people child/children man/men woman/women foot/feet staff/staff shelf/shelves series/series aircraft/aircraft")
)


def plural_of(noun: str) -> str:
    """The English plural of a noun (its last word)."""
    last = re.split(r"[ _]", noun)[-1]
    lead = noun[: len(noun) - len(last)]
    if last in _IRREGULAR:
        return lead + _IRREGULAR[last]
    if last.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


_PARTICIPLES = dict(
    _pairs(
        "pay/paid send/sent lend/lent give/given take/taken make/made set/set put/put hold/held book/booked withdraw/withdrawn "
        "write/written buy/bought sell/sold bring/brought keep/kept find/found freeze/frozen begin/begun do/done get/got lay/laid "
        "leave/left let/let lose/lost mean/meant rise/risen see/seen show/shown shut/shut split/split spend/spent tell/told "
        "refer/referred transfer/transferred defer/deferred admit/admitted "
        "permit/permitted submit/submitted swap/swapped drop/dropped ship/shipped stop/stopped plan/planned ban/banned top/topped "
        "enrol/enrolled cancel/cancelled label/labelled draw/drawn lift/lifted run/run cut/cut feed/fed meet/met quit/quit "
        "win/won dig/dug hit/hit bid/bid sit/sat spin/spun relay/relayed"
    )
)
_ONE_SYLLABLE = re.compile(r"[^aeiou]+[aeiou][bdgmnprt]")
"""Verbs that double their last letter: tag, stop."""


def participle_of(verb: str) -> str:
    """The past participle of an English verb phrase (its first word): check in -> checked in."""
    first, space, rest = verb.partition(" ")
    word = first.lower()
    prefix = next((each for each in ("", "un", "re") if word.startswith(each) and word.removeprefix(each) in _PARTICIPLES), None)
    if prefix is not None:
        done = prefix + _PARTICIPLES[word.removeprefix(prefix)]
    elif _ONE_SYLLABLE.fullmatch(word):
        done = f"{word}{word[-1]}ed"
    elif word.endswith("e"):
        done = f"{word}d"
    elif word.endswith("y") and word[-2:-1] not in "aeiou":
        done = f"{word[:-1]}ied"
    else:
        done = f"{word}ed"
    return f"{done}{space}{rest}"
