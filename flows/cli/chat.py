"""`headrace chat`: a person, or a script, talks to a policy in a live world and sees every call that it makes.

What happens is `chat_session.py`'s; here it is drawn on a terminal, or printed as JSON lines. Whatever a policy or a world wrote is shown
as text that cannot move the cursor, colour, or hide anything.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.measure_policy import AnswerTokens
from flows.cli.shared import ConfigFile, Debug, MaxTokens, MaxUsd, ReadStore, UsdPerMillion
from flows.cli.terminal import err, lines, out, told

if TYPE_CHECKING:
    from flows.config import Config
    from flows.interactive.chat_session import Chat, ChatSettings, Event
    from flows.interactive.policy_facts import Schooling
    from flows.interactive.world_repl import Need
    from flows.resolve_policy import Asked

_SHOWN = 400
"""Characters of a result on a terminal; JSON lines and saved conversations have all of it."""
_COLOURS = {"note": "", "warning": "yellow", "error": "bold red"}


Policy = Annotated[
    str, typer.Option("--policy", metavar="POLICY", help="latest (promoted last), id or stage; or openai:MODEL, vllm:MODEL, hf:FOLDER.")
]
World = Annotated[
    str | None,
    typer.Option("--world", "-w", metavar="NAME|FILE", help="World to talk in (default: the first of its training, else retail)."),
]
Say = Annotated[str | None, typer.Option("--say", metavar="TEXT", help="Say this, show the answer, and leave.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which world of its kind; also of what is sampled.")]
Temperature = Annotated[float, typer.Option("--temperature", metavar="T", min=0.0, help="0 takes the likeliest token.")]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", metavar="N", min=1, help="Its messages to one request.")]
Requests = Annotated[
    int | None,
    typer.Option("--requests", metavar="N", min=1, help="Requests of one conversation (default: as in its training, else no limit)."),
]


def chat(
    policy: Policy = "latest",
    world: World = None,
    say: Say = None,
    as_json: AsJson = False,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    max_turns: MaxTurns = None,
    requests: Requests = None,
    config: ConfigFile = None,
    store: ReadStore = None,
    answer_tokens: AnswerTokens = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    debug: Debug = False,
) -> None:
    """Talk to a policy in a live world: see the tools that it calls, what they answer, and what it changes.

    `/task` proposes a request that it may be up to, and the verifier judges the answer; `/help` lists the rest. Reads from a pipe too.

    Examples:

      headrace chat --policy latest --world retail

      printf '/task\\n\\n/changes\\n' | headrace chat --policy sft1 --store runs/sample/store

      headrace chat --policy openai:gpt-5-mini --world banking --say "What do I owe?" --json
    """
    limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
    with told(debug), _ended_by_ctrl_c():
        from flows import validation
        from flows.resolve_policy import asked

        script = None if say is None else _script(say)
        settings = validation.asking(validation.settings(config), limits)
        who = asked(policy, settings.store if store is None and config is not None else store)
        who.policy.check()
        known = _known(who)
        name = _world(world, known)
        tokens = settings.train.engine.answer_tokens if who.policy.engine else answer_tokens
        how = _settings(who, known, tokens, max_turns, requests, temperature)
        is_person = say is None and not as_json and sys.stdin.isatty()
        with _talk(who, settings, name, seed, how, as_json=as_json, is_person=is_person) as talk:
            _begin(talk, who, known)
            if is_person:
                _with_a_person(talk)
            else:
                _with_a_script(talk, lines("", ()) if script is None else script)


def _script(say: str) -> list[str]:
    """The lines of --say. Raises BadInput: it is empty."""
    from storage.errors import BadInput

    if not say.strip():
        raise BadInput("--say has nothing to say: give it a request or a /command")
    return [say]


# ---- who talks, and in which world -------------------------------------------------------------------------------------


def _known(who: Asked) -> Schooling:
    from flows.interactive.policy_facts import Schooling, schooling
    from synth.worlds.stored_worlds import register_stored

    if who.store is None or not who.store.exists():
        return Schooling()
    register_stored(who.store)
    return schooling(who.store, who.policy.id)


def _world(named: str | None, known: Schooling) -> str:
    """Raises BadInput: there is no such world."""
    from flows import validation

    return validation.world_name(named or next(iter(known.worlds), "retail"))


def _settings(
    who: Asked, known: Schooling, answer_tokens: int | None, max_turns: int | None, requests: int | None, temperature: float
) -> ChatSettings:
    """What was said on the command line, and for the rest what suits the policy."""
    from flows.interactive.chat_session import ChatSettings

    given = {"answer_tokens": answer_tokens, "max_turns": max_turns, "requests": requests or known.requests}
    said = {key: value for key, value in given.items() if value is not None}
    return ChatSettings(temperature=temperature, language=known.language, canonical=bool(known.worlds), **said)


@contextlib.contextmanager
def _talk(who: Asked, settings: Config, world: str, seed: int, how: ChatSettings, *, as_json: bool, is_person: bool) -> Iterator[Chat]:
    """A conversation with the policy, whose engine is loaded first and closed at the end."""
    from flows.interactive.chat_session import Chat
    from flows.resolve_policy import answers

    show = _print_json if as_json else _Drawing(who.policy.name, echoes=not is_person)
    with contextlib.ExitStack() as kept:
        with _waiting(f"loading {who.policy.name}", is_person):
            engine = kept.enter_context(answers(who, settings.train.engine, command="chat"))
        yield Chat(engine, world, seed, how, show, policy=who.policy.id, needs=_needs(who, world), unread=_unread(engine))


def _needs(who: Asked, world: str) -> list[Need]:
    """What it has mostly answered rightly in this world when it was measured; else what it ever has."""
    from flows.interactive.policy_facts import answered

    if who.store is None or not who.store.exists():
        return []
    found = [one for one in answered(who.store, who.policy.id, world) if one.successes]
    return [one.need for one in found if 2 * one.successes >= one.rollouts] or [one.need for one in found]


def _unread(engine: Any) -> Callable[[str], list[str]]:
    """The words that a policy in process does not know; of a server nobody tells."""
    from train.tiny import unread_words

    tokenizer = getattr(engine, "tokenizer", None)
    return lambda text: [] if tokenizer is None else unread_words(tokenizer, text)


def _waiting(text: str, is_person: bool) -> contextlib.AbstractContextManager[Any]:
    return out.status(text) if is_person else contextlib.nullcontext()


# ---- talking -----------------------------------------------------------------------------------------------------------


def _begin(talk: Chat, who: Asked, known: Schooling) -> None:
    world, requests = talk.session.world.name, talk.settings.requests
    talk.tell(
        "start",
        policy=who.policy.id,
        name=who.policy.name,
        promoted=known.is_promoted,
        trained_in=list(known.worlds),
        measured=[vars(one) for one in known.measured],
        world=world,
        seed=talk.session.seed,
        tools=[tool.name for tool in talk.tools],
        requests=requests,
    )
    if known.worlds and world not in known.worlds:
        talk.tell("warning", text=f"it was not trained in {world}, but in {', '.join(known.worlds)}: expect nothing of it here")
    if requests is not None:
        takes = "each request is a conversation of its own" if requests == 1 else f"a conversation takes {requests} requests"
        talk.tell("note", text=f"{takes}{', as in its training' * (requests == known.requests)}; the world keeps what was done")
    if known.requests is not None and (requests is None or requests > known.requests):
        most = f"{known.requests} request{'' if known.requests == 1 else 's'}"
        talk.tell("warning", text=f"it learned from conversations of at most {most}: expect little of it after that")


def _with_a_person(talk: Chat) -> None:
    """Until they leave. What fails is told, and they go on; a budget that is spent ends it."""
    from flows.interactive.chat_session import COMMANDS
    from storage.errors import HeadraceError
    from synth.engines.budget import BudgetSpent

    talk.hint()
    words = (*COMMANDS, *talk.session.world.intents)
    with contextlib.suppress(KeyboardInterrupt):
        for line in lines("you> ", words):
            try:
                with _waiting("...", is_person=True):
                    goes_on = talk.handle(line)
                if not goes_on:
                    return
            except KeyboardInterrupt:
                talk.tell("warning", text="stopped; what its calls have changed stays changed")
            except BudgetSpent:
                raise
            except HeadraceError as error:
                talk.tell("error", text=str(error))
    out.print()


def _with_a_script(talk: Chat, given: Iterable[str]) -> None:
    """Until the lines end, one says /quit, or something fails."""
    for line in given:
        if not talk.handle(line):
            return


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Of a chat nothing continues where it was, so that is not promised."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("[bold red]headrace:[/bold red] interrupted")
        raise typer.Exit(130) from None


# ---- showing -------------------------------------------------------------------------------------------------------------


def _print_json(event: Event) -> None:
    typer.echo(json.dumps({"event": event.kind, **event.said}))


class _Drawing:
    """Events as lines for a person. echoes: requests are shown too, as nobody typed them here."""

    def __init__(self, name: str, *, echoes: bool) -> None:
        self._name, self._echoes = name, echoes

    def __call__(self, event: Event) -> None:
        said = event.said
        drawn: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._start,
            "request": self._request,
            "result": self._result,
            "answer": self._answer,
            "task": self._task,
            "verdict": self._verdict,
        }
        if event.kind in drawn:
            drawn[event.kind](said)
        elif event.kind == "call":
            _line(f"  > {said['name']} {said['arguments']}", "cyan")
        else:
            _line(said["text"], _COLOURS[event.kind])

    def _start(self, said: Mapping[str, Any]) -> None:
        promoted = ", the one promoted last" if said["promoted"] else ""
        _line(f"policy  {self._name} ({said['policy']}){promoted}" if self._name != said["policy"] else f"policy  {self._name}{promoted}")
        for one in said["measured"]:
            rate = f"{one['rate']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
            _line(f"        {rate} of {one['tasks']} tasks, {one['use']}, {one['decoding']}", "dim")
        if not said["measured"]:
            _line("        not measured on held-out tasks: headrace evaluate", "dim")
        _line(f"world   {said['world']}, seed {said['seed']}, {len(said['tools'])} tools")

    def _request(self, said: Mapping[str, Any]) -> None:
        if self._echoes:
            _line(f"you> {said['content']}")

    def _result(self, said: Mapping[str, Any]) -> None:
        _line(f"  < {_cut(said['content'])}", "red" if said["is_error"] else "dim")

    def _answer(self, said: Mapping[str, Any]) -> None:
        from flows.interactive.chat_session import STOPPED

        if said["content"]:
            _line(f"{self._name}> {_cut(said['content']) if said['stopped'] else said['content']}", "bold")
        if said["stopped"]:
            _line(f"no whole answer: {STOPPED[said['stopped']]}", "yellow")
        calls = f"{said['calls']} call{'' if said['calls'] == 1 else 's'}"
        _line(f"  ({calls}, {said['tokens']} tokens, {said['seconds']:.2f} s)", "dim")

    def _task(self, said: Mapping[str, Any]) -> None:
        _line(f"[{said['intent']}, difficulty {said['difficulty']}] {said['request']}", "bold")
        _line("in a fresh world; expected, or any other way to the same end:", "dim")
        for call in said["calls"]:
            _line(f"  > {call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}", "dim")
        _line(f"  = {said['answer']}", "dim")
        _line("an empty line sends it; or put it in your own words", "dim")

    def _verdict(self, said: Mapping[str, Any]) -> None:
        if said["accepted"]:
            _line("the verifier accepts it", "green")
        else:
            _line(f"the verifier does not accept it: {', '.join(said['failed'])} (reward {said['reward']:g})", "red")


def _cut(text: str) -> str:
    return f"{text[:_SHOWN]} ... ({len(text):,} characters)" if len(text) > _SHOWN else text


def _line(text: str, style: str = "") -> None:
    from synth.sandbox.safe_text import safe_text

    out.print(Text(safe_text(text.encode("utf-8", errors="replace")), style=style), soft_wrap=True)
