"""What all trainings of the experiments share: domains, held-out set, tokenizer, base policies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.experiment.cells import WORK
from benchmarks.experiment.conversations import Conversation, PoolName, make_pool
from benchmarks.experiment.domains import SETTING_THEMES, Domains, DomainsConfig, choose_domains, domains_of, practice_domains
from benchmarks.experiment.held_out import HeldOut, expert_messages_of, held_out_set
from benchmarks.experiment.practice import TINY, practice, train_base
from train import tiny
from train.proxy.token_training import Example, encode

_WORDS_POOL, _WORDS_SEED = 3_000, 1_000
BASES = 3
SETTING_SEED = 100
"""Seeds from here on are for choosing settings: they use other domains."""


def base_of(seed: int) -> int:
    """The base policy of a seed: `BASES` of them are shared, because each costs as much as ten arms."""
    return seed % BASES if seed < SETTING_SEED else seed


@dataclass(frozen=True)
class Ground:
    """The domains of a seed, and where its files are."""

    domains: Domains
    folder: Path

    @property
    def held_out(self) -> tuple[HeldOut, ...]:
        return _held_out(self)

    def tokenizer(self) -> Any:
        """One vocabulary for all arms and seeds: the words of a large even pool, of the held-out set, and of the practice."""
        from transformers import AutoTokenizer

        path = self.folder / "tokenizer"
        if not path.exists():
            pool = make_pool("even", self.domains.training, _WORDS_POOL, _WORDS_SEED, self.folder)
            conversations = [
                *(one.messages for one in pool),
                *(expert_messages_of(one) for one in self.held_out),
                *practice(_WORDS_SEED),
            ]
            worlds = [*self.domains.training, *self.domains.held_out, *practice_domains()]
            texts = {tiny.render(messages) for messages in conversations} | set(tiny.vocabulary_texts(worlds, ["en"]))
            texts |= {str(number) for number in range(1000)}
            tokenizer = tiny.build_tokenizer(sorted(texts), splits_names=True)
            tokenizer.save_pretrained(draft := path.with_name(".draft-tokenizer"))
            draft.rename(path)
        return AutoTokenizer.from_pretrained(path)

    def base(self, seed: int) -> Path:
        """The model folder of the base policy that a seed starts from, trained now unless it exists."""
        path = self.folder / "bases" / str(base_of(seed))
        train_base(self.tokenizer(), base_of(seed), path)
        return path


@lru_cache(maxsize=2)
def ground_of(seed: int) -> Ground:
    is_setting = seed >= SETTING_SEED
    config = DomainsConfig(themes=SETTING_THEMES) if is_setting else DomainsConfig()
    return Ground(domains_of(choose_domains(config)), WORK / ("settings" if is_setting else "main"))


@lru_cache(maxsize=2)
def _held_out(ground: Ground) -> tuple[HeldOut, ...]:
    return held_out_set(ground.domains.held_out, ground.folder)


@lru_cache(maxsize=4)
def read_pool(name: PoolName, size: int, seed: int) -> tuple[list[Conversation], list[Example]]:
    """The conversations of a pool that fit the policy's window, and their tokens."""
    ground = ground_of(seed)
    pool = make_pool(name, ground.domains.training, size, seed, ground.folder)
    examples = encode(ground.tokenizer(), [one.messages for one in pool])
    fits = [at for at, example in enumerate(examples) if example.tokens <= TINY.positions]
    return [pool[at] for at in fits], [examples[at] for at in fits]
