"""Compiled kernels for near duplicates: MinHash signatures, bands, candidate pairs, true Jaccard.

datasketch is the contract: what `sign` makes of a text equals, byte for byte, the `hashvalues` of
`MinHash(num_perm=k, hashfunc=shingle_hash32, scheme="affine32")` fed with the text's shingles, where k is the bands times the rows a
band. Signatures are not stored: a band's part of each is hashed to a key at once.
A shingle is six successive bytes of the UTF-8 text (six Latin letters, or two Chinese characters); a shorter text is one shingle,
an empty one has none. Kernels hold no Python lock (`nogil`), so threads share the work.
Those that call each other stay in this one file: numba's cache on disk looks at no other for changes.
"""

from __future__ import annotations

import numpy as np
from datasketch import MinHash

from filters.compiled import F64, I64, U8, U32, U64, compiled

SHINGLE_BYTES = 6

_MIX = 0x9E3779B97F4A7C15


def permutations(count: int, seed: int = 1) -> tuple[U32, U32]:
    """The multipliers and offsets of `count` permutations: datasketch's own for this seed."""
    a, b = MinHash(num_perm=count, seed=seed, scheme="affine32").permutations
    return np.ascontiguousarray(a, dtype=np.uint32), np.ascontiguousarray(b, dtype=np.uint32)


def shingles(data: bytes) -> set[bytes]:
    """The set of shingles of a text: the definition that the kernels implement, for datasketch and for tests."""
    if len(data) <= SHINGLE_BYTES:
        return {data} if data else set()
    return {data[start : start + SHINGLE_BYTES] for start in range(len(data) - SHINGLE_BYTES + 1)}


def jaccard(first: str, second: str) -> float:
    """Of the sets of shingles of two texts, 0 where both are empty: what `keep_first` computes, for tests and benchmarks."""
    one, two = shingles(first.encode()), shingles(second.encode())
    return len(one & two) / len(one | two) if one | two else 0.0


def shingle_hash32(shingle: bytes) -> int:
    """32-bit hash of one shingle of at most six bytes: datasketch's `hashfunc`."""
    packed = int.from_bytes(shingle, "little") | len(shingle) << 56
    return (packed * _MIX & 0xFFFFFFFFFFFFFFFF) >> 32


@compiled
def _pack(data: U8, start: int, end: int, out: U64) -> int:
    """The shingles of `data[start:end]`, in order, each as its bytes and length in 64 bits; returns how many."""
    length = end - start
    if length == 0:
        return 0
    width = min(length, 6)
    packed = np.uint64(0)
    for offset in range(width):
        packed |= np.uint64(data[start + offset]) << np.uint64(8 * offset)
    tag = np.uint64(width) << np.uint64(56)
    out[0] = packed | tag
    for offset in range(6, length):
        packed = (packed >> np.uint64(8)) | (np.uint64(data[start + offset]) << np.uint64(40))
        out[offset - 5] = packed | tag
    return max(length - 5, 1)


@compiled
def _mixed(packed: U64, count: int, out: U32) -> None:
    """Shingle hashes after datasketch's pre-mix (the MurmurHash3 finalizer)."""
    for index in range(count):
        value = np.uint32((packed[index] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32))
        value ^= value >> np.uint32(16)
        value = np.uint32(value * np.uint32(0x85EBCA6B))
        value ^= value >> np.uint32(13)
        value = np.uint32(value * np.uint32(0xC2B2AE35))
        out[index] = value ^ (value >> np.uint32(16))


@compiled
def _signature(hashes: U32, count: int, a: U32, b: U32, out: U32) -> None:
    for k in range(a.size):
        multiplier, offset = a[k], b[k]
        low = np.uint32(0xFFFFFFFF)
        for index in range(count):
            low = min(low, np.uint32(np.uint32(multiplier * hashes[index]) + offset))
        out[k] = low


@compiled
def _longest(offsets: I64) -> int:
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest


