"""The addresses of all pages of the viewer: those of its navigation, and one of each kind that their links lead to.

Followed as a reader would, from page to page, so that a new kind of page is included as soon as a link leads to it.
"""

from __future__ import annotations

import re
from collections import deque
from html.parser import HTMLParser
from urllib.parse import parse_qs, unquote, urlencode, urljoin, urlsplit

import httpx

from flows.viewer.rendering import PAGES
from storage.store import Store

EXTRA = ("/item/trajectory-0000000000000000", "/requests?text=nothing+has+this+text", "/no-such-page")
"""An id and a text that are not there, and a page that is not."""
_MOST = 60
_DEPTH = 3
_FIXED = ("compare", "overview", "map", "by-hand")
"""Folders whose pages have names, and no ids."""
_NO_PAGES = r"^/map/ids$|^/by-hand/download\.|/text$"
"""Paths of what is downloaded or is plain text."""
_PASSED_OVER = ("first", "token")
"""Parameters whose values make no other kind of page."""


def comparisons(store: Store) -> list[str]:
    """The addresses of a comparison of releases and of one of policies, which forms lead to."""
    found = []
    for kind, table, key in (("releases", "releases", "release_id"), ("policies", "policies", "policy_id")):
        ids = store.query(f"SELECT {key} AS id FROM {table} JOIN parts USING (part_id) ORDER BY parts.rowid")["id"].to_list()
        if len(ids) > 1:
            found.append(f"/compare/{kind}?{urlencode({'first': ids[0], 'second': ids[-1]})}")
    return found


def page_addresses(address: str, store: Store) -> dict[str, str]:
    """Kind of page -> an address of that kind, the navigation first."""
    found = {kind_of(url): url for url, _ in PAGES}
    waiting = deque((url, 0) for url in found.values())
    with httpx.Client(base_url=address, timeout=60, follow_redirects=True) as client:
        while waiting and len(found) < _MOST:
            url, depth = waiting.popleft()
            page = client.get(url)
            if depth == _DEPTH or not page.headers.get("content-type", "").startswith("text/html"):
                continue
            for link in links_of(page.text, url):
                kind = kind_of(link)
                if kind not in found and len(found) < _MOST:
                    found[kind] = link
                    waiting.append((link, depth + 1))
    found |= {kind_of(url): url for url in comparisons(store)}
    return found | {kind_of(url) + " (nothing there)": url for url in EXTRA}


def kind_of(url: str) -> str:
    """`/tasks/task-0123456789abcdef?page=2` -> `/tasks/task?page`: an id's kind, a star for another name, names of parameters."""
    parts = urlsplit(url)
    segments = parts.path.split("/")
    is_fixed = segments[1] in _FIXED
    kinds = [_kind_of_name(unquote(segment)) if at == 2 and not is_fixed else segment for at, segment in enumerate(segments)]
    names = sorted(name for name in parse_qs(parts.query) if name not in _PASSED_OVER)
    return "/".join(kinds) + (f"?{'&'.join(names)}" if names else "")


def _kind_of_name(name: str) -> str:
    return name.partition("-")[0] if re.fullmatch(r"[a-z]+-[0-9a-f]{8}.*", name) else "*"


def links_of(page: str, url: str) -> list[str]:
    """The addresses on the same server that a page links to, without what stands after #, each once, in order."""
    parser = _Links()
    parser.feed(page)
    local = (urlsplit(urljoin(url, link)) for link in parser.links)
    pages = (one for one in local if not one.netloc and one.path.startswith("/") and not re.search(_NO_PAGES, one.path))
    return list(dict.fromkeys(one._replace(fragment="").geturl() for one in pages))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (link := dict(attributes).get("href")) and "download" not in dict(attributes):
            self.links.append(link)
