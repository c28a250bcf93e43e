"""A synthetic log of raw user queries, with what was planted in it kept in a file of its own.

One idea: rows are worded over columns, one batch a (combination, language, template), so a million of them take seconds. A *combination*
is an intent with a set of slot names; some 300 common ones make up the ordinary traffic, and *needles* are complete, executable
queries of combinations that occur at most five times in a million rows. Around them lies what real logs are made of: exact duplicates in
other dress (case, spaces, full-width digits, zero-width characters, trailing punctuation), near duplicates (typos and filler words),
paraphrases, and junk. Typos never fall into a slot's value: that would be another need, not a misspelt one.

Files: `queries.parquet` (text) is what a funnel reads; `plants.parquet` (a row each, in the same order) is what only an evaluation reads:
kind, frame (a number; equal for all rows of one need), twin (row number of the row that a duplicate was made from, else null), world,
intent, combination, difficulty (of needles).
The wording is data (`families.yaml`, or a file of the caller's); equal arguments give equal bytes. All of it is synthetic.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.files import replace_atomically
from storage.records import JSON, Frame, Language, canonical_json
from synth.haystack.noise import CLOSE, OPEN, exact_variants, junk, near_variants, plain, with_personal_data
from synth.tasks.difficulty import difficulty, rate
from synth.tasks.solver import training_seed
from synth.tasks.wording import _FIELD, Families, joiner, load_families, load_grounding, pieces_for, render, slot_kinds
from synth.text.slot_kinds import Identifier, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import surfaces
from synth.worlds import GROUNDED, WORLDS, make_world

VERSION = 4
Codes = NDArray[np.int64]

SHARES = {"exact": 0.30, "near": 0.20, "paraphrase": 0.10, "junk": 0.12}
"""Of all rows; needles and ordinary first mentions are the rest."""
NEEDLE_SHARES = {-1: 0.05, 0: 0.05, 1: 0.10, 2: 0.20, 3: 0.25, 4: 0.20, 5: 0.15}
ROWS_A_NEEDLE_COMBINATION = 5
"""In a log of a million rows or less; in a longer one, as many for each million."""
_EASY, _EASY_WORLD, _EASY_SHARE = (1, 2, 3), "retail", 0.8
_FULLY_LISTED = 5


class HaystackConfig(BaseModel):
    """What the synthetic log is like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(1_000_000, ge=1000, description="Rows of the log.")
    seed: int = Field(0, ge=0, description="Another seed gives another log.")
    keep: int = Field(100, ge=1, description="Target of the funnel: three needles are planted for each task wanted.")
    zh_share: float = Field(0.35, ge=0, le=1, description="Share of the queries that are in Chinese.")
    common_combinations: int = Field(300, ge=20, description="Combinations of intent and slot names that ordinary rows are made of.")
    personal_share: float = Field(0.03, ge=0, le=1, description="Share of ordinary rows that carry a phone number or an e-mail address.")

    @model_validator(mode="after")
    def _has_room(self) -> HaystackConfig:
        """Needles and first mentions share what is left of the rows; a tenth of that at least is first mentions."""
        needles = sum(needles_wanted(self.keep, level, world) for level in NEEDLE_SHARES for world in GROUNDED)
        least = math.ceil(needles / (0.9 * (1 - sum(SHARES.values()))))
        if self.rows < least:
            raise ValueError(
                f"keep: {self.keep} plants {needles} needles, which need a log of at least {least} rows; there are {self.rows}"
            )
        return self


def needles_wanted(keep: int, level: int, world: str) -> int:
    """How many needles of a difficulty a world gives: three for each task that is wanted."""
    here = (_EASY_SHARE if world == _EASY_WORLD else 1 - _EASY_SHARE) if level in _EASY else 0.5
    return math.ceil(3 * keep * NEEDLE_SHARES[level] * here)


@dataclass(frozen=True, slots=True)
class Combination:
    """An intent of a world with a set of slot names."""

    world: str
    intent: str
    slots: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.world}/{self.intent}({','.join(self.slots)})"

    @property
    def difficulty(self) -> int:
        """The static difficulty where the wording names a tool."""
        return rate(self.world, self.intent, frozenset(self.slots), True).r


