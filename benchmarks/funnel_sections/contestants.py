"""Who takes part in the comparison with peers, each in a process of its own: `python -m benchmarks.funnel_sections.contestants NAME
ROWS.parquet N OUT`.

Runs in our environment (`headrace`, `headrace_rules`) and in the peers' own (`.venv-peers`, see `peers.txt`), so nothing is imported
before it is needed. A contestant gets the same N texts as Python strings and leaves the positions that it keeps. Starting, importing,
reading and a warm-up on 100 rows are outside of what is measured: CPU time of the process and its children around the work alone;
memory is the whole process's peak.

Each is called as its documentation says for keeping one of each kind of alike texts; shingles are byte 6-grams, Jaccard 0.7, 21 bands of
6 rows where it lets one choose. What a contestant cannot do is said where it is called.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

Work = Callable[[list[str]], Sequence[int]]
"""Texts in, the positions of those that stay out, ascending."""

THRESHOLD, BANDS, ROWS_A_BAND = 0.7, 21, 6
FAST_SIZE, FAST_BANDS = 128, 16
"""FastSketchLSH takes powers of two only; rensa's matrix pipeline is called with the same."""
MIN_CHARS, MAX_CHARS = 6, 2000
WARM_UP = 100


def grams(text: str) -> set[bytes]:
    """Byte 6-grams, as `filters.dedup.minhash.shingles`."""
    data = text.encode()
    return {data[start : start + 6] for start in range(max(1, len(data) - 5))}


def alike(first: set[bytes], second: set[bytes]) -> bool:
    shared = len(first & second)
    return shared >= THRESHOLD * (len(first) + len(second) - shared)


# ---- near duplicates ----------------------------------------------------------------------------------------------------------


def headrace(guarded: bool = False) -> Work:
    """The near step, of what its peers do: signatures, candidates, true Jaccard of each, the first of its kind kept."""
    import polars as pl

    from filters.dedup import near
    from filters.dedup.guards import world_terms
    from filters.lexicon_worlds import lexicon_worlds

    config, terms = (near.NearConfig(), world_terms(lexicon_worlds())) if guarded else (near.NearConfig(protect=()), ())

    def work(texts: list[str]) -> Sequence[int]:
        rows = pl.DataFrame({"norm": texts}).with_row_index("row")
        return near.step(rows, config, terms).filter(pl.col("reason").is_null())["row"].to_list()

    return work


def headrace_guarded() -> Work:
    """The near step as the funnel runs it: numbers and terms must agree as well, which no peer looks at."""
    return headrace(guarded=True)


def rensa_verified() -> Work:
    """Its bulk signatures and its index, asked row by row; every candidate compared by true Jaccard, only kept rows indexed."""
    import rensa

    def work(texts: list[str]) -> Sequence[int]:
        index = rensa.RMinHashLSH(THRESHOLD, BANDS * ROWS_A_BAND, BANDS)
        kept: dict[int, set[bytes]] = {}
        for start in range(0, len(texts), 10_000):
            sets = [grams(text) for text in texts[start : start + 10_000]]
            sketches = rensa.RMinHash.from_token_sets([list(one) for one in sets], BANDS * ROWS_A_BAND, 42)
            for row, (one, sketch) in enumerate(zip(sets, sketches, strict=True), start):
                if not any(alike(one, kept[other]) for other in index.query(sketch)):
                    index.insert(row, sketch)
                    kept[row] = one
        return list(kept)

    return work


def rensa_estimated() -> Work:
    """Its own deduplicator: candidates are compared by their signatures alone."""
    import rensa

    def work(texts: list[str]) -> Sequence[int]:
        own = rensa.RMinHashDeduplicator(THRESHOLD, BANDS * ROWS_A_BAND, True, BANDS)
        return _positions(own.add_pairs((str(row), list(grams(text))) for row, text in enumerate(texts)))

    return work