@compiled
def sign(data: U8, start: int, end: int, packed: U64, hashes: U32, a: U32, b: U32, out: U32) -> int:
    """The signature of the text `data[start:end]` into `out`, all ones for an empty text; returns how many shingles (repeats counted) lie
    in `packed`. Scratch: packed [bytes of the longest text + 1], hashes [32 more than packed]; permutations a and b, like `out`."""
    count = _pack(data, start, end, packed)
    _mixed(packed, count, hashes)
    padded = (count + 31) // 32 * 32
    hashes[count:padded] = hashes[0]  # a repeated shingle changes no minimum, and whole vectors are fast
    _signature(hashes, padded, a, b, out)
    return count


@compiled
def fill_band_keys(data: U8, offsets: I64, a: U32, b: U32, keys: U64) -> None:
    """Fills `keys` [bands, rows] with a 64-bit hash of each band's part of the signature. Permutations = bands x rows a band."""
    bands = keys.shape[0]
    rows_a_band = a.size // bands
    packed = np.empty(_longest(offsets) + 1, np.uint64)
    hashes = np.empty(packed.size + 32, np.uint32)
    signature = np.empty(a.size, np.uint32)
    for row in range(offsets.size - 1):
        sign(data, offsets[row], offsets[row + 1], packed, hashes, a, b, signature)
        for band in range(bands):
            key = np.uint64(band)
            for k in range(band * rows_a_band, (band + 1) * rows_a_band):
                key = (key ^ np.uint64(signature[k])) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
            keys[band, row] = key


