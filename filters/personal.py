"""Masks personal data before a text is compared or stored: e-mail, phone, identity and card numbers.

Patterns use ASCII classes, for lower-case or raw text; only rows with an `@` or seven digits are searched. A phone number differs from an
order number by a country code, by separators, or by the form of a Chinese mobile number (11 digits, from 13 on).
Not covered: names, addresses, numbers in words, and other phone numbers without separators (5551234567, 01012345678, 95558888). A long run
of digits that is no personal data may be masked too.
"""

from __future__ import annotations

import polars as pl

EMAIL, PHONE, IDENTITY, CARD = "<email>", "<phone>", "<identity>", "<card>"
MASK = r"<(?:email|phone|identity|card)>"

_EMAIL = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
_DIGITS = r"[0-9](?:[ ().-]{0,2}[0-9]){6}"
_IDENTITY = "|".join(
    (
        r"(?-u:\b)[1-9][0-9]{5}(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9xX](?-u:\b)",
        r"(?-u:\b)[0-9]{3}-[0-9]{2}-[0-9]{4}(?-u:\b)",
    )
)
_CARD = r"(?-u:\b)[2-6][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{1,7}(?-u:\b)"
_PHONE = (
    r"(?:\+[1-9][0-9]{0,2}[ .-]?|(?-u:\b)00[1-9][0-9]{0,2}[ .-])(?:\(?[0-9]{2,4}\)?[ .-]?){1,3}[0-9]{2,4}(?-u:\b)"  # +44 20 7946 0958
    r"|(?-u:\b)1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}(?-u:\b)"  # 138 1234 5678
    r"|(?:\(0[0-9]{2,3}\) ?|(?-u:\b)0[0-9]{2,3}[ -])[0-9]{3,4}[ -]?[0-9]{4}(?-u:\b)"  # 010-12345678, 021 5555 1234, (0571) 87654321
    r"|(?:\([0-9]{3}\) ?|(?-u:\b)[0-9]{3}[-. ])[0-9]{3}[-. ][0-9]{4}(?-u:\b)"  # (555) 123-4567
)


def mask_personal(texts: pl.Series) -> pl.Series:
    """The texts with every piece of personal data replaced by `<email>`, `<phone>`, `<identity>` or `<card>`; null stays null."""
    suspects = (texts.str.contains("@", literal=True) | texts.str.contains(_DIGITS)).fill_null(False).arg_true()
    replaced = texts.gather(suspects).str.replace_all(_EMAIL, EMAIL)
    return texts.scatter(
        suspects, replaced.str.replace_all(_IDENTITY, IDENTITY).str.replace_all(_CARD, CARD).str.replace_all(_PHONE, PHONE)
    )