def rensa_flags() -> Work:
    """Its fastest pipeline (rho sketches of hashed shingles): says which rows share a band with another, the first of its kind included,
    so it leaves no list of rows to keep; what is left here are the rows that are like no other."""
    import numpy as np
    import rensa

    def work(texts: list[str]) -> Sequence[int]:
        hashes, offsets = _flat(texts)
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes_rho(hashes, offsets, FAST_SIZE, 42)
        flags = rensa.RMinHashLSH(THRESHOLD, FAST_SIZE, FAST_BANDS).query_duplicate_flags_matrix_one_shot(matrix)
        return np.flatnonzero(~np.array(flags, bool)).tolist()

    return work


def datasketch() -> Work:
    """Its documented loop (signatures in bulk, query, insert), with the true Jaccard in place of the estimate."""
    from datasketch import MinHash, MinHashLSH

    def work(texts: list[str]) -> Sequence[int]:
        index = MinHashLSH(num_perm=BANDS * ROWS_A_BAND, params=(BANDS, ROWS_A_BAND))
        kept: dict[int, set[bytes]] = {}
        sets = (grams(text) for text in texts)
        for row, (one, sketch) in enumerate(_beside(sets, lambda given: MinHash.generator(given, num_perm=BANDS * ROWS_A_BAND))):
            if not any(alike(one, kept[other]) for other in index.query(sketch)):
                index.insert(row, sketch)
                kept[row] = one
        return list(kept)

    return work


def fastsketchlsh() -> Work:
    """Its fastest pipeline (hashed shingles in one array); a row goes when it shares a band with an earlier one, unverified."""
    import numpy as np
    from FastSketchLSH import LSH, FastSimilaritySketch

    def work(texts: list[str]) -> Sequence[int]:
        hashes, offsets = _flat(texts)
        matrix = FastSimilaritySketch(size=FAST_SIZE, seed=42).batch_csr(hashes, offsets, prehashed=True, num_threads=1)
        index = LSH(num_perm=FAST_SIZE, num_bands=FAST_BANDS, num_threads=1)
        index.insert(matrix)
        found, starts = index.query(matrix, format="csr")  # a row is always among its own candidates
        first = np.minimum.reduceat(found, np.asarray(starts[:-1], np.int64))
        return np.flatnonzero(first == np.arange(len(texts))).tolist()

    return work


def fastsketchlsh_flags() -> Work:
    """The same without asking for candidates: which rows share a band with another, the first of its kind included, as `rensa_flags`."""
    import numpy as np
    from FastSketchLSH import LSH, FastSimilaritySketch

    def work(texts: list[str]) -> Sequence[int]:
        hashes, offsets = _flat(texts)
        matrix = FastSimilaritySketch(size=FAST_SIZE, seed=42).batch_csr(hashes, offsets, prehashed=True, num_threads=1)
        flags = LSH(num_perm=FAST_SIZE, num_bands=FAST_BANDS, num_threads=1).insert_and_query_duplicates(matrix)
        return np.flatnonzero(flags == 0).tolist()

    return work


def datatrove() -> Work:
    """Its four steps with the parameters of its documentation (14 buckets of 8), once a language, each with the tokeniser that it has for
    it, over word 2-grams: it knows no n-grams of characters. Clusters are not verified."""
    from datatrove.pipeline.dedup.minhash import MinhashConfig

    _quiet()
    config = MinhashConfig(n_grams=2)

    def work(texts: list[str]) -> Sequence[int]:
        is_chinese = [re.search(r"[\u4e00-\u9fff]", text) is not None for text in texts]
        kept: list[int] = []
        for language, chosen in (("eng_Latn", False), ("cmn_Hani", True)):
            rows = [row for row, chinese in enumerate(is_chinese) if chinese == chosen]
            kept += [rows[place] for place in _datatrove_kept([texts[row] for row in rows], language, config)]
        return sorted(kept)

    return work


