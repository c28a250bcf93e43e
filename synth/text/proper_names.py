"""Finds invented names in an English answer: groups of capitalised words without a source, such as `the Harbour View Hotel`.

One idea: capitals inside a sentence show a name, and so does its last word (Hotel, Road) or its title (Dr). Not counted: words that any
answer may capitalise (headings, weekdays), and words with a source. Chinese has no capitals: there only names with a dot are found
(`西蒙·格雷`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_ENDINGS = """
hotel hotels inn hostel resort motel lodge road street avenue lane boulevard drive expressway highway square plaza park garden gardens
museum gallery library temple shrine church cathedral mosque station airport terminal stadium university college school hospital clinic
pharmacy mall centre center market bazaar supermarket restaurant cafe coffee bistro bar pub grill kitchen diner bakery house theatre
theater cinema zoo aquarium bridge tower pier harbour harbor lake island beach bank gym spa airlines airways air wings ltd inc group works
partners trading systems foods media logistics taproom karaoke district bookstore books noodles hotpot
"""
_ORDINARY = """
a an the i you we he she it they my your our their his her its this that these those and or but so if then than as at by for from in into
of off on onto over per to under up via with without after before until about yes no not nearest closest cheapest fastest best top total
estimated expected recommended suggested average current next last first second third fourth fifth final other another good great nice new
old here there please note thanks thank sorry hello hi dear sure okay ok done is are was were be been has have had do does did can could
will would shall should may might must price prices cost costs fare fares fee fees time times date dates day days hour hours minute
minutes distance duration route routes trip trips travel journey departure arrival depart arrive leave leaves order orders status details
detail summary overview option options plan plans result results rating ratings rated review reviews address phone number name id type
category customer user account product item items quantity stock amount balance payment refund delivery shipping booking reservation
ticket tickets train trains flight flights bus metro line subway taxi walk walking drive driving cycling weather forecast temperature rain
sunny cloudy wind open opening opens closed closing closes check room rooms guest guests seat seats step stop stops transfer transfers
toll tolls monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october
november december english chinese china am pm rmb cny usd eur gbp yuan dollars euros pounds city town district area street place places
north south east west mr mrs ms dr prof sir madam free available confirmed cancelled completed successful requested required information
info key important update updates answer question help support service services home office business policy rule rules request requests
change changes going getting way ways how what when where which who why also however therefore meanwhile moreover finally overall value
due expiry expires valid issued start end starts ends from until range level tier kind grade score points code reference location map all
both each every any some one two three four five six seven eight nine ten highest lowest longest shortest latest earliest most least
shortlist pick picks choice quick glance breakdown recap bottom
"""
_ENDING_WORDS = frozenset(_ENDINGS.split())
_ORDINARY_WORDS = frozenset(_ORDINARY.split()) | _ENDING_WORDS
_CAPITALS = re.compile(r"(?<![\w'])[A-Z][\w'-]*(?: (?:of |the |& |de )?[A-Z][\w'-]*)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n*#>|\"“(•-]|\d[.)])\s*$")
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Miss|Dr|Prof|Professor|Madam)\.? ([A-Z][\w'-]+)")
_DOTTED = re.compile(r"[\u3400-\u9fff]{1,6}·[\u3400-\u9fff]{1,6}")
_HEADING_END = re.compile(r"\s*(?:\*|:|\n|$)")


def unknown_names(text: str, has_source: Callable[[str], bool]) -> Iterable[str]:
    """Names in the text, in lower case, that have a word without a source, and all names after a title or with a dot.

    Args:
        text: the answer with its original capitals; the caller replaces names that it knows otherwise by `_`.
        has_source: whether a source contains the word (lower case).
    """
    yield from (match[1].lower().removesuffix("'s") for match in _TITLED.finditer(text))
    yield from (match[0] for match in _DOTTED.finditer(text))
    for match in _CAPITALS.finditer(text):
        words = [word.lower().removesuffix("'s") for word in re.findall(r"[A-Za-z][A-Za-z'-]*", match[0])]
        is_first = _SENTENCE_START.search(text, max(0, match.start() - 6), match.start()) is not None or not text[: match.start()].strip()
        candidates = words[1:] if is_first else words
        unknown = [word for word in candidates if word not in _ORDINARY_WORDS and len(word) > 1 and not has_source(word)]
        has_name_ending = words[-1] in _ENDING_WORDS and bool(unknown)
        is_heading = is_first and _HEADING_END.match(text, match.end()) is not None
        if has_name_ending or (len(unknown) > 1 and not is_heading):
            yield " ".join(words)
