"""The kernels against datasketch and against plain sets: signatures to the byte, Jaccard to the last digit."""

import numpy as np
import polars as pl
import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.dedup import near
from filters.dedup.guards import guards
from filters.dedup.minhash import jaccard, permutations, shingle_hash32, shingles, sign
from filters.dedup.near import NearConfig
from filters.frames.numba_types import U32, text_buffer

CONFIG = NearConfig()
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text("ab ", max_size=30),
    st.sampled_from(["", "a", "abcde", "abcdef", "abcdefg", "咖", "咖啡", "咖啡馆", "aaaaaaaaaaaa"]),
)


def signatures(texts: list[str], config: NearConfig = CONFIG) -> list[U32]:
    """What the kernel behind the band keys makes of the texts, out of one buffer."""
    a, b = permutations(config.bands * config.rows_a_band, config.seed)
    encoded = [text.encode() for text in texts]
    data, longest = np.frombuffer(b"".join(encoded), np.uint8), max(map(len, encoded))
    packed, hashes = np.empty(longest + 1, np.uint64), np.empty(longest + 9, np.uint32)
    out, start = [], 0
    for text in encoded:
        out.append(np.empty(a.size, np.uint32))
        sign(data, start, start + len(text), packed, hashes, a, b, out[-1])
        start += len(text)
    return out


def theirs(text: str, config: NearConfig = CONFIG) -> MinHash:
    sketch = MinHash(num_perm=config.bands * config.rows_a_band, seed=config.seed, hashfunc=shingle_hash32, scheme="affine32")
    sketch.update_batch(list(shingles(text.encode())))
    return sketch


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_signatures_equal_datasketch_byte_for_byte(texts: list[str]) -> None:
    for row, text in zip(signatures(texts), texts, strict=True):
        expected = theirs(text).hashvalues
        assert row.dtype == expected.dtype
        assert row.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("bands", "rows_a_band", "seed"), [(1, 1, 1), (16, 4, 7), (14, 9, 42)])
def test_with_any_permutations(bands: int, rows_a_band: int, seed: int) -> None:
    config = NearConfig(bands=bands, rows_a_band=rows_a_band, seed=seed)
    texts = ["find a cafe near the old bridge", "附近的咖啡馆", "", "x", "word " * 500]
    for row, text in zip(signatures(texts, config), texts, strict=True):
        assert row.tobytes() == theirs(text, config).hashvalues.tobytes()


def test_a_repeated_shingle_changes_nothing_and_a_missing_one_does() -> None:
    once, often, other = signatures(["abcdefabcdef", "abcdefabcdefabcdef", "abcdefabcdeg"])
    assert np.array_equal(once, often)
    assert not np.array_equal(once, other)


def test_datasketch_reads_our_signatures() -> None:
    """Given signatures from our kernel, when datasketch's own LSH indexes them, then it finds the near text and not the far one."""
    texts = ["find a quiet cafe near the old bridge", "find a quiet cafe near the old bridgee", "cancel the order of the blue mug"]
    sketches = [
        MinHash(hashvalues=row, permutations=permutations(row.size), scheme="affine32", hashfunc=shingle_hash32)
        for row in signatures(texts)
    ]
    index = MinHashLSH(num_perm=126, params=(CONFIG.bands, CONFIG.rows_a_band))
    for name, sketch in enumerate(sketches[1:], 1):
        index.insert(name, sketch)
    assert index.query(sketches[0]) == [1]
    assert sketches[0].jaccard(theirs(texts[1])) > 0.7


def test_shingles_are_six_bytes_or_the_whole_text() -> None:
    assert shingles(b"") == set()
    assert shingles(b"abc") == {b"abc"}
    assert shingles(b"abcdefgh") == {b"abcdef", b"bcdefg", b"cdefgh"}
    assert len(shingles("咖啡馆".encode())) == 4
    assert shingle_hash32(b"abc") != shingle_hash32(b"abc\0")


@settings(max_examples=300, deadline=None)
@given(st.text("abcdef ", max_size=30), st.integers(0, 6), st.text("abcdefg", max_size=6), st.sampled_from([0.5, 0.7, 0.8, 1.0]))
def test_a_proposed_pair_is_dropped_exactly_where_its_jaccard_says_so(text: str, less: int, more: str, threshold: float) -> None:
    """Given a text and one like it, as the only pair that is proposed, then the later one goes if and only if it is like enough."""
    other = text[: max(0, len(text) - less)] + more
    data, offsets = text_buffer(pl.Series([text, other], dtype=pl.String))
    guarded = guards(pl.Series([text, other], dtype=pl.String), (), digits=False)
    keeper = np.arange(2, dtype=np.uint32)
    similarity = near.decide(data, offsets, guarded, np.array([1 << 32], np.uint64), NearConfig(threshold=threshold, protect=()), keeper)
    true = jaccard(text, other)
    assert (keeper[1] == 0) == (true >= threshold and bool(text))
    assert similarity[1] == (np.float32(true) if keeper[1] == 0 else 0)
