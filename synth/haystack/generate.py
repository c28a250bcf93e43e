"""Generates a log of raw user queries, and a second file with the truth about each row.

One idea: wording works on columns, one batch per (combination, language, template), so a million rows take seconds. A *combination* is an
intent with a set of slot names. Some 300 common combinations make up the ordinary traffic. *Needles* are complete, executable queries of
combinations that occur at most five times in a million rows. Like a real log, the rest holds exact duplicates that differ in form only
(case, spaces, full-width digits, zero-width characters, trailing punctuation), near duplicates (typos and filler words), paraphrases and
junk. A typo never falls into a slot's value, because that would change the need.

Files: the funnel reads `queries.parquet` (text). Only an evaluation reads `plants.parquet`, with a row for each query in the same order:
kind, frame (a number; equal for all rows of one need), twin (row number of the row that a duplicate copies, else null), world, intent,
combination, difficulty (of needles).
The wording is data (`families.yaml`, or the caller's file). Equal arguments give equal bytes. All rows are synthetic.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.files import replace_atomically
from storage.records import JSON, Frame, Language, canonical_json
from synth.haystack.combinations import Combination, combinations_of, count_before, take_turns
from synth.haystack.noise import exact_variants, junk, near_variants, remove_marks, with_personal_data
from synth.haystack.usual_values import Codes, marked_spellings, usual_values
from synth.tasks.difficulty import difficulty
from synth.tasks.solver import training_seed
from synth.tasks.wording import (
    _FIELD,
    LANGUAGES,
    Templates,
    joiner,
    load_templates,
    pieces_for,
    render,
    slot_kinds,
    worded_intents,
    worlds_in,
)
from synth.worlds import WORLDS, WorldName, make_world

VERSION = 4

SHARES = {"exact": 0.30, "near": 0.20, "paraphrase": 0.10, "junk": 0.12}
"""Shares of all rows. The rest are needles and first mentions: ordinary rows whose frame no earlier row has."""
NEEDLE_SHARES = {-1: 0.05, 0: 0.05, 1: 0.10, 2: 0.20, 3: 0.25, 4: 0.20, 5: 0.15}
"""Shares of all needles, by difficulty."""
ROWS_A_NEEDLE_COMBINATION = 5
"""In a log of up to a million rows; in a longer log, per full million."""
_EASY, _EASY_WORLD, _EASY_SHARE = (1, 2, 3), "retail", 0.8
"""Easy difficulties, and the world that gives this share of their needles in a log about `USUAL_WORLDS`."""
USUAL_WORLDS = ("city", "retail")


class HaystackConfig(BaseModel):
    """Configuration of the synthetic log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(1_000_000, ge=1000, description="Queries to generate.")
    seed: int = Field(0, ge=0, description="Seed of the queries; another seed gives other queries.")
    worlds: tuple[WorldName, ...] = Field(USUAL_WORLDS, min_length=1, description="Worlds that the queries are about.")
    only_worded: bool = Field(False, description="Only intents that the file of wordings has, with the slots that they need.")
    zh_share: float = Field(0.35, ge=0, le=1, description="Share of the queries that are in Chinese.")
    common_combinations: int = Field(300, ge=20, description="Combinations of intent and slot names that the ordinary queries are made of.")
    personal_share: float = Field(
        0.03, ge=0, le=1, description="Share of the ordinary queries that contain a phone number or an e-mail address."
    )


def check_room(rows: int, keep: int, worlds: Sequence[str] = USUAL_WORLDS) -> None:
    """Raises BadInput if a log is too short for its needles, which take at most nine tenths of the rows outside `SHARES`."""
    needles = sum(needles_wanted(keep, level, world, worlds) for level in NEEDLE_SHARES for world in worlds)
    least = math.ceil(needles / (0.9 * (1 - sum(SHARES.values()))))
    if rows < least:
        raise BadInput(
            f"{keep} tasks to keep take {needles} needles, which need a log of at least {least} rows; haystack.rows is {rows}: raise it, "
            "or keep fewer"
        )


