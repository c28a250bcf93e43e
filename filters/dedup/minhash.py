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

from filters.frames.numba_types import F32, I64, U8, U32, U64, compile_kernel

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
    """Jaccard similarity of two texts' sets of shingles; 0 if both are empty. For tests and benchmarks; `keep_first` computes the same."""
    one, two = shingles(first.encode()), shingles(second.encode())
    return len(one & two) / len(one | two) if one | two else 0.0


def shingle_hash32(shingle: bytes) -> int:
    """32-bit hash of one shingle of at most six bytes: datasketch's `hashfunc`."""
    packed = int.from_bytes(shingle, "little") | len(shingle) << 56
    return (packed * _MIX & 0xFFFFFFFFFFFFFFFF) >> 32


@compile_kernel
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


@compile_kernel
def _mix(packed: U64, count: int, out: U32) -> None:
    """Shingle hashes after datasketch's pre-mix (the MurmurHash3 finalizer)."""
    for index in range(count):
        value = np.uint32((packed[index] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32))
        value ^= value >> np.uint32(16)
        value = np.uint32(value * np.uint32(0x85EBCA6B))
        value ^= value >> np.uint32(13)
        value = np.uint32(value * np.uint32(0xC2B2AE35))
        out[index] = value ^ (value >> np.uint32(16))


@compile_kernel
def _signature(hashes: U32, count: int, a: U32, b: U32, out: U32) -> None:
    """The least of a * hash + b (modulo 2^32) of `count` hashes, a multiple of 8: eight at a time, with the permutations innermost, so that
    vectors run over these and nothing is left to reduce."""
    out[:] = 0xFFFFFFFF
    for start in range(0, count, 8):
        h0, h1, h2, h3 = hashes[start], hashes[start + 1], hashes[start + 2], hashes[start + 3]
        h4, h5, h6, h7 = hashes[start + 4], hashes[start + 5], hashes[start + 6], hashes[start + 7]
        for k in range(a.size):
            x, y = a[k], b[k]
            one = min(np.uint32(np.uint32(x * h0) + y), np.uint32(np.uint32(x * h1) + y))
            two = min(np.uint32(np.uint32(x * h2) + y), np.uint32(np.uint32(x * h3) + y))
            three = min(np.uint32(np.uint32(x * h4) + y), np.uint32(np.uint32(x * h5) + y))
            four = min(np.uint32(np.uint32(x * h6) + y), np.uint32(np.uint32(x * h7) + y))
            out[k] = min(out[k], one, two, three, four)


@compile_kernel
def _longest(offsets: I64) -> int:
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest


@compile_kernel
def sign(data: U8, start: int, end: int, packed: U64, hashes: U32, a: U32, b: U32, out: U32) -> int:
    """The signature of the text `data[start:end]` into `out`, all ones for an empty text; returns how many shingles (repeats counted) lie
    in `packed`. Scratch: packed [bytes of the longest text + 1], hashes [8 more than packed]; permutations a and b, like `out`."""
    count = _pack(data, start, end, packed)
    _mix(packed, count, hashes)
    padded = (count + 7) // 8 * 8
    hashes[count:padded] = hashes[0]  # a repeated shingle changes no minimum
    _signature(hashes, padded, a, b, out)
    return count


@compile_kernel
def fill_band_keys(data: U8, offsets: I64, a: U32, b: U32, digits: U32, keys: U32) -> None:
    """Fills `keys` [bands, rows] with a hash of each band's part of the signature and of the row's `digits` [rows]. Permutations = bands x
    rows a band."""
    bands = keys.shape[0]
    rows_a_band = a.size // bands
    packed = np.empty(_longest(offsets) + 1, np.uint64)
    hashes = np.empty(packed.size + 8, np.uint32)
    signature = np.empty(a.size, np.uint32)
    for row in range(offsets.size - 1):
        sign(data, offsets[row], offsets[row + 1], packed, hashes, a, b, signature)
        for band in range(bands):
            key = np.uint64(band)
            for k in range(band * rows_a_band, (band + 1) * rows_a_band):
                key = (key ^ np.uint64(signature[k])) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
            keys[band, row] = (key ^ (np.uint64(digits[row]) * np.uint64(0x9E3779B97F4A7C15))) >> np.uint64(32)