def _datatrove_kept(texts: list[str], language: str, config: Any) -> list[int]:
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature

    kept: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        steps = [
            ([_documents(texts), MinhashDedupSignature(f"{folder}/sig", config=config, language=language)], 1),
            ([MinhashDedupBuckets(f"{folder}/sig", f"{folder}/pairs", config=config)], config.num_buckets),
            ([MinhashDedupCluster(f"{folder}/pairs", f"{folder}/removed", config=config)], 1),
            ([_documents(texts), MinhashDedupFilter(f"{folder}/removed"), _collector(kept)], 1),
        ]
        for number, (pipeline, tasks) in enumerate(steps):
            LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=f"{folder}/log{number}").run()
    return kept


# ---- rules --------------------------------------------------------------------------------------------------------------------


def headrace_rules() -> Work:
    """All rules of the funnel (eight reasons), with language and the masking of personal data: more than the five that are compared."""
    import polars as pl

    from filters.normalised_text import languages
    from filters.personal import mask_personal
    from filters.steps import rules

    config = rules.RulesConfig()

    def work(texts: list[str]) -> Sequence[int]:
        norm = mask_personal(pl.Series("norm", texts))
        rows = pl.DataFrame({"norm": norm, "language": languages(norm)}).with_row_index("row")
        return rules.step(rows, config).filter(pl.col("reason").is_null())["row"].to_list()

    return work


def datatrove_rules() -> Work:
    """Five rules: letters, length, repeated characters, nothing but a link, e-mail addresses. Filters of one predicate each, and its
    formatter for addresses. Reasons are not written down (exclusion writers are off)."""
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.filters import LambdaFilter
    from datatrove.pipeline.formatters import PIIFormatter

    _quiet()
    link, repeated, letter = re.compile(r"(?:https?://|www\.)\S*"), re.compile(r"(.)\1{5}"), re.compile(r"[a-z\u00df-\u024f\u3400-\u9fff]")
    predicates: list[Callable[[str], bool]] = [
        lambda text: letter.search(text) is not None,
        lambda text: MIN_CHARS <= len(text) <= MAX_CHARS,
        lambda text: repeated.search(text) is None,
        lambda text: len(link.sub("", text).strip()) >= MIN_CHARS,
    ]

    def work(texts: list[str]) -> Sequence[int]:
        kept: list[int] = []
        filters = [LambdaFilter(lambda document, fits=fits: fits(document.text)) for fits in predicates]
        with tempfile.TemporaryDirectory() as folder:
            pipeline = [_documents(texts), *filters, PIIFormatter(remove_ips=False), _collector(kept)]
            LocalPipelineExecutor(pipeline, tasks=1, logging_dir=folder).run()
        return kept

    return work


def data_juicer_rules() -> Work:
    """Its own operators nearest to the five, over its dataset: a link is removed, and what is left is then too short.

    After each operator it would free models on a GPU, and install 5 GB of PyTorch for that: left out."""
    folder = tempfile.TemporaryDirectory()
    os.environ |= {"HF_DATASETS_CACHE": folder.name, "DATA_JUICER_CACHE_HOME": folder.name, "HF_HUB_OFFLINE": "1"}
    import datasets
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops import base_op
    from data_juicer.ops.filter.alphanumeric_filter import AlphanumericFilter
    from data_juicer.ops.filter.character_repetition_filter import CharacterRepetitionFilter
    from data_juicer.ops.filter.text_length_filter import TextLengthFilter
    from data_juicer.ops.mapper.clean_email_mapper import CleanEmailMapper
    from data_juicer.ops.mapper.clean_links_mapper import CleanLinksMapper

    _quiet()
    base_op.free_models = lambda: None
    datasets.disable_progress_bars()
    datasets.disable_caching()

    def work(texts: list[str]) -> Sequence[int]:
        operators = [
            AlphanumericFilter(min_ratio=0.25, num_proc=1),
            CharacterRepetitionFilter(rep_len=6, max_ratio=0.5, num_proc=1),
            CleanLinksMapper(num_proc=1),
            CleanEmailMapper(repl="<email>", num_proc=1),
            TextLengthFilter(min_len=MIN_CHARS, max_len=MAX_CHARS, num_proc=1),
        ]
        rows = NestedDataset.from_dict({"text": texts, "row": list(range(len(texts)))})
        return list(rows.process(operators, open_monitor=False)["row"])

    return work


