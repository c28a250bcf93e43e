"""How often a task is made of a request that asks for something else.

The log has 40 types of request over the library's worlds, each in three wordings of ours. Half of the types are served by a tool; the other
half are near misses: they name the same things, and ask for what no tool does (pay for an order with a gift card, gift-wrap it). The log
goes through the funnel with all eight worlds.

misread_share: share of the admitted tasks whose request is of a near miss, or of another intent than the task's.
served_share: share of the distinct requests that a tool serves which became a frame of the right intent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Deadline, Figures
from filters.funnel import FunnelConfig, curate
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store

KEYS = ("misread_share", "served_share")
MINUTES = 5
WORLDS = ("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom")
_EACH = 30
"""Requests of each wording."""

SERVED: dict[str, tuple[str, str, str]] = {
    "hotel/cancel_reservation": (
        "I won't make it after all, please cancel reservation {b}",
        "cancel my reservation, the number is {b}",
        "{b} needs to be cancelled",
    ),
    "hotel/extend_stay": (
        "could we stay 2 nights longer on reservation {b}",
        "please extend reservation {b} by {n} nights",
        "add {n} more nights to reservation {b}",
    ),
    "hotel/check_in": ("we have arrived, check in reservation {b}", "please do the check-in for {b}", "check reservation {b} in"),
    "hotel/cancel_extra": (
        "cancel the extra booking {x}",
        "we no longer want extra booking {x}, cancel it",
        "drop extra booking {x} please",
    ),
    "banking/block_card": ("my card {k} was stolen, block it", "please block card {k} right now", "block {k}"),
    "banking/unblock_card": ("I found my card again, unblock card {k}", "please unblock {k}", "can you unblock card {k} for me"),
    "banking/freeze_account": ("freeze account {a} please", "I want account {a} frozen", "put a freeze on account {a}"),
    "banking/transfer_money": (
        "send ${m} from account {a} to account {a2}",
        "transfer {m} dollars from {a} to {a2}",
        "move {m} dollars out of account {a} into account {a2}",
    ),
    "clinic/cancel_appointment": (
        "I can't come, cancel appointment {a}",
        "please cancel my appointment {a}",
        "appointment {a} has to be cancelled",
    ),
    "clinic/refill_prescription": ("I need a refill of prescription {r}", "please refill {r}", "refill my prescription {r}"),
    "clinic/pay_bill": ("I'd like to pay bill {b}", "please settle bill {b}", "pay my bill {b} please"),
    "helpdesk/escalate_ticket": ("ticket {t} is urgent now, escalate it", "please escalate ticket {t}", "escalate {t}"),
    "helpdesk/unlock_device": ("my laptop {d} is locked, unlock it", "please unlock device {d}", "could you unlock {d}"),
    "helpdesk/replace_device": ("device {d} is broken, replace it", "please replace device {d}", "I need a replacement for device {d}"),
    "library/renew_loan": ("I'm not finished, renew loan {l}", "please renew my loan {l}", "could you renew {l}"),
    "library/cancel_hold": ("I no longer need hold {h}, cancel it", "please cancel hold {h}", "cancel my hold {h}"),
    "logistics/insure_shipment": ("I want shipment {s} insured", "please insure shipment {s}", "insure {s} for me"),
    "school/drop_enrolment": ("she wants to drop enrolment {e}", "please drop enrolment {e}", "drop {e}"),
    "telecom/pause_line": ("we are abroad, pause line {l}", "please pause line {l}", "could you put line {l} on pause"),
    "telecom/pay_invoice": ("I want to pay invoice {i}", "please pay invoice {i}", "settle invoice {i}"),
}
"""Intent -> three wordings; {b} is an identifier with this letter, {n} a small number, {m} an amount."""
NEAR_MISSES: tuple[tuple[str, str, str], ...] = (
    ("pay reservation {b} with my gift card", "use my voucher for reservation {b}", "can I pay {b} in instalments"),
    ("gift-wrap extra booking {x}", "send extra booking {x} to a friend as a present", "print a card for extra booking {x}"),
    ("put reservation {b} in my wife's name", "change the guest of reservation {b}", "who else is on reservation {b}"),
    ("send me the invoice of reservation {b} by mail", "I need a receipt for reservation {b}", "email the details of reservation {b}"),
    ("my card {k} was eaten by the machine, where is it", "send card {k} to my new address", "change the design of card {k}"),
    ("change the PIN of card {k}", "I forgot the PIN of card {k}", "what is the code of card {k}"),
    ("close account {a} for good", "add my son to account {a}", "rename account {a}"),
    ("why was the transfer from {a} to {a2} refused", "undo my last transfer from account {a}", "dispute a payment from account {a}"),
    ("remind me of appointment {a}", "send directions for appointment {a}", "can I bring my dog to appointment {a}"),
    ("what are the side effects of prescription {r}", "send prescription {r} to another pharmacy", "translate prescription {r}"),
    ("dispute bill {b}", "send bill {b} to my insurance", "who wrote bill {b}"),
    ("attach a screenshot to ticket {t}", "merge ticket {t} with my other one", "translate ticket {t} into French"),
    ("wipe device {d}", "sell device {d}", "back up device {d} before Friday"),
    ("I damaged the book of loan {l}", "photograph the cover of loan {l}", "recommend something like loan {l}"),
    ("move hold {h} to my sister", "send hold {h} to my office by post", "gift-wrap hold {h}"),
    ("weigh shipment {s} again", "repaint the boxes of shipment {s}", "take a photo of shipment {s}"),
    ("print a certificate for enrolment {e}", "email the homework of enrolment {e}", "pay enrolment {e} by card"),
    ("block adverts on line {l}", "give line {l} a nicer number", "trace who called line {l}"),
    ("split invoice {i} with my flatmate", "translate invoice {i}", "change the payer of invoice {i}"),
    ("record the calls of line {l}", "sell line {l} to my brother", "which phone fits line {l}"),
)


def measure(_: Deadline) -> Figures:
    rows = list(dict.fromkeys(_requests(random.Random(5))))
    with TemporaryDirectory() as folder:
        path, store = Path(folder) / "log.jsonl", Store(Path(folder) / "store")
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in rows), encoding="utf-8")
        config = FunnelConfig(worlds=WORLDS, ungrounded=False, coverage=CoverageConfig(keep=len(rows)))
        curate(store, [path], config)
        frames = store.query(
            "SELECT q.row, f.world || '/' || f.intent AS intent, f.status FROM frames f JOIN queries q USING (query_id, run) "
            "WHERE f.frame_id IS NOT NULL"
        )
    admitted = frames.filter(status="admitted")
    misread = [(rows[row], intent) for row, intent in admitted.select("row", "intent").iter_rows() if rows[row][1] != intent]
    for (text, expected), intent in misread[:20]:
        print(f"    “{text}” ({expected or 'no tool'}) became {intent}", flush=True)
    served = [row for row, (_, intent) in enumerate(rows) if intent]
    right = {row for row, intent in frames.select("row", "intent").iter_rows() if rows[row][1] == intent}
    return {"misread_share": len(misread) / max(1, admitted.height), "served_share": len(right) / len(served)}


def _requests(rng: random.Random) -> Iterator[tuple[str, str]]:
    """(text, intent; empty for a near miss)."""
    types = [*((wordings, intent) for intent, wordings in SERVED.items()), *((wordings, "") for wordings in NEAR_MISSES)]
    for wordings, intent in types:
        for wording in wordings:
            for _ in range(_EACH):
                yield _fill(wording, rng), intent


def _fill(wording: str, rng: random.Random) -> str:
    values = {letter: f"{letter}{rng.randrange(80):03d}" for letter in "abdehiklrstx"}
    return wording.format(**values, a2=f"a{rng.randrange(80):03d}", n=rng.randint(2, 5), m=rng.choice((50, 120, 300)))