@compile_kernel
def bucket_pairs(ordered: U64, kinds: U32, old: int, pairs: U64, firsts: U64) -> tuple[int, int]:
    """Writes the candidate pairs of one band, `later row << 32 | earlier row`, into `pairs` as far as they fit, and its representatives
    into `firsts` [rows]; returns the number of each.

    The first rows of each kind represent a bucket, eight at most. A row is paired with the representative of its kind, or with all
    representatives if there is none of its kind. So the number of pairs grows linearly with the rows (all pairs of a bucket would grow
    quadratically in popular templates), and a row still meets rows with the same terms.

    ordered: sorted `key << 32 | row`; equal keys are a bucket.
    kinds: hash of the terms of each row in order [rows].
    old: rows with smaller numbers are representatives of earlier runs; their pairs and themselves are not returned again.
    """
    represent = np.empty(8, np.uint64)
    known, count, reported = 0, 0, 0
    bucket = ~ordered[0]
    for entry in ordered:
        if (entry ^ bucket) >> np.uint64(32):
            bucket, known = entry, 0
        row = entry & np.uint64(0xFFFFFFFF)
        twin = -1
        for index in range(known):
            if kinds[represent[index]] == kinds[row]:
                twin = index
                break
        if row >= old:
            for index in range(known):
                if twin in (-1, index):
                    if count < pairs.size:
                        pairs[count] = (row << np.uint64(32)) | represent[index]
                    count += 1
        if twin == -1 and known < represent.size:
            represent[known] = row
            known += 1
            if row >= old:
                firsts[reported] = entry
                reported += 1
    return count, reported


@compile_kernel
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


@compile_kernel
def _count_shared(
    packed: U64, count: int, needed: int, shift: int, table: U64, stamps: U32, stamp: np.uint32, turns: U32, turn: np.uint32
) -> int:
    """How many distinct shingles of `packed` are in the table, or -1 once it is clear that they are fewer than `needed`; `turns` marks
    entries that this `turn` has counted."""
    mask = np.uint64(table.size - 1)
    shared, spare = 0, count - needed
    for index in range(count):
        slot = (packed[index] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)
        while stamps[slot] == stamp and table[slot] != packed[index]:
            slot = (slot + np.uint64(1)) & mask
        if stamps[slot] == stamp and turns[slot] != turn:
            turns[slot] = turn
            shared += 1
        else:
            spare -= 1
            if spare < 0:
                return -1
    return shared


@compile_kernel
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


@compile_kernel
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


@compile_kernel
def _guards_agree(row: np.uint32, earlier: np.uint32, offsets: I64, digits: U32, terms: U32, term_offsets: I64, term_bytes: I64) -> bool:
    if digits[row] != digits[earlier]:
        return False
    return terms_agree(
        terms[term_offsets[row] : term_offsets[row + 1]],
        terms[term_offsets[earlier] : term_offsets[earlier + 1]],
        offsets[row + 1] - offsets[row],
        offsets[earlier + 1] - offsets[earlier],
        term_bytes,
    )


@compile_kernel
def _scratch(offsets: I64) -> tuple[U64, U64, U64, U32, U32, U64, U32, U32, I64]:
    """What `_jaccard` works with: two texts' shingles, the table of the row that is loaded (entries, stamps, turns), a spare one, how many
    distinct shingles each row has (0: not counted yet), and [loaded row, its shingles, turn, bits that are shifted out of a hash]."""
    longest = _longest(offsets)
    bits = 4
    while (1 << bits) < 2 * longest + 2:
        bits += 1
    size = 1 << bits
    state = np.array([-1, 0, 0, 64 - bits], np.int64)
    mine, other = np.empty(longest + 1, np.uint64), np.empty(longest + 1, np.uint64)
    table, stamps, turns = np.empty(size, np.uint64), np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    return (
        mine,
        other,
        table,
        stamps,
        turns,
        np.empty(size, np.uint64),
        np.zeros(size, np.uint32),
        np.zeros(offsets.size - 1, np.uint32),
        state,
    )