# ---- what they share ----------------------------------------------------------------------------------------------------------


def _positions(flags: Iterable[bool]) -> list[int]:
    return [row for row, flag in enumerate(flags) if flag]


def _beside(sets: Iterable[set[bytes]], sketched: Callable[[Iterable[set[bytes]]], Iterable[Any]]) -> Iterable[tuple[set[bytes], Any]]:
    """Each set with its sketch, from a maker of sketches that takes all sets and gives one at a time."""
    held: list[set[bytes]] = []

    def given() -> Iterable[set[bytes]]:
        for one in sets:
            held.append(one)
            yield one

    for sketch in sketched(given()):
        yield held.pop(), sketch


def _flat(texts: list[str]) -> tuple[Any, Any]:
    """All byte 6-grams of all texts (of six bytes at least) as 64-bit hashes in one array, and where each text's begin: the cheapest
    shingling for a peer."""
    import numpy as np

    data = [text.encode() for text in texts]
    lengths = np.array([len(one) for one in data], np.int64)
    begins = np.cumsum(lengths) - lengths
    joined = np.frombuffer(b"".join(data) + bytes(8), np.uint8)
    packed = np.zeros(joined.size - 6, np.uint64)
    for place in range(6):
        packed |= joined[place : place + packed.size].astype(np.uint64) << np.uint64(8 * place)
    counts = np.maximum(lengths - 5, 1)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    hashes = packed[np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], counts)] * np.uint64(0x9E3779B97F4A7C15)
    return hashes ^ (hashes >> np.uint64(29)), offsets.astype(np.uint64)


def _documents(texts: list[str]) -> list[Any]:
    from datatrove.data import Document

    return [Document(text=text, id=str(row)) for row, text in enumerate(texts)]


def _collector(kept: list[int]) -> Callable[..., Iterable[Any]]:
    """The last step of a datatrove pipeline: notes which documents arrive."""

    def collect(documents: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterable[Any]:
        for document in documents:
            kept.append(int(document.id))
            yield document

    return collect


def _quiet() -> None:
    from loguru import logger

    logger.remove()


CONTESTANTS: dict[str, tuple[str, Callable[[], Work]]] = {
    "headrace": ("headrace", headrace),
    "headrace_guarded": ("headrace", headrace_guarded),
    "rensa_verified": ("rensa", rensa_verified),
    "rensa_estimated": ("rensa", rensa_estimated),
    "rensa_flags": ("rensa", rensa_flags),
    "datasketch": ("datasketch", datasketch),
    "fastsketchlsh": ("FastSketchLSH", fastsketchlsh),
    "fastsketchlsh_flags": ("FastSketchLSH", fastsketchlsh_flags),
    "datatrove": ("datatrove", datatrove),
    "headrace_rules": ("headrace", headrace_rules),
    "datatrove_rules": ("datatrove", datatrove_rules),
    "data_juicer_rules": ("py-data-juicer", data_juicer_rules),
}
"""Name -> the distribution whose version is told, and what prepares the work."""


def cpu_s() -> float:
    """Of this process and its children that ended, user and system."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(name: str, path: str, rows: int, out: str) -> None:
    import pyarrow.parquet as pq

    distribution, prepare = CONTESTANTS[name]
    work = prepare()
    texts = pq.read_table(path, columns=["norm"])["norm"].slice(0, rows).to_pylist()
    work(texts[:WARM_UP])
    before = cpu_s()
    kept = work(texts)
    spent_s = cpu_s() - before
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kept = [int(row) for row in kept]
    told = {"rows": len(texts), "cpu_s": spent_s, "peak_mib": peak_mib, "version": version(distribution), "kept": kept}
    Path(out).write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