@compiled
def bucket_pairs(ordered: U64, row_bits: int, kinds: U32, out: U64) -> int:
    """Candidate pairs of one band, `later row << 32 | earlier row`, into `out`, as far as they fit; returns how many there are.

    ordered: sorted `key with its low bits cleared | row`; equal high bits are a bucket. kinds [rows]: rows of one kind ask for the same
    terms in the same order. A bucket's first rows of each kind stand for it, eight at most: a row is paired with the one of
    its own kind, and where there is none, with all of them. So the pairs stay linear in the rows, where all pairs of a bucket
    are quadratic in popular templates, and a row still meets its like among many that only sound alike.
    """
    bits = np.uint64(row_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    firsts = np.empty(8, np.uint64)
    known, count = 0, 0
    bucket = ~ordered[0]
    for entry in ordered:
        if (entry ^ bucket) >> bits:
            bucket, known = entry, 0
        row = entry & mask
        twin = -1
        for index in range(known):
            if kinds[firsts[index]] == kinds[row]:
                twin = index
                break
        for index in range(known):
            if twin in (-1, index):
                if count < out.size:
                    out[count] = (row << np.uint64(32)) | firsts[index]
                count += 1
        if twin == -1 and known < firsts.size:
            firsts[known] = row
            known += 1
    return count


@compiled
def _insert(packed: U64, count: int, shift: int, table: U64, stamps: U32, stamp: np.uint32) -> int:
    """Puts shingles into an open-addressing table whose entries count only where their stamp is `stamp`; returns how many differ."""
    mask = np.uint64(table.size - 1)
    distinct = 0
    for index in range(count):
        slot = (packed[index] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)
        while stamps[slot] == stamp and table[slot] != packed[index]:
            slot = (slot + np.uint64(1)) & mask
        if stamps[slot] != stamp:
            stamps[slot] = stamp
            table[slot] = packed[index]
            distinct += 1
    return distinct


@compiled
def _shared(packed: U64, count: int, shift: int, table: U64, stamps: U32, stamp: np.uint32, turns: U32, turn: np.uint32) -> int:
    """How many distinct shingles of `packed` are in the table; `turns` marks entries that this `turn` has counted."""
    mask = np.uint64(table.size - 1)
    shared = 0
    for index in range(count):
        slot = (packed[index] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)
        while stamps[slot] == stamp and table[slot] != packed[index]:
            slot = (slot + np.uint64(1)) & mask
        if stamps[slot] == stamp and turns[slot] != turn:
            turns[slot] = turn
            shared += 1
    return shared


@compiled
def _longest_missing(mine: U32, other: U32, term_bytes: I64) -> int:
    """Bytes of the longest of my terms that the other text has less often; 0 where there is none."""
    longest = 0
    for term in mine:
        balance = 0
        for candidate in mine:
            balance += candidate == term
        for candidate in other:
            balance -= candidate == term
        if balance > 0:
            longest = max(longest, term_bytes[term])
    return longest


@compiled
def terms_agree(a: U32, b: U32, bytes_a: int, bytes_b: int, term_bytes: I64) -> bool:
    """Whether texts of these terms and lengths may ask for the same thing."""
    extra_a, extra_b = _longest_missing(a, b, term_bytes), _longest_missing(b, a, term_bytes)
    if extra_a and extra_b:
        return False
    if extra_a:
        return bytes_a - bytes_b < extra_a
    if extra_b:
        return bytes_b - bytes_a < extra_b
    if a.size != b.size:
        return True
    return bool((a == b).all())


@compiled
def keep_first(
    data: U8,
    offsets: I64,
    pairs: U64,
    digits: U32,
    terms: U32,
    term_offsets: I64,
    term_bytes: I64,
    threshold: float,
    keeper: U32,
    similarity: F64,
) -> int:
    """Goes through the rows in order and drops each that has a kept earlier row with true Jaccard >= `threshold` and agreeing guards.

    pairs: candidates `later row << 32 | earlier row`, sorted, each once. A candidate that was itself dropped stands for the row it
    duplicates. `keeper` [rows] gets that row (its own number where a row is kept), `similarity` [rows] the Jaccard of byte 6-grams.
    Returns how many Jaccards were computed.
    """
    longest = _longest(offsets)
    bits = 4
    while (1 << bits) < 2 * longest + 2:
        bits += 1
    shift = 64 - bits
    mine, other = np.empty(longest + 1, np.uint64), np.empty(longest + 1, np.uint64)
    table, stamps, turns = np.empty(1 << bits, np.uint64), np.zeros(1 << bits, np.uint32), np.zeros(1 << bits, np.uint32)
    spare, spare_stamps = np.empty(1 << bits, np.uint64), np.zeros(1 << bits, np.uint32)
    distinct = np.zeros(offsets.size - 1, np.uint32)
    asked = np.zeros(offsets.size - 1, np.uint32)
    keeper[:] = np.arange(keeper.size).astype(np.uint32)
    loaded = np.uint32(0xFFFFFFFF)
    turn = np.uint32(0)
    for pair in pairs:
        row, earlier = np.uint32(pair >> np.uint64(32)), keeper[np.uint32(pair & np.uint64(0xFFFFFFFF))]
        if keeper[row] != row or asked[earlier] == row:
            continue
        asked[earlier] = row
        if digits[row] != digits[earlier] or not terms_agree(
            terms[term_offsets[row] : term_offsets[row + 1]],
            terms[term_offsets[earlier] : term_offsets[earlier + 1]],
            offsets[row + 1] - offsets[row],
            offsets[earlier + 1] - offsets[earlier],
            term_bytes,
        ):
            continue
        if loaded != row:
            count = _pack(data, offsets[row], offsets[row + 1], mine)
            distinct[row] = _insert(mine, count, shift, table, stamps, row + np.uint32(1))
            loaded = row
        count = _pack(data, offsets[earlier], offsets[earlier + 1], other)
        if distinct[earlier] == 0:
            distinct[earlier] = _insert(other, count, shift, spare, spare_stamps, earlier + np.uint32(1))
        low, high = min(distinct[row], distinct[earlier]), max(distinct[row], distinct[earlier])
        if low < threshold * high or high == 0:
            continue
        turn += np.uint32(1)
        shared = _shared(other, count, shift, table, stamps, row + np.uint32(1), turns, turn)
        jaccard = shared / (np.int64(low) + np.int64(high) - shared)
        if jaccard >= threshold:
            keeper[row] = earlier
            similarity[row] = jaccard
    return int(turn)
