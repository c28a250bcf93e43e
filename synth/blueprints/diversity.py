"""The diversity of a set of trajectories, in several figures, so that raising one alone is not enough (definitions P3 of TDScaling, our
formulas).

Domain entropy over a fixed label set; reasoning-mode entropy of coarse and fine signatures; cumulative action complexity (CAC);
tool coverage, tool-bigram entropy and mean pairwise distance of embeddings beside them. All entropies are in bits.
The plug-in entropy of signatures grows with the number of trajectories, and fine signatures saturate (500 unique ones give 8.97
bits), so mode entropy is computed on subsamples of equal size only, and never compared across sizes.

It measures; what is made next is decided in `synth/run/evolution/controller.py`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.conversation import ExecutedCall, Step, Turn
from storage.records import CODE_TOOL, JSON, Tool

SUBSAMPLE = 500
DRAWS = 20
CONVERSATION = frozenset({"user", "const"})
"""Sources of an argument other than an earlier call."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report. sd: standard deviation of the estimate; None for a plain count or share. n: number of trajectories."""

    metric: str
    value: float
    sd: float | None
    n: int


# ---- entropy --------------------------------------------------------------------------------------------------------


def entropy_bits(counts: Iterable[int]) -> float:
    """Plug-in entropy of a distribution given by its counts; 0 for no observations."""
    positive = [count for count in counts if count > 0]
    total = sum(positive)
    return sum(count / total * math.log2(total / count) for count in positive) if total else 0.0


@dataclass(frozen=True, slots=True)
class DomainDiversity:
    """entropy_bits: in [0, log2 D]. evenness: entropy over log2 D, in [0, 1] (1 for a single label). effective: 2^entropy, in [1, D]."""

    entropy_bits: float
    evenness: float
    effective: float


def domain_diversity(labels: Sequence[str], domains: Collection[str]) -> DomainDiversity:
    """H_dom, J_dom and the effective number of domains, over the *fixed* label set `domains`.

    Raises:
        ValueError: a label is not in `domains`.
    """
    counts = Counter(labels)
    unknown = sorted(set(counts) - set(domains))
    if unknown:
        raise ValueError(f"labels outside the fixed set of domains: {', '.join(unknown)}")
    entropy = entropy_bits(counts.values())
    return DomainDiversity(entropy, entropy / math.log2(len(domains)) if len(domains) > 1 else 1.0, 2**entropy)


def mode_entropy(
    signatures: Sequence[str], *, size: int = SUBSAMPLE, seed: int = 0, miller_madow: bool = False
) -> tuple[float, float, int]:
    """H_mode in bits on subsamples of `size`: mean, standard deviation, and the size used, at most the number of signatures.

    The mean is over DRAWS subsamples without replacement (so that a set of unique signatures gives log2 size); the deviation is that
    of as many bootstrap resamples of the same size, since subsamples of nearly the whole set would seem to have none.
    miller_madow: adds (M - 1) / (2 N ln 2); for coarse signatures only, fine ones are saturated and would be inflated.
    """
    used = min(size, len(signatures))
    if used == 0:
        return 0.0, 0.0, 0
    rng = random.Random(seed)

    def measure(sample: Sequence[str]) -> float:
        counts = Counter(sample)
        return entropy_bits(counts.values()) + ((len(counts) - 1) / (2 * used * math.log(2)) if miller_madow else 0.0)

    plain = [measure(rng.sample(signatures, used)) for _ in range(DRAWS if used < len(signatures) else 1)]
    resampled = [measure(rng.choices(signatures, k=used)) for _ in range(DRAWS)]
    return float(np.mean(plain)), float(np.std(resampled)), used


# ---- reasoning modes ------------------------------------------------------------------------------------------------


def _steps(turns: Sequence[Turn]) -> list[Step]:
    return [step for turn in turns for step in turn.steps]


def collapse_runs(tokens: Sequence[str]) -> str:
    """Tokens joined by `>`, a run of equal ones written once with a `+`."""
    out: list[str] = []
    for token in tokens:
        if out and out[-1].rstrip("+") == token:
            out[-1] = f"{token}+"
        else:
            out.append(token)
    return ">".join(out)


def coarse_mode(turns: Sequence[Turn]) -> str:
    """m1: the mode tokens of a trajectory, run-length capped, e.g. `A>C+>S+>R>V>F`."""
    return collapse_runs([step.mode for step in _steps(turns)])


def fine_mode(turns: Sequence[Turn]) -> str:
    """m2: m1 with tool names and the length of each call's longest hop back, e.g. `C(search_products)>S(buy:1)>F`."""
    hops = {id(call): hop for call, _, hop in _dependencies(turns)}
    return collapse_runs([_fine_token(step, hops) for step in _steps(turns)])


def _fine_token(step: Step, hops: Mapping[int, int]) -> str:
    if not step.calls:
        return step.mode
    parts = [call.tool + (f":{hops[id(call)]}" if hops[id(call)] else "") for call in step.calls]
    return f"{step.mode}({'|'.join(sorted(parts))})"


def _dependencies(turns: Sequence[Turn]) -> list[tuple[ExecutedCall, int, int]]:
    """Every call with its number of distinct parent calls and its longest hop back, in steps that made calls (0: no parent)."""
    made_at: dict[str, int] = {}
    dependencies: list[tuple[ExecutedCall, int, int]] = []
    calling = [step for step in _steps(turns) if step.calls]
    for position, step in enumerate(calling):
        for call in step.calls:
            parents = set(call.sources.values()) - CONVERSATION
            dependencies.append((call, len(parents), max((position - made_at[parent] for parent in parents), default=0)))
        made_at.update({call.call_id: position for call in step.calls})
    return dependencies


