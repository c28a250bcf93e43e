"""What a hostile server answers to a chat: kinds of answers by name, each a function that answers one request."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import Mock

KEY = "sk-hostile-4711-abcdef"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\u202egnp.exe\u2066\x9b31m"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Hostile(Mock):
    """Gives every chat the same answer. At `/v1/models` it is an ordinary server."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    async def chat(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return await self._answer(request)


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """Answers with this body: bytes, text, or a JSON value."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()

    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=data, status=status, headers={"Content-Type": "application/json"} | named)

    return answer


def message(**fields: Any) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": "ok"} | fields}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def call(**fields: Any) -> dict[str, Any]:
    return message(tool_calls=[{"id": "c", "type": "function", "function": {"name": "echo", "arguments": "{}"}} | fields])


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [message()["choices"][0] | fields]}


def usage(**fields: Any) -> dict[str, Any]:
    return message() | {"usage": fields}


def raw(data: bytes, repeats: int = 0) -> Answer:
    """Writes bytes instead of an HTTP answer, repeats the last line of them, and closes the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(data)
        for _ in range(repeats):
            if request.transport.is_closing():
                break
            request.transport.write(data)
            await asyncio.sleep(0)
        request.transport.close()
        raise ConnectionResetError

    return answer


def endless(status: int = 200, wait_s: float = 0.0, piece: bytes = b" " * 65_536) -> Answer:
    """Writes pieces until the client leaves."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(wait_s)

    return answer


def gzip_bomb(gib: int = 1) -> bytes:
    """Members of 16 MiB of zeros each, `gib` GiB in all, in about 16 KB a member."""
    return gzip.compress(bytes(1 << 24)) * (64 * gib)


def deflate_bomb() -> bytes:
    packer = zlib.compressobj(1)
    return b"".join([packer.compress(bytes(1 << 24)) for _ in range(16)]) + packer.flush()


REDIRECT = "/v1/chat/completions"
KINDS: dict[str, Callable[[], Answer]] = {
    "a gzip bomb": lambda: says(gzip_bomb(), Content_Encoding="gzip"),
    "a deflate bomb": lambda: says(deflate_bomb(), Content_Encoding="deflate"),
    "a gzip bomb as an error": lambda: says(gzip_bomb(), 400, Content_Encoding="gzip"),
    "an endless answer": endless,
    "an endless error": lambda: endless(500),
    "a byte now and then": lambda: endless(wait_s=0.05, piece=b" "),
    "no gzip": lambda: says(b"plainly not", Content_Encoding="gzip"),
    "an unknown encoding": lambda: says(message(), Content_Encoding="rot13"),
    "more promised than sent": lambda: raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{"),
    "no HTTP": lambda: raw(b"\x00\xff\x1b[2J" * 100),
    "nothing": lambda: raw(b""),
    "a status that is none": lambda: raw(b"HTTP/1.1 99999 \x1b[31mOK\r\n\r\n"),
    "a negative length": lambda: raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
    "a chunk of exabytes": lambda: raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}"),
    "endless hints": lambda: raw(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 100, repeats=2_000),
    "a header of megabytes": lambda: raw(b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 4_000_000 + b"\r\n\r\n{}"),
    "many headers": lambda: raw(b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: a=b\r\n" * 50_000 + b"\r\n{}"),
    "a redirect in a circle": lambda: says("", 307, Location=REDIRECT),
    "a redirect to a file": lambda: says("", 302, Location="file:///etc/passwd"),
    "a redirect to no URL": lambda: says("", 301, Location="http://[::1"),
    "no JSON": lambda: says("hello"),
    "nothing at all": lambda: says(""),
    "a list": lambda: says([1]),
    "deep nesting": lambda: says("[" * 900_000),
    "many small lists": lambda: says(b"[" + b"[]," * 300_000 + b"[]]"),
    "no choice": lambda: says({"choices": []}),
    "choices that are none": lambda: says({"choices": "x"}),
    "a choice that is none": lambda: says({"choices": ["x"]}),
    "a message that is none": lambda: says({"choices": [{"message": "x"}]}),
    "content of parts": lambda: says(message(content=[{"type": "text"}])),
    "content with escapes": lambda: says(message(content=ESCAPES)),
    "content with zero bytes": lambda: says(message(content="a\x00b")),
    "half a character": lambda: says('{"choices": [{"message": {"content": "\\ud800"}}]}'),
    "a call with a number as name": lambda: says(call(function={"name": 7, "arguments": "{}"})),
    "a call with escapes as name and id": lambda: says(call(id=ESCAPES, function={"name": ESCAPES * 99, "arguments": "{}"})),
    "arguments that are no text": lambda: says(call(function={"name": "echo", "arguments": {"a": 1}})),
    "calls that are none": lambda: says(message(tool_calls={"a": 1})),
    "usage that is none": lambda: says(message() | {"usage": [1]}),
    "negative usage": lambda: says(usage(prompt_tokens=-1_000_000, completion_tokens=-5)),
    "boundless usage": lambda: says(usage(prompt_tokens=1e308, completion_tokens=2**63)),
    "log-probabilities that are none": lambda: says(choice(logprobs="x")),
    "boundless log-probabilities": lambda: says(choice(logprobs={"content": [{"logprob": -1.0, "top_logprobs": [{"logprob": 1e308}]}]})),
    "tokens that are none": lambda: says(choice(token_ids="abc")),
    "negative tokens": lambda: says(choice(token_ids=[-1])),
    "a reason that is none": lambda: says(choice(finish_reason={"a": 1})),
    "the key in an error": lambda: says({"error": {"message": f"bad key {KEY}", "code": KEY, "type": KEY}}, 401),
    "the key in a body of text": lambda: says(f"bad key {KEY}", 400),
    "escapes in an error": lambda: says({"error": {"message": ESCAPES * 50}}, 400),
    "an error that is a list": lambda: says([1], 400),
    "an error that is nested": lambda: says({"error": {"message": {"a": [ESCAPES]}}}, 418),
    "a wait without end": lambda: says({"error": {"message": "later"}}, 429, Retry_After="9" * 400),
    "a wait until no date": lambda: says({"error": {"message": "later"}}, 503, Retry_After="Mon, 01 Jan 0001 00:00:00 -2359"),
}