def needles_wanted(keep: int, level: int, world: str, worlds: Sequence[str] = USUAL_WORLDS) -> int:
    """Number of needles of a difficulty that a world gives: three for each task that the funnel keeps."""
    is_usual = tuple(worlds) == USUAL_WORLDS and level in _EASY
    world_share = (_EASY_SHARE if world == _EASY_WORLD else 1 - _EASY_SHARE) if is_usual else 1 / len(worlds)
    return math.ceil(3 * keep * NEEDLE_SHARES[level] * world_share)


def generate(out: Path, config: HaystackConfig, keep: int, families: Path | None = None) -> tuple[Path, Path]:
    """Writes `queries.parquet` and `plants.parquet` under `out`, and returns both paths. Does nothing if they exist for these arguments.

    Args:
        keep: number of tasks that the funnel is to keep; the log gets three needles for each.
        families: YAML file of wordings to use instead of the worlds' (`wordings`).

    Raises:
        BadInput: the families file cannot be used, or the needles do not fit into the rows.
        HeadraceError: the disk is full.
    """
    check_room(config.rows, keep, config.worlds)
    if config.only_worded and families is None:
        raise BadInput("haystack.only_worded: there is no file of wordings; name one with --families, or leave it out")
    queries, plants, note = out / "queries.parquet", out / "plants.parquet", out / "haystack.json"
    words = wordings(families, config.worlds)
    wording = families.read_text(encoding="utf-8") if families else ""
    versions = {world: WORLDS[world].version for world in config.worlds}
    content = canonical_json({"config": config.model_dump() | {"keep": keep}, "version": VERSION, "worlds": versions, "wording": wording})
    if note.is_file() and note.read_text(encoding="utf-8") == content and queries.is_file() and plants.is_file():
        return queries, plants
    note.unlink(missing_ok=True)
    worded = worded_intents(families) if config.only_worded and families is not None else None
    rows = _Log(config, keep, words, worded).rows()
    replace_atomically(queries, lambda path: rows.select("text").write_parquet(path, row_group_size=131_072))
    replace_atomically(plants, lambda path: rows.drop("text").write_parquet(path))
    replace_atomically(note, lambda path: path.write_text(content, encoding="utf-8") and None)
    return queries, plants


def wordings(file: Path | None, worlds: Sequence[str] = USUAL_WORLDS) -> dict[str, Templates]:
    """The wordings of the worlds that a log is about, with what a file says put in their place (`synth.tasks.wording.load_templates`).

    Raises:
        BadInput: the file cannot be used, or it names a world that does not exist; a world speaks one language alone.
    """
    if file is not None and (unknown := sorted(name for name in worlds_in(file) if name not in WORLDS)):
        raise BadInput(f"{file}: {unknown[0]!r} is no world; the top keys are {WORLDS.listed()}")
    if one_sided := next((world for world in worlds if len(WORLDS[world].languages) < len(LANGUAGES)), None):
        raise BadInput(f"haystack.worlds: {one_sided} speaks one language, and generated queries are in both")
    return {world: load_templates(WORLDS[world], file) for world in worlds}