def generate(out: Path, config: HaystackConfig, families: Path | None = None) -> tuple[Path, Path]:
    """Writes the log and its plants under `out` and returns both paths; nothing is done where they are there already.

    Args:
        families: a YAML file of other wordings (`synth.tasks.wording.load_families`).

    Raises:
        BadInput: the families file cannot be used.
        HeadraceError: the disk is full.
    """
    queries, plants, note = out / "queries.parquet", out / "plants.parquet", out / "haystack.json"
    words = {world: load_families(world, families) for world in GROUNDED}
    wording = families.read_text(encoding="utf-8") if families else ""
    versions = {world: WORLDS[world].version for world in GROUNDED}
    told = canonical_json({"config": config.model_dump(), "version": VERSION, "worlds": versions, "wording": wording})
    if note.is_file() and note.read_text(encoding="utf-8") == told and queries.is_file() and plants.is_file():
        return queries, plants
    note.unlink(missing_ok=True)
    rows = _Log(config, words).rows()
    replace_atomically(queries, lambda path: rows.select("text").write_parquet(path, row_group_size=131_072))
    replace_atomically(plants, lambda path: rows.drop("text").write_parquet(path))
    replace_atomically(note, lambda path: path.write_text(told, encoding="utf-8") and None)
    return queries, plants


def combinations_of(world: str) -> Iterator[Combination]:
    """All combinations of a world, few optional slots first (all subsets of up to five, and the full set)."""
    for name, intent in WORLDS[world].intents.items():
        required = [slot.name for slot in intent.slots if slot.is_required]
        optional = [slot.name for slot in intent.slots if not slot.is_required]
        for size in range(len(optional) + 1):
            if size <= _FULLY_LISTED or size == len(optional):
                for chosen in combinations(optional, size):
                    yield Combination(world, name, tuple(sorted((*required, *chosen))))


