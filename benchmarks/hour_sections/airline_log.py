"""A log of an airline's help desk, written from seeds: 23 types of request of very different frequency, and junk.

Rows have the columns of a ticket system: `prompt`, `ticket`, `channel`, `stars`, `tags`. What a row asks for is known only to the benchmark
(`AirlineLog.kinds`). The frequency of types falls as in a Zipf law, from about half of the requests to less than 0.3 %. Requests have ids,
dates, times, cities and amounts, greetings, context, conditions, typing errors, and repetitions. One wording in five of a request is a
short one without values, as users type into a search box. Junk is random keys, in one word or eight, greetings in two languages, misspelt
or with the next key hit, scraps, and words that ask for nothing.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ZIPF = 1.7
JUNK = "junk"
_JUNK_SHARE, _REPEATED, _TYPING_ERRORS, _GREETED, _SHORT = 0.12, 0.15, 0.12, 0.25, 0.2

REQUESTS: dict[str, Sequence[str]] = {
    "connection": (
        "is there a connection from {city} to {city2} on {date}",
        "how do I get from {city} to {city2} with one stop",
        "which flights go {city} - {city2} {date} in the {daypart}",
        "I need to fly from {city} to {city2}, what connections do you have",
        "show me flights to {city2} leaving {city} around {time}",
        "can I still reach {city2} tonight if I land in {city} at {time}",
        "next flight {city} {city2}?",
        "what is the fastest way to {city2} from {city} with you, max {n} stops",
    ),
    "flight_status": (
        "is flight {flight} on time",
        "what time does {flight} land in {city}",
        "has {flight} taken off yet",
        "my friend arrives with {flight} on {date}, is it delayed",
        "which gate does {flight} leave from",
        "status of {flight} today please",
    ),
    "rebook": (
        "move my booking {code} to {date}",
        "I want to change my flight on booking {code} to a later one",
        "can you put me on the {time} flight instead, reference {code}",
        "reschedule {code} from {date} to {date2}",
        "please change the date of my trip {code}",
        "I can't make {date}, I need another day for {code}",
    ),
    "cancel": (
        "cancel my booking {code}",
        "I no longer want to travel, please cancel ticket {ticket}",
        "how do I cancel the flight {flight} on {date}",
        "call off the trip under reference {code}",
        "I need to cancel both tickets {ticket} and {ticket2}",
    ),
    "baggage_allowance": (
        "how many kilos may my suitcase weigh to {city}",
        "is hand luggage of {n} kg ok in economy",
        "what size of cabin bag is allowed",
        "how many bags are included in fare {fare}",
        "baggage allowance for a flight to {city}?",
    ),
    "refund_state": (
        "where is my refund for {code}",
        "you promised {amount} back on {date} and nothing has arrived",
        "how long does the refund of ticket {ticket} take",
        "my money for the cancelled {flight} is still missing",
        "status of refund claim {claim}",
    ),
    "lost_baggage": (
        "my suitcase did not arrive in {city}, tag {tag}",
        "I lost my bag on {flight}",
        "you sent my luggage to {city2}, where is it now",
        "trace baggage {tag} please",
        "there was no suitcase on the belt after {flight}",
    ),
    "online_check_in": (
        "I cannot check in online for {flight}",
        "when does check-in open for {code}",
        "the app refuses to give me a boarding pass for {flight}",
        "how do I check in {n} people at once",
        "where do I download the boarding pass of {code}",
    ),
    "seat": (
        "I want a window seat on {flight}",
        "can we sit together, booking {code}",
        "please give me an aisle seat in row {n} or further ahead",
        "how much is a seat with extra legroom on {flight}",
        "seat map of {flight}?",
    ),
    "compensation": (
        "my flight {flight} was {n} hours late, what compensation do I get",
        "I claim {amount} for the delay of {flight} on {date}",
        "do I get anything because {flight} was overbooked",
        "compensation form for denied boarding in {city}",
    ),
    "miles": (
        "the miles of {flight} are missing in my account {member}",
        "how many miles do I need for a flight to {city}",
        "transfer {n}000 points to my wife's account",
        "my frequent flyer status has not been renewed",
    ),
    "extra_bag": (
        "add another suitcase to booking {code}",
        "what does an additional bag to {city} cost",
        "I want to buy {n} kg of excess luggage for {flight}",
        "pay for a second checked bag, reference {code}",
    ),
    "name_error": (
        "my name is misspelled on ticket {ticket}",
        "change the surname on {code}, I got married",
        "the first name in my booking {code} does not match my passport",
        "correct a typing error in the passenger name",
    ),
    "meal": (
        "order a vegetarian meal for {flight}",
        "do you serve gluten free food on the way to {city}",
        "I forgot to ask for a kosher menu, booking {code}",
        "is there anything to eat for a nut allergy on board",
    ),
    "invoice": (
        "send me an invoice for {code}",
        "I need a receipt with VAT for ticket {ticket}",
        "the bill of {amount} must show my company's address",
        "download the tax invoice of {date}",
    ),
    "pet": (
        "can I take my dog in the cabin to {city}",
        "what does it cost to fly with a cat",
        "is my {n} kg pet allowed in the hold",
        "which cage do I need for a rabbit",
    ),
    "wheelchair": (
        "my mother needs a wheelchair at {city} airport",
        "book assistance for a blind passenger on {flight}",
        "can I bring my own electric wheelchair",
        "help for a person who cannot walk stairs, {code}",
    ),
    "lone_child": (
        "my {n} year old daughter flies alone to {city}",
        "is there a service for unaccompanied minors",
        "who picks up a child travelling alone in {city}",
        "from what age may children fly without parents",
    ),
    "entry_rules": (
        "do I need a visa for a stop in {city}",
        "which documents must I show to enter the country at {city}",
        "is my passport valid long enough for {city}",
        "what vaccination is required to travel to {city}",
    ),
    "lounge": (
        "may I use the lounge in {city} with a {fare} ticket",
        "how much is a lounge visit at {city} airport",
        "opening hours of your lounge in {city}",
        "can I bring a guest into the lounge",
    ),
    "group": (
        "we are {n}0 people and want to book a group fare to {city}",
        "quote for a school class of {n}5 to {city} on {date}",
        "do football teams get a group discount",
        "offer for {n}2 wedding guests from {city} to {city2}",
    ),
    "business_comparison": (
        "what do I get in business class that economy does not have to {city}",
        "compare business and premium economy on {flight}",
        "is business class worth {amount} more, seat, food and all",
        "difference between the business seats of your two aircraft to {city}",
    ),
    "wifi": (
        "is there internet on board of {flight}",
        "how much is the wifi on the way to {city}",
        "can I stream films on the plane network",
        "the wifi voucher {claim} does not work",
    ),
}
"""Type of request -> its wordings, the commonest type first."""

_SHORT_WORDINGS: dict[str, Sequence[str]] = {
    "connection": ("flights to {city}", "timetable", "direct flights"),
    "flight_status": ("flight status", "delayed?", "arrivals today"),
    "rebook": ("change date", "rebook", "later flight"),
    "cancel": ("cancel flight", "cancellation", "cancel booking"),
    "baggage_allowance": ("baggage allowance", "cabin bag size", "suitcase weight"),
    "refund_state": ("refund status", "where is refund", "no refund yet"),
    "lost_baggage": ("lost bag", "missing suitcase", "trace baggage"),
    "online_check_in": ("check in online", "boarding pass", "mobile check-in"),
    "seat": ("window seat", "seat map", "choose seats"),
    "compensation": ("delay compensation", "compensation claim", "overbooked"),
    "miles": ("missing miles", "miles balance", "frequent flyer"),
    "extra_bag": ("extra bag", "excess luggage", "add suitcase"),
    "name_error": ("wrong name", "correct surname", "name change"),
    "meal": ("vegan meal", "order meal", "gluten free"),
    "invoice": ("invoice", "receipt pdf", "tax invoice"),
    "pet": ("fly with dog", "pet in cabin", "cat fee"),
    "wheelchair": ("wheelchair", "wheelchair help", "blind passenger"),
    "lone_child": ("unaccompanied minor", "child alone", "kids flying alone"),
    "entry_rules": ("visa", "visa rules", "passport validity"),
    "lounge": ("lounge", "lounge access", "lounge hours"),
    "group": ("group fare", "group booking", "team discount"),
    "business_comparison": ("business vs economy", "compare classes", "business seat"),
    "wifi": ("wifi", "wifi price", "internet on board"),
}

_CONDITIONS = (
    "if that costs more than {amount}, leave it as it is, otherwise go ahead",
    "unless it is already after {time}, then tell me what else I can do",
    "but only if it can be done before {date}, if not call me",
    "if not, what is the next best thing",
    "in case it does not work, I would rather wait until {date2}",
)
_CONTEXTS = (
    "I booked through your app on {date}.",
    "I fly with my {relative}.",
    "My member number is {member}.",
    "I have been waiting for {n} days now.",
    "The agent in {city} could not help.",
    "I am at the airport.",
)
_OPENERS = ("hi", "hello", "hey there", "good morning", "Hi team", "hello, hope you are well", "helo", "dear all")
_CLOSERS = ("thanks", "thank you", "thx", "many thanks", "best regards", "cheers", "please help", "bye")
_GREETINGS = (
    "hello there hi",
    "hello",
    "good morning",
    "hi how are you",
    "thank you so much",
    "thanks bye",
    "ok thanks",
    "hey",
    "good night",
)
_GREETINGS_ZH = ("你好", "在吗在吗", "谢谢啦", "早上好呀", "好的谢谢", "哈哈哈哈", "嗯嗯", "您好，在吗？", "辛苦了", "再见")
_NOTHING = ("blah blah", "lorem ipsum", "foo bar", "idk lol", "nvm", "yo bro", "omg", "whatever man", "pfff", "nothing", "lalala", "meh")
_SCRAPS = ("???", "...", "!!", "12345", "?", "-", "test", "test test", ":-)", "1", "ok", "aaaaaaa", "hahaha", "www", "?!?!", "2026-01-01")
_CITIES = (
    *("Boston", "Denver", "Madrid", "Oslo", "Vienna", "Lisbon", "Chicago", "Seoul", "Delhi", "Cairo", "Munich", "Dublin", "Atlanta"),
    *(
        "Porto",
        "Zurich",
        "Warsaw",
        "Toronto",
        "Milan",
        "Prague",
        "Nairobi",
        "Lima",
        "Bogota",
        "Hanoi",
        "Perth",
        "San Francisco",
        "New York",
    ),
)
_MONTHS = ("January", "March", "April", "June", "July", "August", "October", "December")
_ROWS_OF_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@dataclass(frozen=True)
class AirlineLog:
    """file: JSONL with one ticket a line. kinds: of each row, the type of its request, or `JUNK`."""

    file: Path
    kinds: tuple[str, ...]


def write_log(folder: Path, rows: int = 20_000, seed: int = 0) -> AirlineLog:
    """Writes `airline.jsonl` into an existing folder."""
    rng = random.Random(seed)
    texts = _texts(rows, rng)
    path = folder / "airline.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, (text, _) in enumerate(texts):
            ticket = {
                "ticket": number,
                "prompt": text,
                "channel": rng.choice(("app", "mail", "phone")),
                "stars": rng.choice((None, 1, 3, 5)),
            }
            file.write(json.dumps({**ticket, "tags": rng.sample(("vip", "first", "angry"), rng.randint(0, 2))}) + "\n")
    return AirlineLog(path, tuple(kind for _, kind in texts))


def _texts(rows: int, rng: random.Random) -> list[tuple[str, str]]:
    """(text, type of request) of each row."""
    kinds = list(REQUESTS)
    weights = [1 / (rank + 1) ** ZIPF for rank in range(len(kinds))]
    texts: list[tuple[str, str]] = []
    while len(texts) < rows:
        if texts and rng.random() < _REPEATED:
            texts.append(rng.choice(texts))
        elif rng.random() < _JUNK_SHARE:
            texts.append((_junk(rng), JUNK))
        else:
            (kind,) = rng.choices(kinds, weights)
            texts.append((_request(kind, rng), kind))
    return texts


def _request(kind: str, rng: random.Random) -> str:
    if rng.random() < _SHORT:
        short = _fill(rng.choice(_SHORT_WORDINGS[kind]), rng)
        return _misspell(short, rng) if rng.random() < _TYPING_ERRORS / 4 else short
    text = rng.choice(REQUESTS[kind])
    if rng.random() < 0.15:
        text = f"{text}; {rng.choice(_CONDITIONS)}"
    if rng.random() < 0.2:
        text = f"{rng.choice(_CONTEXTS)} {text}"
    if rng.random() < _GREETED:
        text = f"{rng.choice(_OPENERS)}{rng.choice((', ', ' ', '! ', '. '))}{text}"
    if rng.random() < _GREETED:
        text = f"{text}{rng.choice((', ', '. ', ' '))}{rng.choice(_CLOSERS)}"
    text = _fill(text, rng)
    if rng.random() < 0.4:
        text = text.lower()
    return _misspell(text, rng) if rng.random() < _TYPING_ERRORS else text


def _fill(text: str, rng: random.Random) -> str:
    city, city2 = rng.sample(_CITIES, 2)
    day, day2 = (f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}" for _ in range(2))
    date = rng.choice((day, "tomorrow", f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}", "Friday", "next Monday"))
    return text.format(
        city=city,
        city2=city2,
        date=date,
        date2=day2,
        time=rng.choice((f"{rng.randint(1, 12)} pm", f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}")),
        daypart=rng.choice(("morning", "afternoon", "evening")),
        n=rng.randint(2, 9),
        flight=f"{rng.choice(('LX', 'UA', 'BA', 'HR'))}{rng.choice(('', ' '))}{rng.randint(10, 9999)}",
        code="".join(rng.choices(string.ascii_uppercase + string.digits, k=6)),
        ticket=f"{rng.randint(100, 999)}-{rng.randint(10**9, 10**10 - 1)}",
        ticket2=rng.randint(10**9, 10**10 - 1),
        tag=f"{rng.choice(('LX', 'UA'))}{rng.randint(100_000, 999_999)}",
        claim=f"CL-{rng.randint(10_000, 99_999)}",
        member=rng.randint(10**7, 10**8 - 1),
        amount=rng.choice((f"${rng.randint(20, 900)}", f"{rng.randint(20, 900)} EUR", f"{rng.randint(20, 900)} dollars")),
        fare=rng.choice(("light", "classic", "flex", "gold")),
        relative=rng.choice(("wife", "two kids", "parents", "boss")),
    )


def _junk(rng: random.Random) -> str:
    """Keys pressed at random, a greeting (misspelt or not), a scrap, or words that ask for nothing."""
    form = rng.random()
    if form < 0.4:
        words = [_mash(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 8)))]
        return rng.choice(("", "", "", "hello ")) + " ".join(words)
    if form < 0.65:
        text = rng.choice(_GREETINGS)
        return rng.choice((text, _misspell(text, rng), _hit_next_key(text, rng)))
    if form < 0.75:
        return (
            rng.choice(_GREETINGS_ZH) if rng.random() < 0.7 else "".join(chr(rng.randint(0x4E00, 0x62FF)) for _ in range(rng.randint(2, 6)))
        )
    return rng.choice(_NOTHING if form < 0.85 else _SCRAPS)


def _mash(rng: random.Random) -> str:
    """Keys of one row, neighbours or not, or of the whole keyboard."""
    length, form = rng.randint(4, 11), rng.random()
    if form < 0.3:
        row = rng.choice(_ROWS_OF_KEYS)
        start = rng.randint(0, len(row) - 4)
        return row[start : start + length]
    if form < 0.7:
        return "".join(rng.choices(rng.choice(_ROWS_OF_KEYS), k=length))
    return "".join(rng.choices(string.ascii_lowercase, k=length))


def _hit_next_key(text: str, rng: random.Random) -> str:
    """One letter replaced by the one beside it on the keyboard."""
    at = rng.randrange(len(text))
    row = next((row for row in _ROWS_OF_KEYS if text[at] in row), None)
    if row is None:
        return text
    place = row.index(text[at])
    return text[:at] + rng.choice(row[max(0, place - 1) : place] + row[place + 1 : place + 2]) + text[at + 1 :]


def _misspell(text: str, rng: random.Random) -> str:
    """One or two letters swapped, lost or doubled."""
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randint(0, max(0, len(text) - 2))
        form = rng.random()
        if form < 0.4:
            text = text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
        elif form < 0.7:
            text = text[:at] + text[at + 1 :]
        else:
            text = text[: at + 1] + text[at : at + 1] + text[at + 1 :]
    return text