class _Log:
    """Builds the rows of the log. The order of draws from `rng` is part of the result."""

    def __init__(
        self, config: HaystackConfig, keep: int, families: dict[str, Templates], worded: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        self.config, self.keep, self.families, self.worded = config, keep, families, worded
        self.rng = np.random.default_rng(config.seed)
        self.common, self.rare = self._split()

    def rows(self) -> pl.DataFrame:
        """All rows in their final order, with the columns of both files."""
        counts = {kind: int(share * self.config.rows) for kind, share in SHARES.items()}
        needles = self._needles()
        first_mentions = self.config.rows - sum(counts.values()) - needles.height
        ordinary = self._ordinary(first_mentions, counts["paraphrase"], first_frame=needles.height)
        ordinary = with_personal_data(ordinary, self.config.personal_share, self.rng)
        exact = exact_variants(self._popular(ordinary, counts["exact"]), self.rng)
        near = near_variants(self._popular(ordinary, counts["near"]), self.rng)
        parts = [needles, ordinary, exact, near]
        parts.append(junk(self.config.rows - sum(part.height for part in parts), self.config.zh_share, self.rng))
        columns = ["text", "kind", "frame", "twin", "world", "intent", "combination", "difficulty"]
        rows = pl.concat(parts, how="diagonal").select(columns).with_columns(text=remove_marks(pl.col("text")))
        order = self.rng.permutation(rows.height)
        new_rows = np.empty_like(order)
        new_rows[order] = np.arange(rows.height)
        twins = pl.Series(new_rows).gather(rows["twin"].fill_null(0) + needles.height)
        return rows.with_columns(twin=pl.when(pl.col("twin").is_not_null()).then(twins))[order].with_row_index("row")

    # ---- combinations ------------------------------------------------------------------------------------------------------

    def _split(self) -> tuple[list[Combination], list[Combination]]:
        """Common and rare combinations. Of each world and difficulty at least half are rare, and enough for the needles.

        Intents take turns, each with its combination of most slots first and its plainest one last, so that needles cover many intents.
        """
        rng = random.Random(f"haystack/{self.config.seed}")
        common: list[Combination] = []
        rare: list[Combination] = []
        for world in self.config.worlds:
            by_level: dict[int, list[Combination]] = defaultdict(list)
            for combination in self._combinations(world):
                by_level[combination.difficulty].append(combination)
            for level, combinations_of_level in sorted(by_level.items()):
                rng.shuffle(combinations_of_level)
                ordered = take_turns(combinations_of_level)
                needed = 2 * math.ceil(needles_wanted(self.keep, level, world, self.config.worlds) / ROWS_A_NEEDLE_COMBINATION)
                half = len(ordered) // 2
                cut = min(max(needed, half) if len(ordered) > needed else half, len(ordered) - 1)
                rare += ordered[:cut]
                common += ordered[cut:]
        common.sort(key=lambda combination: (len(combination.slots), combination.key))
        return self._traffic(common), rare

    def _combinations(self, world: str) -> Iterator[Combination]:
        """The combinations of a world; of worded intents those that have the required slots alone."""
        for combination in combinations_of(world):
            required = sum(slot.is_required for slot in WORLDS[world].intents[combination.intent].slots)
            if self.worded is None or (combination.intent in self.worded.get(world, ()) and len(combination.slots) == required):
                yield combination

    def _traffic(self, common: list[Combination]) -> list[Combination]:
        """At most `common_combinations` of the common combinations; intents take turns, each with its plainest first."""
        turns = count_before([f"{combination.world}/{combination.intent}" for combination in common])
        ordered = sorted(zip(turns, common, strict=True), key=lambda row: (row[0], row[1].key))
        return [combination for _, combination in ordered][: self.config.common_combinations]

    # ---- needles -----------------------------------------------------------------------------------------------------------

    def _needles(self) -> pl.DataFrame:
        """The needles, worded one by one with slots of an executable world, until each difficulty of each world has its number.

        In the second half of the turns, the other worlds give the needles that a world has no combination for.
        """
        rng = random.Random(f"needles/{self.config.seed}")
        worlds = self.config.worlds
        missing = Counter({(level, world): needles_wanted(self.keep, level, world, worlds) for level in NEEDLE_SHARES for world in worlds})
        rows: dict[str, dict[str, Any]] = {}
        rows_of: Counter[Combination] = Counter()
        max_rows = ROWS_A_NEEDLE_COMBINATION * max(1, self.config.rows // 1_000_000)
        for turn in range(2 * max_rows):
            if turn == max_rows:
                for level, world, count in [(level, world, count) for (level, world), count in missing.items() if count > 0]:
                    missing.update({(level, other): count for other in worlds if other != world})
            for rare in self.rare:
                levels = {rare.difficulty, min(5, rare.difficulty + 1)} if rare.difficulty > 0 else {rare.difficulty}
                if rows_of[rare] == max_rows or not any(missing[level, rare.world] > 0 for level in levels):
                    continue
                frame, text = self._needle(rare, turn, rng)
                level = difficulty(WORLDS[rare.world], frame, text).r
                if missing[level, rare.world] > 0 and frame.id not in rows:
                    missing[level, rare.world] -= 1
                    rows_of[rare] += 1
                    names = {"world": rare.world, "intent": rare.intent, "combination": rare.key}
                    rows[frame.id] = {"text": text, **names, "difficulty": level}
        table = pl.DataFrame(list(rows.values()), schema_overrides={"difficulty": pl.Int8})
        return table.with_row_index("frame").with_columns(kind=pl.lit("needle"))

    def _needle(self, combination: Combination, turn: int, rng: random.Random) -> tuple[Frame, str]:
        world = _world(combination.world, turn)
        slots = world.draw_slots(combination.intent, frozenset(combination.slots), rng)
        frame = Frame(world=combination.world, intent=combination.intent, slots=slots)
        language: Language = "zh" if rng.random() < self.config.zh_share else "en"
        return frame, render(type(world), frame, language, rng, self.families[combination.world])

    # ---- ordinary rows -----------------------------------------------------------------------------------------------------

    def _ordinary(self, first_mentions: int, paraphrases: int, first_frame: int) -> pl.DataFrame:
        """First mentions of so many distinct frames, and paraphrases of some of them in another template."""
        parts: list[pl.DataFrame] = []
        for combination, count in zip(self.common, self._counts(first_mentions), strict=True):
            if not count:
                continue
            codes = self._draw(combination, count)
            repeated = self.rng.permutation(len(codes))[: round(len(codes) * paraphrases / first_mentions)]
            frames = first_frame + np.arange(len(codes), dtype=np.int64)
            first_frame += len(codes)
            template = self.rng.integers(0, 1 << 30, len(codes))
            all_codes = np.concatenate([codes, codes[repeated]])
            parts.append(
                pl.DataFrame(
                    {
                        "text": self._texts(combination, all_codes, np.concatenate([template, template[repeated] + 1])),
                        "frame": np.concatenate([frames, frames[repeated]]).astype(np.uint32),
                        "kind": ["base"] * len(codes) + ["paraphrase"] * len(repeated),
                    }
                ).with_columns(world=pl.lit(combination.world), intent=pl.lit(combination.intent), combination=pl.lit(combination.key))
            )
        table = pl.concat(parts)
        table = table[self.rng.permutation(table.height)]
        return table.with_columns(text=self._with_small_talk(table))

    def _counts(self, total: int) -> list[int]:
        """Frames per common combination: Zipf over intents, at most half of the frames that a combination has."""
        intents = [(combination.world, combination.intent) for combination in self.common]
        distinct = sorted(set(intents))
        rank = {intent: place for place, intent in enumerate(random.Random(self.config.seed).sample(distinct, len(distinct)), 1)}
        combinations_of_intent = Counter(intents)
        weights = np.array([rank[intent] ** -1.0 / combinations_of_intent[intent] for intent in intents])
        sizes = [math.prod(len(values) for values in self._values(combination)) for combination in self.common]
        limits = np.array([min(size // 2 + 1, 10**9) for size in sizes])
        counts = np.zeros(len(weights), dtype=np.int64)
        for _ in range(60):
            missing = total - counts.sum()
            is_open = counts < limits
            if missing <= 0 or not is_open.any():
                break
            portion = np.where(is_open, weights, 0)
            counts = np.minimum(limits, counts + np.ceil(missing * portion / portion.sum()).astype(np.int64))
        surplus = max(0, counts.sum() - total)
        for place in np.argsort(-counts, kind="stable"):
            removed = min(surplus, counts[place])
            counts[place] -= removed
            surplus -= removed
        return [int(count) for count in counts]

    def _values(self, combination: Combination) -> list[Sequence[JSON]]:
        """The usual values of each slot of a combination."""
        kinds = slot_kinds(WORLDS[combination.world], combination.intent)
        return [usual_values(combination.world, kinds[slot]) for slot in combination.slots]

    def _draw(self, combination: Combination, count: int) -> Codes:
        """Distinct frames as numbers of values [count, slots]; two slots of one kind differ. Fewer rows where there are fewer frames."""
        kinds = slot_kinds(WORLDS[combination.world], combination.intent)
        sizes = [len(values) for values in self._values(combination)]
        if not sizes:
            return np.zeros((min(count, 1), 0), dtype=np.int64)
        codes = np.empty((0, len(sizes)), dtype=np.int64)
        for _ in range(8):
            more = np.stack([self.rng.integers(0, size, 2 * count + 8) for size in sizes], axis=1)
            for left, right in combinations(range(len(sizes)), 2):
                if kinds[combination.slots[left]] == kinds[combination.slots[right]] and sizes[left] > 1:
                    more = more[more[:, left] != more[:, right]]
            merged = np.concatenate([codes, more])
            _, firsts = np.unique(merged, axis=0, return_index=True)
            codes = merged[np.sort(firsts)][:count]
            if len(codes) == count:
                break
        return codes

    def _texts(self, combination: Combination, codes: Codes, template: Codes) -> list[str]:
        """A text per row: the language is random by share, the template is given by number, spellings are random."""
        texts = np.empty(len(codes), dtype=object)
        is_zh = self.rng.random(len(codes)) < self.config.zh_share
        by_language: dict[Language, Any] = {"en": ~is_zh, "zh": is_zh}
        for language, of_language in by_language.items():
            templates = self.families[combination.world].of_intent(combination.intent, language)
            for number, pattern in enumerate(templates):
                rows = np.flatnonzero(of_language & (template % len(templates) == number))
                if len(rows):
                    texts[rows] = self._batch(combination, codes[rows], pattern, language)
        return [str(text) for text in texts]

    def _batch(self, combination: Combination, codes: Codes, template: str, language: Language) -> NDArray[np.object_]:
        """Texts of one combination in one template: all rows share the pieces of the template, each slot is a column."""
        pieces, rest = pieces_for(template, frozenset(combination.slots))
        rest = tuple(self.rng.permutation(rest)) if rest else rest
        rest_phrases = []
        for slot in rest:
            phrases = self.families[combination.world].phrases(slot, language)
            rest_phrases.append(joiner(language) + phrases[self.rng.integers(len(phrases))])
        pattern = "".join("".join(rest_phrases) if piece.is_rest else piece.text for piece in pieces)
        columns = {slot: self._spell(combination, slot, codes[:, place], language) for place, slot in enumerate(combination.slots)}
        out: Any = np.full(len(codes), "", dtype=object)
        position = 0
        for match in _FIELD.finditer(pattern):
            out = out + pattern[position : match.start()] + columns[match.group(1)]
            position = match.end()
        out = out + pattern[position:]
        return np.asarray(out, dtype=object)

    def _spell(self, combination: Combination, slot: str, codes: Codes, language: Language) -> NDArray[np.object_]:
        """A spelling of each value: half of the time the plainest, else any."""
        kind = slot_kinds(WORLDS[combination.world], combination.intent)[slot]
        spellings, starts, counts = marked_spellings(combination.world, kind, language)
        pick = (self.rng.random(len(codes)) * counts[codes]).astype(np.int64)
        return spellings[starts[codes] + np.where(self.rng.random(len(codes)) < 0.5, 0, pick)]

    def _with_small_talk(self, rows: pl.DataFrame) -> pl.Series:
        """The texts; a third get an opening of small talk, and a third a closing."""
        texts = rows["text"].to_numpy().astype(object)
        is_zh = rows["text"].str.contains(r"[\p{Han}]").to_numpy()
        for world in self.config.worlds:
            for language in ("en", "zh"):
                in_group = (rows["world"] == world).to_numpy() & (is_zh == (language == "zh"))
                for phrases, is_opener in ((self.families[world].openers, True), (self.families[world].closers, False)):
                    with_talk = np.flatnonzero(in_group & (self.rng.random(len(texts)) < 1 / 3))
                    options = np.array(phrases.get(language, ("",)), dtype=object)
                    small_talk = options[self.rng.integers(0, len(options), len(with_talk))]
                    between = joiner(language)
                    texts[with_talk] = small_talk + between + texts[with_talk] if is_opener else texts[with_talk] + between + small_talk
        return pl.Series("text", texts.tolist(), dtype=pl.String)

    def _popular(self, rows: pl.DataFrame, count: int) -> pl.DataFrame:
        """`count` rows drawn with replacement, half of them by Zipf's law; `twin` is the position of the drawn row in `rows`."""
        rank = self.rng.permutation(rows.height)
        popular = np.minimum((rows.height ** self.rng.random(count)).astype(np.int64), rows.height) - 1
        uniform = self.rng.integers(0, rows.height, count)
        ranks = rank[np.where(self.rng.random(count) < 0.5, popular, uniform)]
        return rows[ranks].with_columns(twin=pl.Series(ranks.astype(np.uint32)))


@lru_cache(maxsize=64)
def _world(name: str, turn: int) -> Any:
    """A world of this name with a training seed."""
    return make_world(name, training_seed(turn + 11))