@compile_kernel
def _jaccard(
    row: np.uint32,
    earlier: np.uint32,
    data: U8,
    offsets: I64,
    least: float,
    scratch: tuple[U64, U64, U64, U32, U32, U64, U32, U32, I64],
) -> float:
    """The true Jaccard of two rows, or -1 where it is below `least`. Fast where one row is compared with many in turn."""
    mine, other, table, stamps, turns, spare, spare_stamps, distinct, state = scratch
    shift = state[3]
    if state[0] != row:
        state[1] = _pack(data, offsets[row], offsets[row + 1], mine)
        distinct[row] = _insert(mine, state[1], shift, table, stamps, row + np.uint32(1))
        state[0] = row
    size = np.int64(distinct[row])
    if size == 0:
        return -1.0
    count = _pack(data, offsets[earlier], offsets[earlier + 1], other)
    state[2] += 1
    needed = int(np.ceil(least * size - 1e-9))  # the union is never smaller than one of the two
    shared = _count_shared(other, count, needed, shift, table, stamps, row + np.uint32(1), turns, np.uint32(state[2]))
    if shared < needed:
        return -1.0
    if distinct[earlier] == 0:
        distinct[earlier] = _insert(other, count, shift, spare, spare_stamps, earlier + np.uint32(1))
    jaccard = shared / (size + np.int64(distinct[earlier]) - shared)
    return jaccard if jaccard >= least else -1.0


@compile_kernel
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
    similarity: F32,
) -> None:
    """Goes through the rows in order and drops each that has a kept earlier row with true Jaccard >= `threshold` and agreeing guards.

    pairs: candidates `later row << 32 | earlier row`, sorted, each once. If the earlier row was dropped, its keeper is compared instead.
    keeper: in and out [rows]: the row itself, or the kept row that represents a dropped one.
    similarity: out [rows]: Jaccard of byte 6-grams with the keeper, for rows that are dropped now.
    """
    scratch = _scratch(offsets)
    visited = np.zeros(offsets.size - 1, np.uint32)
    for pair in pairs:
        row, earlier = np.uint32(pair >> np.uint64(32)), keeper[np.uint32(pair & np.uint64(0xFFFFFFFF))]
        if keeper[row] != row or visited[earlier] == row:
            continue
        visited[earlier] = row
        if _guards_agree(row, earlier, offsets, digits, terms, term_offsets, term_bytes):
            jaccard = _jaccard(row, earlier, data, offsets, threshold, scratch)
            if jaccard >= 0:
                keeper[row] = earlier
                similarity[row] = jaccard


@compile_kernel
def _root(row: np.uint32, keeper: U32) -> np.uint32:
    while keeper[row] != row:
        keeper[row] = keeper[keeper[row]]
        row = keeper[row]
    return row


@compile_kernel
def join_components(
    data: U8,
    offsets: I64,
    pairs: U64,
    digits: U32,
    terms: U32,
    term_offsets: I64,
    term_bytes: I64,
    threshold: float,
    largest: int,
    keeper: U32,
    similarity: F32,
) -> None:
    """Joins rows by verified pairs (as in `keep_first`) to components; the first row of a component represents the others.

    A pair that would make a component of more than `largest` rows is ignored, so that chains of similar rows stay short.
    `similarity` is that with the first row.
    """
    scratch = _scratch(offsets)
    size = np.ones(keeper.size, np.uint32)
    for pair in pairs:
        row, earlier = np.uint32(pair >> np.uint64(32)), np.uint32(pair & np.uint64(0xFFFFFFFF))
        one, other = _root(row, keeper), _root(earlier, keeper)
        if one == other or size[one] + size[other] > largest:
            continue
        if not _guards_agree(row, earlier, offsets, digits, terms, term_offsets, term_bytes):
            continue
        if _jaccard(row, earlier, data, offsets, threshold, scratch) >= 0:
            first, last = min(one, other), max(one, other)
            keeper[last] = first
            size[first] += size[last]
    for number in range(keeper.size):
        keeper[number] = _root(np.uint32(number), keeper)
    fresh = _scratch(offsets)  # a row's stamp is valid only once
    for number in range(keeper.size):
        if keeper[number] != number:
            similarity[number] = _jaccard(np.uint32(number), keeper[number], data, offsets, 0.0, fresh)
