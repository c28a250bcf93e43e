"""Two small worlds of the tests: a bank, and a cinema with a twin in another town."""

from __future__ import annotations

from datetime import date

from filters.reading.declaration import ReadableIntent, ReadableSlot, ReadableWorld

TODAY = date(2019, 3, 1)
_ACCOUNTS = {"checking": ("checking",), "savings": ("savings",)}
_ACCOUNT = ReadableSlot("account_type", "choice", "The user's account", _ACCOUNTS)
BANK = ReadableWorld(
    "bank",
    "Manage bank accounts and transfer money",
    {
        "CheckBalance": ReadableIntent(
            "CheckBalance", "Check the balance of an account", {"account_type": _ACCOUNT}, frozenset({"account_type"})
        ),
        "TransferMoney": ReadableIntent(
            "TransferMoney",
            "Transfer money to another user's account",
            {
                "account_type": _ACCOUNT,
                "amount": ReadableSlot("amount", "money", "The amount of money to transfer"),
                "recipient_name": ReadableSlot("recipient_name", "name", "Name of the recipient of the money"),
                "recipient_account_type": ReadableSlot("recipient_account_type", "choice", "Account of the recipient", _ACCOUNTS),
            },
            frozenset({"account_type", "amount", "recipient_name"}),
            is_act=True,
        ),
    },
    TODAY,
)


def cinema(name: str) -> ReadableWorld:
    slots = {
        slot.name: slot
        for slot in (
            ReadableSlot("city", "name", "City where the film is shown"),
            ReadableSlot("genre", "name", "Genre of the film"),
            ReadableSlot("show_date", "day", "Date of the show"),
            ReadableSlot("seats", "count", "Number of seats to book", low=1, high=9),
            ReadableSlot("film", "name", "Title of the film"),
            ReadableSlot("subtitles", "flag", "Whether the film has subtitles"),
        )
    }
    finds, books = ("city", "genre", "show_date", "subtitles"), ("film", "seats", "show_date")
    return ReadableWorld(
        name,
        "Find films and book seats in cinemas",
        {
            "FindFilms": ReadableIntent(
                "FindFilms", "Find films in a city by genre", {slot: slots[slot] for slot in finds}, frozenset({"city"})
            ),
            "BookSeats": ReadableIntent(
                "BookSeats", "Book seats for a film", {slot: slots[slot] for slot in books}, frozenset(books), is_act=True
            ),
        },
        TODAY,
    )


CINEMA = cinema("cinema")