# ---- complexity -----------------------------------------------------------------------------------------------------


def nesting_depth(value: JSON) -> int:
    """1 for a flat object of scalars, one more for every list or object inside another; 0 for a scalar."""
    if isinstance(value, (str, int, float)) or value is None:
        return 0
    if isinstance(value, (dict, Mapping)):  # the check for dict is far faster
        return 1 + max((nesting_depth(item) for item in value.values()), default=0)
    if isinstance(value, (list, tuple)):
        return 1 + max((nesting_depth(item) for item in value), default=0)
    return 0


def call_complexity(
    *,
    arguments: int,
    depth: int = 1,
    parents: int = 0,
    hop: int = 0,
    is_recovery: bool = False,
    is_verification: bool = False,
    is_code: bool = False,
    changes_state: bool = False,
) -> float:
    """The share of one call in CAC: number and nesting of its arguments, distinct parent calls, longest hop back, and what it is for."""
    flags = 1.0 * is_recovery + 0.5 * is_verification + 1.0 * is_code + 0.5 * changes_state
    return 1 + 0.5 * math.log2(1 + arguments) + 0.25 * max(0, depth - 1) + 0.5 * parents + 0.25 * math.log2(1 + hop) + flags


def complexity(turns: Sequence[Turn], tools: Mapping[str, Tool]) -> float:
    """CAC of one trajectory: unitless, >= 0. `tools` by name say which calls change state; an unknown tool changes none."""
    mode = {id(call): step.mode for step in _steps(turns) for call in step.calls}
    total = sum(
        call_complexity(
            arguments=len(call.arguments or {}),
            depth=nesting_depth(call.arguments or {}),
            parents=parents,
            hop=hop,
            is_recovery=mode[id(call)] == "R",
            is_verification=mode[id(call)] == "V",
            is_code=call.tool == CODE_TOOL,
            changes_state=call.tool in tools and tools[call.tool].changes_state,
        )
        for call, parents, hop in _dependencies(turns)
    )
    return total + 0.5 * max(0, len(turns) - 1)


# ---- tools and texts ------------------------------------------------------------------------------------------------


def tools_used(turns: Sequence[Turn]) -> list[str]:
    """Tool names in the order of their calls, repetitions kept."""
    return [call.tool for step in _steps(turns) for call in step.calls]


def bigram_entropy(sequences: Iterable[Sequence[str]]) -> float:
    """Entropy in bits of pairs of consecutive tools, start and end counted as tools."""
    pairs: Counter[tuple[str, str]] = Counter()
    for tools in sequences:
        padded = ["<start>", *tools, "<end>"]
        pairs.update(itertools.pairwise(padded))
    return entropy_bits(pairs.values())


def mean_distance(vectors: NDArray[np.float32]) -> float:
    """Mean of 1 - cosine over all pairs of unit vectors, shape [n, d]; in [0, 2], 0 for fewer than two."""
    n = len(vectors)
    if n < 2:
        return 0.0
    total = vectors.astype(np.float64).sum(axis=0)
    return float(1 - (total @ total - n) / (n * (n - 1)))


# ---- the report -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """What the figures need of one trajectory."""

    world: str
    domain: str
    coarse: str
    fine: str
    complexity: float
    tools: tuple[str, ...]


def figures(
    profiles: Sequence[Profile],
    *,
    domains: Collection[str],
    universe: Collection[tuple[str, str]],
    vectors: NDArray[np.float32] | None = None,
    size: int = SUBSAMPLE,
    seed: int = 0,
) -> list[Figure]:
    """All figures of a set of trajectories.

    domains: the fixed label set. universe: world and name of every tool there is.
    vectors: unit embeddings of what the users said, shape [n, d]. size: of the subsamples for mode entropy.
    """
    n = len(profiles)
    if n == 0:
        return []
    domain = domain_diversity([profile.domain for profile in profiles], domains)
    coarse, coarse_sd, coarse_n = mode_entropy([profile.coarse for profile in profiles], size=size, seed=seed)
    corrected, _, _ = mode_entropy([profile.coarse for profile in profiles], size=size, seed=seed, miller_madow=True)
    fine, fine_sd, fine_n = mode_entropy([profile.fine for profile in profiles], size=size, seed=seed)
    cac = np.array([profile.complexity for profile in profiles])
    low, middle, high = np.quantile(cac, [0.1, 0.5, 0.9])
    used = {(profile.world, tool) for profile in profiles for tool in profile.tools}
    out = [
        Figure("domain_entropy_bits", domain.entropy_bits, None, n),
        Figure("domain_evenness", domain.evenness, None, n),
        Figure("effective_domains", domain.effective, None, n),
        Figure("mode_entropy_coarse_bits", coarse, coarse_sd, coarse_n),
        Figure("mode_entropy_coarse_miller_madow_bits", corrected, coarse_sd, coarse_n),
        Figure("mode_entropy_fine_bits", fine, fine_sd, fine_n),
        Figure("complexity_mean", float(cac.mean()), float(cac.std() / math.sqrt(n)), n),
        Figure("complexity_q10", float(low), None, n),
        Figure("complexity_q50", float(middle), None, n),
        Figure("complexity_q90", float(high), None, n),
        Figure("tool_coverage", len(used & set(universe)) / len(set(universe)), None, n),
        Figure("tool_bigram_entropy_bits", bigram_entropy(profile.tools for profile in profiles), None, n),
    ]
    if vectors is not None:
        out.append(Figure("mean_embedding_distance", mean_distance(vectors), None, n))
    return out