class _Log:
    def __init__(self, config: HaystackConfig, families: dict[str, Families]) -> None:
        self.config, self.families = config, families
        self.rng = np.random.default_rng(config.seed)
        self.common, self.rare = self._split()

    def rows(self) -> pl.DataFrame:
        counts = {kind: int(share * self.config.rows) for kind, share in SHARES.items()}
        needles = self._needles()
        first = self.config.rows - sum(counts.values()) - needles.height
        stated = self._ordinary(first, counts["paraphrase"], first_frame=needles.height)
        ordinary = with_personal_data(stated, self.config.personal_share, self.rng)
        exact = exact_variants(self._popular(ordinary, counts["exact"]), self.rng)
        near = near_variants(self._popular(ordinary, counts["near"]), self.rng)
        parts = [needles, ordinary, exact, near]
        parts.append(junk(self.config.rows - sum(part.height for part in parts), self.config.zh_share, self.rng))
        columns = ["text", "kind", "frame", "twin", "world", "intent", "combination", "difficulty"]
        rows = pl.concat([part.select(columns) for part in parts]).with_columns(text=plain(pl.col("text")))
        order = self.rng.permutation(rows.height)
        place = np.empty_like(order)
        place[order] = np.arange(rows.height)
        twins = pl.Series(place).gather(rows["twin"].fill_null(0) + needles.height)
        return rows.with_columns(twin=pl.when(pl.col("twin").is_not_null()).then(twins))[order].with_row_index("row")

    # ---- combinations ------------------------------------------------------------------------------------------------------

    def _split(self) -> tuple[list[Combination], list[Combination]]:
        """Common and rare combinations: of every world and difficulty, half and enough for the needles are rare. Intents take turns in
        giving them, those with the most slots first, and their plainest one last, so that needles are of as many intents as can be."""
        rng = random.Random(f"haystack/{self.config.seed}")
        common: list[Combination] = []
        rare: list[Combination] = []
        for world in GROUNDED:
            by_level: dict[int, list[Combination]] = defaultdict(list)
            for combination in combinations_of(world):
                by_level[combination.difficulty].append(combination)
            for level, found in sorted(by_level.items()):
                rng.shuffle(found)
                found.sort(key=lambda one: -len(one.slots))
                turns, sizes = Counter[str](), Counter(one.intent for one in found)
                placed: list[tuple[bool, int, int, Combination]] = []
                for one in found:
                    placed.append((turns[one.intent] == sizes[one.intent] - 1, turns[one.intent], len(placed), one))
                    turns[one.intent] += 1
                ordered = [one for *_, one in sorted(placed, key=lambda place: place[:3])]
                wanted = 2 * math.ceil(needles_wanted(self.config.keep, level, world) / ROWS_A_NEEDLE_COMBINATION)
                cut = max(wanted, len(found) // 2) if len(found) > wanted else len(found) // 2
                rare += ordered[: min(cut, len(found) - 1)]
                common += ordered[min(cut, len(found) - 1) :]
        common.sort(key=lambda one: (len(one.slots), one.key))
        return self._traffic(common), rare

    def _traffic(self, common: list[Combination]) -> list[Combination]:
        """At most `common_combinations` of them, every intent's plainest first."""
        seen: Counter[tuple[str, str]] = Counter()
        turns = []
        for one in common:
            turns.append((seen[one.world, one.intent], one.key, one))
            seen[one.world, one.intent] += 1
        return [one for *_, one in sorted(turns, key=lambda turn: turn[:2])][: self.config.common_combinations]

    # ---- needles -----------------------------------------------------------------------------------------------------------

    def _needles(self) -> pl.DataFrame:
        """Needles, rendered one by one in worlds in which they can be executed, until every stratum has its number.

        What one world has no combination for, the others give.
        """
        rng = random.Random(f"needles/{self.config.seed}")
        wanted = Counter({(level, world): needles_wanted(self.config.keep, level, world) for level in NEEDLE_SHARES for world in GROUNDED})
        rows: dict[str, dict[str, Any]] = {}
        of: Counter[Combination] = Counter()
        most = ROWS_A_NEEDLE_COMBINATION * max(1, self.config.rows // 1_000_000)
        for turn in range(2 * most):
            if turn == most:
                missing = [(level, world, left) for (level, world), left in wanted.items() if left > 0]
                for level, world, left in missing:
                    wanted.update({(level, other): left for other in GROUNDED if other != world})
            for one in self.rare:
                levels = {one.difficulty, min(5, one.difficulty + 1)} if one.difficulty > 0 else {one.difficulty}
                if of[one] == most or not any(wanted[level, one.world] > 0 for level in levels):
                    continue
                frame, text = self._needle(one, turn, rng)
                level = difficulty(frame, text).r
                if wanted[level, one.world] > 0 and frame.id not in rows:
                    wanted[level, one.world] -= 1
                    of[one] += 1
                    rows[frame.id] = {"text": text, "world": one.world, "intent": one.intent, "combination": one.key, "difficulty": level}
        table = pl.DataFrame(list(rows.values()), schema_overrides={"difficulty": pl.Int8})
        return table.with_row_index("frame").with_columns(kind=pl.lit("needle"), twin=pl.lit(None, pl.UInt32))

    def _needle(self, one: Combination, turn: int, rng: random.Random) -> tuple[Frame, str]:
        world = _world(one.world, turn)
        slots = world.draw_slots(one.intent, frozenset(one.slots), rng)
        frame = Frame(world=one.world, intent=one.intent, slots=slots)
        language: Language = "zh" if rng.random() < self.config.zh_share else "en"
        return frame, render(frame, language, rng, self.families[one.world])

    # ---- ordinary rows -----------------------------------------------------------------------------------------------------

    def _ordinary(self, first: int, paraphrases: int, first_frame: int) -> pl.DataFrame:
        """First mentions of `first` distinct frames, and paraphrases of some of them in another template."""
        counts = self._counts(first)
        parts: list[pl.DataFrame] = []
        for one, count in zip(self.common, counts, strict=True):
            if not count:
                continue
            codes = self._draw(one, count)
            again = self.rng.permutation(len(codes))[: round(len(codes) * paraphrases / first)]
            frames = first_frame + np.arange(len(codes), dtype=np.int64)
            first_frame += len(codes)
            both = np.concatenate([codes, codes[again]])
            template = self.rng.integers(0, 1 << 30, len(codes))
            parts.append(
                pl.DataFrame(
                    {
                        "text": self._worded(one, both, np.concatenate([template, template[again] + 1])),
                        "frame": np.concatenate([frames, frames[again]]).astype(np.uint32),
                        "kind": ["base"] * len(codes) + ["paraphrase"] * len(again),
                    }
                ).with_columns(world=pl.lit(one.world), intent=pl.lit(one.intent), combination=pl.lit(one.key))
            )
        table = pl.concat(parts)
        table = table[self.rng.permutation(table.height)]
        openings = self._small_talk(table)
        return table.with_columns(text=openings, twin=pl.lit(None, pl.UInt32), difficulty=pl.lit(None, pl.Int8))

    def _counts(self, total: int) -> list[int]:
        """Frames a combination, Zipf over intents, none beyond half of what its slots can say; the rest goes to the roomy ones."""
        intents = sorted({(one.world, one.intent) for one in self.common})
        rank = {key: place for place, key in enumerate(random.Random(self.config.seed).sample(intents, len(intents)), 1)}
        share: Counter[tuple[str, str]] = Counter((one.world, one.intent) for one in self.common)
        weights = np.array([rank[one.world, one.intent] ** -1.0 / share[one.world, one.intent] for one in self.common])
        room = np.array([min(math.prod(len(values) for values in self._values(one)) // 2 + 1, 10**9) for one in self.common])
        counts = np.zeros(len(weights), dtype=np.int64)
        for _ in range(60):
            left = total - counts.sum()
            is_open = counts < room
            if left <= 0 or not is_open.any():
                break
            portion = np.where(is_open, weights, 0)
            counts = np.minimum(room, counts + np.ceil(left * portion / portion.sum()).astype(np.int64))
        surplus = max(0, counts.sum() - total)
        for place in np.argsort(-counts, kind="stable"):
            taken = min(surplus, counts[place])
            counts[place] -= taken
            surplus -= taken
        return [int(count) for count in counts]

    def _values(self, one: Combination) -> list[Sequence[JSON]]:
        kinds = slot_kinds(one.world, one.intent)
        return [values_of(one.world, kinds[slot]) for slot in one.slots]

    def _draw(self, one: Combination, count: int) -> Codes:
        """Distinct frames, as value numbers [count, slots]; two slots of one kind differ. Fewer where the slots cannot say so much."""
        kinds = slot_kinds(one.world, one.intent)
        sizes = [len(values) for values in self._values(one)]
        if not sizes:
            return np.zeros((min(count, 1), 0), dtype=np.int64)
        found = np.empty((0, len(sizes)), dtype=np.int64)
        for _ in range(8):
            more = np.stack([self.rng.integers(0, size, 2 * count + 8) for size in sizes], axis=1)
            for left, right in combinations(range(len(sizes)), 2):
                if kinds[one.slots[left]] == kinds[one.slots[right]] and sizes[left] > 1:
                    more = more[more[:, left] != more[:, right]]
            merged = np.concatenate([found, more])
            _, firsts = np.unique(merged, axis=0, return_index=True)
            found = merged[np.sort(firsts)][:count]
            if len(found) == count:
                break
        return found

    def _worded(self, one: Combination, codes: Codes, template: Codes) -> list[str]:
        """A text a row: language by share, template by number, spellings at random."""
        texts = np.empty(len(codes), dtype=object)
        is_zh = self.rng.random(len(codes)) < self.config.zh_share
        by_language: dict[Language, Any] = {"en": ~is_zh, "zh": is_zh}
        for language, chosen in by_language.items():
            templates = self.families[one.world].templates(one.intent, language)
            for number, pattern in enumerate(templates):
                rows = np.flatnonzero(chosen & (template % len(templates) == number))
                if len(rows):
                    texts[rows] = self._batch(one, codes[rows], pattern, language)
        return [str(text) for text in texts]

    def _batch(self, one: Combination, codes: Codes, template: str, language: Language) -> NDArray[np.object_]:
        """Rows of one combination in one template: the same pieces for all, a column a slot."""
        shown, rest = pieces_for(template, frozenset(one.slots))
        rest = tuple(self.rng.permutation(rest)) if rest else rest
        said = []
        for slot in rest:
            phrases = self.families[one.world].phrases(slot, language)
            said.append(joiner(language) + phrases[self.rng.integers(len(phrases))])
        pattern = "".join("".join(said) if piece.is_rest else piece.text for piece in shown)
        columns = {slot: self._spelt(one, slot, codes[:, place], language) for place, slot in enumerate(one.slots)}
        out: Any = np.full(len(codes), "", dtype=object)
        position = 0
        for match in _FIELD.finditer(pattern):
            out = out + pattern[position : match.start()] + columns[match.group(1)]
            position = match.end()
        out = out + pattern[position:]
        return np.asarray(out, dtype=object)

    def _spelt(self, one: Combination, slot: str, codes: Codes, language: Language) -> NDArray[np.object_]:
        """Spellings of a slot's values: the plainest every other time."""
        flat, starts, counts = spellings_of(one.world, slot_kinds(one.world, one.intent)[slot], language)
        pick = (self.rng.random(len(codes)) * counts[codes]).astype(np.int64)
        return flat[starts[codes] + np.where(self.rng.random(len(codes)) < 0.5, 0, pick)]

    def _small_talk(self, rows: pl.DataFrame) -> pl.Series:
        """The texts, a third of them opened and a third closed with small talk."""
        texts = rows["text"].to_numpy().astype(object)
        is_zh = rows["text"].str.contains(r"[\p{Han}]").to_numpy()
        for world in GROUNDED:
            for language in ("en", "zh"):
                here = (rows["world"] == world).to_numpy() & (is_zh == (language == "zh"))
                for phrases, is_opener in ((self.families[world].openers, True), (self.families[world].closers, False)):
                    chosen = np.flatnonzero(here & (self.rng.random(len(texts)) < 1 / 3))
                    words = np.array(phrases.get(language, ("",)), dtype=object)[
                        self.rng.integers(0, len(phrases.get(language, ("",))), len(chosen))
                    ]
                    between = joiner(language)
                    texts[chosen] = words + between + texts[chosen] if is_opener else texts[chosen] + between + words
        return pl.Series("text", texts.tolist(), dtype=pl.String)

    def _popular(self, rows: pl.DataFrame, count: int) -> pl.DataFrame:
        """`count` rows drawn with replacement, Zipf-popular, `twin` their place among the ordinary rows."""
        rank = self.rng.permutation(rows.height)
        popular = np.minimum((rows.height ** self.rng.random(count)).astype(np.int64), rows.height) - 1
        uniform = self.rng.integers(0, rows.height, count)
        chosen = rank[np.where(self.rng.random(count) < 0.5, popular, uniform)]
        return rows[chosen].with_columns(twin=pl.Series(chosen.astype(np.uint32)))


@lru_cache(maxsize=64)
def _world(name: str, turn: int) -> Any:
    """Some world of that kind in which training happens."""
    return make_world(name, training_seed(turn + 11))


@lru_cache(maxsize=256)
def values_of(world: str, kind: str) -> tuple[JSON, ...]:
    """All canonical values of a slot kind that people say."""
    declared: SlotKind = WORLDS[world].kinds[kind]
    if isinstance(declared, Vocabulary):
        return tuple(declared.names)
    if isinstance(declared, Identifier):
        return declared.choices
    if isinstance(declared, Quantity):
        return tuple(int(value) if float(value).is_integer() else value for value in declared.choices)
    return tuple(range(declared.horizon_days + 1))


@lru_cache(maxsize=512)
def spellings_of(world: str, kind: str, language: Language) -> tuple[NDArray[np.object_], Codes, Codes]:
    """All spellings of all values of a kind, marked (`synth.haystack.noise`), flat; where each value's begin, and how many it has."""
    declared, synonyms = WORLDS[world].kinds[kind], load_grounding(world).synonyms.get(kind)
    lists = [surfaces(declared, value, language, synonyms) for value in values_of(world, kind)]
    counts = np.array([len(spellings) for spellings in lists], dtype=np.int64)
    flat = np.array([f"{OPEN}{text}{CLOSE}" for spellings in lists for text in spellings], dtype=object)
    return flat, np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64), counts


def needle_hits(plants: pl.DataFrame, kept_rows: Sequence[int]) -> float:
    """Share of the kept rows that are needles, 0..1."""
    return float((plants["kind"].gather(list(kept_rows)) == "needle").mean() or 0.0)  # type: ignore[arg-type]
