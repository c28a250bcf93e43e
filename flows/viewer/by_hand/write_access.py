"""Who may write by hand, and which requests do: the guards of the one address of the viewer that changes a store.

A request writes only if the viewer was started with `--write`, if it is sent (POST) from a page of this viewer, which the browser says in
its headers, and if it has the token of the forms of this process, which no other website can read. So a page elsewhere can neither write
nor have the user write. It does not guard against other programs of the same user.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from fastapi import Request

from flows.validation import system_user
from storage.by_hand.hand_rows import check_author
from storage.errors import BadInput, HeadraceError

MOST_BYTES = 1_000_000
"""Of a form that is sent."""
_MOST_FIELDS = 20_000


class NotAllowed(HeadraceError):
    """The request may not write."""


@dataclass(frozen=True)
class WriteAccess:
    """Permission to write in the name of one person. token: of the forms of this process."""

    author: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


def allow_writes(author: str | None) -> WriteAccess:
    """author: None for the name of the system's user.

    Raises BadInput: it cannot be a name, or the system has none.
    """
    return WriteAccess(check_author(author or system_user()))


def write_access(request: Request) -> WriteAccess | None:
    """The permission with which the viewer was started."""
    access: WriteAccess | None = getattr(request.app.state, "write_access", None)
    return access


def check_writes(request: Request, form: dict[str, list[str]]) -> WriteAccess:
    """The permission of a request that writes.

    Raises NotAllowed: the viewer only reads, or the request does not come from a page of this viewer.
    """
    access = write_access(request)
    if access is None:
        raise NotAllowed("this viewer only reads; start it with `headrace view --write` to annotate")
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    is_own = (site is not None or origin is not None) and site in (None, "same-origin") and origin in (None, own)
    if not is_own:
        raise NotAllowed("this was not sent from a page of this viewer, so nothing was written")
    token = "".join(form.get("token", []))
    if not secrets.compare_digest(token.encode("utf-8", "replace"), access.token.encode()):
        raise NotAllowed("this form is of an earlier start of the viewer, so nothing was written; reload its page and try again")
    return access


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form that was sent, each with its values.

    Raises BadInput: it is no form, or is too long.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadInput("a form is sent as application/x-www-form-urlencoded")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise BadInput(f"the form is longer than {MOST_BYTES:,} bytes")
    try:
        return parse_qs(bytes(body).decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadInput("the form has characters that cannot be read, or too many fields") from None
