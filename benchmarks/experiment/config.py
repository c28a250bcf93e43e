"""What the diversity experiment compares, and on how much.

The defaults are what was tried out on two CPU cores (`--dry-run` estimates the minutes): a tiny policy can do the held-out tasks once it
has been trained on their domains (the power check). What was made easier for that is in `docs/experiment.md`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from train.spec import TinyConfig

Arm = Literal["random", "random_even", "quality", "controller", "no_domain", "no_family", "no_band", "no_code", "shuffled"]
PoolName = Literal["native", "even", "steered", "no_domain", "no_family", "no_band", "no_code"]
POOL_OF: dict[Arm, PoolName] = {
    "random": "native",
    "random_even": "even",
    "quality": "native",
    "controller": "steered",
    "no_domain": "no_domain",
    "no_family": "no_family",
    "no_band": "no_band",
    "no_code": "no_code",
    "shuffled": "steered",
}
ABOUT: dict[Arm, str] = {
    "random": "native planner, unsteered",
    "random_even": "native planner, domains drawn evenly",
    "quality": "best score of the unsteered pool",
    "controller": "steered, and the best subset",
    "no_domain": "controller without domain rarity",
    "no_family": "controller without mode rarity",
    "no_band": "controller without complexity bands",
    "no_code": "controller without run_python",
    "shuffled": "control: controller's data, answers permuted",
}
TAKES_WHAT_COMES: frozenset[Arm] = frozenset({"random", "random_even"})
"""Arms that select nothing: they keep all that they look at."""


class Learning(BaseModel):
    """How a tiny policy is trained on a set of conversations: the same for every arm and size."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(700_000, ge=1_000, description="Tokens a training reads in all, repetitions counted.")
    batch_tokens: int = Field(2_500, ge=100, description="Tokens of a step at most, padding counted.")
    learning_rate: float = Field(4e-3, gt=0, description="Peak rate of AdamW; linear warm-up, then linear decay.")
    warmup_steps: int = Field(20, ge=0, description="Steps of warm-up.")
    final_rate_share: float = Field(0.05, ge=0, lt=1, description="Learning rate at the end, as a share of the peak.")


class DomainsConfig(BaseModel):
    """The generated domains that are trained on and held out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    themes: tuple[str, ...] = Field(
        ("pet_boarding", "driving_school", "estate_agency", "insurance", "golf_club", "wedding"),
        min_length=1,
        description="Businesses (`themes.yaml` of the generator) that the domains are drawn from: their entities and actions.",
    )
    training: int = Field(5, ge=1, description="Domains of each theme that conversations are made in.")
    held_out: int = Field(2, ge=1, description="Domains of each theme that policies are measured in.")
    most_entities: int = Field(5, ge=4, le=7, description="Domains with more entities are left out.")


class DiversityExperimentConfig(BaseModel):
    """Arms x sizes x seeds, and what each of them costs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domains: DomainsConfig = Field(
        default_factory=DomainsConfig, description="Where conversations are held, and where policies are measured."
    )
    sizes: tuple[int, ...] = Field(
        (125, 250, 500, 1000, 2000), min_length=1, description="Conversations' worth of tokens, by the mean of the random arm."
    )
    full_arms: tuple[Arm, ...] = Field(("random", "controller"), description="Arms that are run over all sizes: they get a fitted ceiling.")
    ablated_arms: tuple[Arm, ...] = Field(
        ("random_even", "quality", "no_domain", "no_family", "no_band", "no_code", "shuffled"),
        description="Arms that are run at `ablated_size` alone.",
    )
    ablated_size: int = Field(1000, ge=1, description="Size at which the other arms are compared.")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="Each makes its own conversations, weights and order of batches.")
    oversample: float = Field(2.0, ge=1, description="Conversations that an arm selects from, as a multiple of what it may keep.")
    native_skew: float = Field(
        1.0,
        ge=0,
        description="Exponent of the Zipf law by which the unsteered planner comes by its domains; 0: evenly, as random_even does.",
    )
    code_share: float = Field(0.15, ge=0, lt=1, description="Share of conversations that compute, of those in domains where one can.")
    shown_tools: int = Field(6, ge=2, description="Tools on the compact list of a prompt: those used, and others of the domain.")
    held_out_tasks: int = Field(240, ge=10, description="Tasks of held-out domains that every policy is measured on.")
    code_tasks: int = Field(100, ge=10, description="Tiny code tasks that every policy is measured on.")
    practice_themes: int = Field(24, ge=1, description="Other themes, three domains each, in which every arm's policy has practised.")
    practice_tasks: int = Field(6_000, ge=1, description="Single acts that it has practised there.")
    base: Learning = Field(
        Learning(tokens=2_500_000), description="Of the policy that every arm starts from, on those and on tiny code tasks."
    )
    learning: Learning = Field(
        Learning(tokens=1_200_000),
        description="Of every arm's policy; its tokens are those of the largest sizes, see tokens_a_conversation.",
    )
    tokens_a_conversation: int = Field(
        1_500, ge=1, description="A training reads so many tokens for each conversation of its size, repetitions counted, ..."
    )
    least_tokens: int = Field(
        300_000, ge=1, description="... but no fewer than these, and no more than learning.tokens: the same in every arm."
    )
    tiny: TinyConfig = Field(TinyConfig(positions=640), description="Shape of the policy; longer conversations are left out of every arm.")
    least_power: float = Field(0.5, ge=0, le=1, description="What a policy trained on the held-out domains must reach.")
    least_arm: float = Field(0.1, ge=0, le=1, description="What the best arm must reach.")
    processes: int = Field(2, ge=1, description="Trainings side by side, a thread each.")

    @model_validator(mode="after")
    def _compares_something(self) -> DiversityExperimentConfig:
        if not {"random", "controller"} <= set(self.full_arms):
            raise ValueError("full_arms must have random and controller: the gain is the difference between the two")
        if set(self.full_arms) & set(self.ablated_arms):
            raise ValueError("an arm is in full_arms or in ablated_arms, not in both")
        if self.ablated_arms and self.ablated_size not in self.sizes:
            raise ValueError(
                f"ablated_size {self.ablated_size} is not among sizes {list(self.sizes)}: the others are compared with random there"
            )
        return self

    def tokens_at(self, size: int) -> int:
        """Tokens that a training at this size reads, in every arm."""
        return min(self.learning.tokens, max(self.least_tokens, self.tokens_a_conversation * size))

    def cells(self) -> list[tuple[Arm, int, int]]:
        """(arm, size, seed) of every training; seeds vary slowest, so that a run that is cut short has whole seeds."""
        found: list[tuple[Arm, int, int]] = []
        for seed in self.seeds:
            found += [(arm, self.ablated_size, seed) for arm in self.ablated_arms]
            found += [(arm, size, seed) for size in self.sizes for arm in self.full_arms]
        return found
