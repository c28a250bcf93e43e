"""`headrace chat`: a user or a script talks to a policy in a live world and sees each of its calls.

`chat_session.py` runs the chat. This module draws its events on a terminal or prints them as JSON lines. Text of a policy or a world is
escaped, so it cannot move the cursor, change colours or hide text.
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
from flows.cli.terminal import err, handle_errors, out, read_lines
from storage.outside.known_secrets import mask

if TYPE_CHECKING:
    from flows.config import Config
    from flows.interactive.chat_session import Chat, ChatSettings, Event
    from flows.interactive.policy_facts import PolicyFacts
    from flows.interactive.world_repl import Need
    from flows.resolve_policy import ResolvedPolicy

_SHOWN = 400
"""Characters of a result on a terminal; JSON lines and saved conversations have the whole text."""
_COLOURS = {"note": "", "warning": "yellow", "error": "bold red"}


Policy = Annotated[
    str,
    typer.Option("--policy", metavar="POLICY", help="latest (the last promoted one), id or stage; or openai:MODEL, vllm:MODEL, hf:FOLDER."),
]
World = Annotated[
    str | None,
    typer.Option(
        "--world",
        "-w",
        metavar="NAME|FILE",
        help="World of the chat (default: the first world of the policy's training, else of the store).",
    ),
]
Say = Annotated[str | None, typer.Option("--say", metavar="TEXT", help="Send this request, show the answer, and exit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the world's data and of sampling.")]
Temperature = Annotated[
    float, typer.Option("--temperature", metavar="T", min=0.0, help="Sampling temperature; 0 takes the most likely token.")
]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", metavar="N", min=1, help="Most messages of the policy per request.")]
Requests = Annotated[
    int | None,
    typer.Option("--requests", metavar="N", min=1, help="Most requests per conversation (default: as in its training, else no limit)."),
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
    """Talk to a policy in a live world: see the tools that it calls, their results, and the changes of the world.

    `/task` proposes a request that the policy may know, and the verifier judges the answer; `/help` lists all commands. The command also
    reads from a pipe.

    Examples:

      headrace chat --policy latest --world retail

      printf '/task\\n\\n/changes\\n' | headrace chat --policy sft1 --store runs/sample/store

      headrace chat --policy openai:gpt-5-mini --world banking --say "What do I owe?" --json
    """
    limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
    with handle_errors(debug), _exit_on_ctrl_c():
        from flows import validation
        from flows.resolve_policy import resolve_policy

        script = None if say is None else _script_lines(say)
        settings = validation.set_engine_limits(validation.read_config(config), limits)
        target = resolve_policy(policy, settings.store if store is None and config is not None else store)
        target.policy.check()
        facts = _read_facts(target)
        world_name = validation.resolve_world(world or _usual_world(target, facts))
        tokens = settings.train.engine.answer_tokens if target.policy.engine else answer_tokens or settings.train.policy_tokens
        chat_settings = _chat_settings(facts, tokens, max_turns, requests, temperature)
        is_interactive = say is None and not as_json and sys.stdin.isatty()
        with _open_chat(target, settings, world_name, seed, chat_settings, as_json=as_json, is_interactive=is_interactive) as session:
            _emit_start(session, target, facts)
            if is_interactive:
                _talk_with_user(session)
            else:
                _run_script(session, read_lines("", ()) if script is None else script)


def _script_lines(say: str) -> list[str]:
    """The lines of --say. Raises BadInput if it is empty."""
    from storage.errors import BadInput

    if not say.strip():
        raise BadInput("--say is empty: give a request or a /command")
    return [say]


# ---- the policy and its chat ---------------------------------------------------------------------------------------------


def _read_facts(target: ResolvedPolicy) -> PolicyFacts:
    from flows.interactive.policy_facts import PolicyFacts, read_policy_facts
    from synth.worlds.stored_worlds import register_stored

    if target.store is None or not target.store.exists():
        return PolicyFacts()
    register_stored(target.store)
    return read_policy_facts(target.store, target.policy.id)


def _usual_world(target: ResolvedPolicy, facts: PolicyFacts) -> str:
    """The first world of the policy's training, else of the store, else retail."""
    from flows.config import Config, recall

    if facts.worlds or target.store is None or not target.store.exists():
        return next(iter(facts.worlds), "retail")
    return recall(Config(store=target.store.root)).train.worlds[0]


def _chat_settings(
    facts: PolicyFacts, answer_tokens: int | None, max_turns: int | None, requests: int | None, temperature: float
) -> ChatSettings:
    """The settings of the command line. Settings that it omits fit the policy's training."""
    from flows.interactive.chat_session import ChatSettings

    options = {"answer_tokens": answer_tokens, "max_turns": max_turns, "requests": requests or facts.requests}
    limits = {key: value for key, value in options.items() if value is not None}
    return ChatSettings(temperature=temperature, language=facts.language, canonical=bool(facts.worlds), **limits)


@contextlib.contextmanager
def _open_chat(
    target: ResolvedPolicy, settings: Config, world: str, seed: int, chat_settings: ChatSettings, *, as_json: bool, is_interactive: bool
) -> Iterator[Chat]:
    """Load the policy's engine, yield the chat, and close the engine at the end."""
    from flows.config import keep_budgets
    from flows.interactive.chat_session import Chat
    from flows.resolve_policy import open_engine

    if target.store is not None:
        keep_budgets(settings, target.store.root)
    on_event = _print_json if as_json else _TerminalDisplay(target.policy.name, echoes=not is_interactive)
    with contextlib.ExitStack() as stack:
        with _show_status(f"loading {target.policy.name}", is_interactive):
            engine = stack.enter_context(open_engine(target, settings.train.engine, command="chat"))
        needs, find_unknown_words = _known_needs(target, world), _unknown_words_finder(engine)
        yield Chat(
            engine, world, seed, chat_settings, on_event, policy=target.policy.id, needs=needs, find_unknown_words=find_unknown_words
        )


def _known_needs(target: ResolvedPolicy, world: str) -> list[Need]:
    """Needs that the policy met in at least half of its held-out rollouts in this world; if there are none, needs that it ever met."""
    from flows.interactive.policy_facts import read_need_results

    if target.store is None or not target.store.exists():
        return []
    results = [result for result in read_need_results(target.store, target.policy.id, world) if result.successes]
    return [result.need for result in results if 2 * result.successes >= result.rollouts] or [result.need for result in results]


def _unknown_words_finder(engine: Any) -> Callable[[str], list[str]]:
    """A function that returns the words of a text that the policy does not know. For a server it returns none."""
    from train.tiny import unread_words

    tokenizer = getattr(engine, "tokenizer", None)
    return lambda text: [] if tokenizer is None else unread_words(tokenizer, text)


def _show_status(text: str, is_interactive: bool) -> contextlib.AbstractContextManager[Any]:
    return out.status(text) if is_interactive else contextlib.nullcontext()


# ---- the chat ----------------------------------------------------------------------------------------------------------


def _emit_start(session: Chat, target: ResolvedPolicy, facts: PolicyFacts) -> None:
    """Emit the start event, and warnings if the chat differs from the policy's training."""
    world, requests = session.world_session.world.name, session.settings.requests
    session.emit(
        "start",
        policy=target.policy.id,
        name=target.policy.name,
        promoted=facts.is_promoted,
        trained_in=list(facts.worlds),
        measured=[vars(measurement) for measurement in facts.measurements],
        world=world,
        seed=session.world_session.seed,
        tools=[tool.name for tool in session.tools],
        requests=requests,
    )
    if facts.worlds and world not in facts.worlds:
        session.emit(
            "warning", text=f"the policy was not trained in {world}, but in {', '.join(facts.worlds)}: it will hardly succeed here"
        )
    if requests is not None:
        takes = "each request is a separate conversation" if requests == 1 else f"a conversation takes {requests} requests"
        session.emit("note", text=f"{takes}{', as in its training' * (requests == facts.requests)}; the world keeps the changes")
    if facts.requests is not None and (requests is None or requests > facts.requests):
        most = f"{facts.requests} request{'' if facts.requests == 1 else 's'}"
        session.emit("warning", text=f"the policy learned from conversations of at most {most}: it may fail after that")


def _talk_with_user(session: Chat) -> None:
    """Handle the user's lines until the user leaves. Errors are shown and the chat continues; only a spent budget ends it."""
    from flows.interactive.chat_session import COMMANDS
    from storage.errors import HeadraceError
    from synth.engines.budget import BudgetSpent

    session.show_examples()
    words = (*COMMANDS, *session.world_session.world.intents)
    with contextlib.suppress(KeyboardInterrupt):
        for line in read_lines("you> ", words):
            try:
                with _show_status("...", is_interactive=True):
                    continues = session.handle(line)
                if not continues:
                    return
            except KeyboardInterrupt:
                session.emit("warning", text="stopped; the world keeps the changes of its calls")
            except BudgetSpent:
                raise
            except HeadraceError as error:
                session.emit("error", text=str(error))
    out.print()


def _run_script(session: Chat, script: Iterable[str]) -> None:
    """Handle the lines of a script until its end or /quit. The first error ends it."""
    for line in script:
        if not session.handle(line):
            return


@contextlib.contextmanager
def _exit_on_ctrl_c() -> Iterator[None]:
    """Exit on Ctrl-C without the hint to run the command again, because a chat cannot be continued."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("[bold red]headrace:[/bold red] interrupted")
        raise typer.Exit(130) from None


# ---- output --------------------------------------------------------------------------------------------------------------


def _print_json(event: Event) -> None:
    typer.echo(mask(json.dumps({"event": event.kind, **event.data})))


class _TerminalDisplay:
    """Draws events as lines on the terminal. echoes: also draw requests, which a script sent and no user typed."""

    def __init__(self, name: str, *, echoes: bool) -> None:
        self._name, self._echoes = name, echoes

    def __call__(self, event: Event) -> None:
        data = event.data
        draw_functions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._start,
            "request": self._request,
            "result": self._result,
            "answer": self._answer,
            "task": self._task,
            "verdict": self._verdict,
        }
        if event.kind in draw_functions:
            draw_functions[event.kind](data)
        elif event.kind == "call":
            _print_line(f"  > {data['name']} {data['arguments']}", "cyan")
        else:
            _print_line(data["text"], _COLOURS[event.kind])

    def _start(self, data: Mapping[str, Any]) -> None:
        from storage.explanations.store_rows import HELD_OUT_IN_SENTENCES

        promoted = ", the last promoted policy" if data["promoted"] else ""
        _print_line(
            f"policy  {self._name} ({data['policy']}){promoted}" if self._name != data["policy"] else f"policy  {self._name}{promoted}"
        )
        for row in data["measured"]:
            interval = f"(95 %: {100 * row['low']:.0f} to {100 * row['high']:.0f})"
            what = f"{row['tasks']} {HELD_OUT_IN_SENTENCES.get(row['use'], row['use'])}"
            _print_line(f"        solves {100 * row['rate']:.0f} % of {what} {interval}, {row['decoding']}", "dim")
        if not data["measured"]:
            _print_line("        not measured on held-out tasks: headrace evaluate", "dim")
        _print_line(f"world   {data['world']}, seed {data['seed']}, {len(data['tools'])} tools")

    def _request(self, data: Mapping[str, Any]) -> None:
        if self._echoes:
            _print_line(f"you> {data['content']}")

    def _result(self, data: Mapping[str, Any]) -> None:
        _print_line(f"  < {_shorten(data['content'])}", "red" if data["is_error"] else "dim")

    def _answer(self, data: Mapping[str, Any]) -> None:
        from flows.interactive.chat_session import STOPPED

        if data["content"]:
            _print_line(f"{self._name}> {_shorten(data['content']) if data['stopped'] else data['content']}", "bold")
        if data["stopped"]:
            _print_line(f"no complete answer: {STOPPED[data['stopped']]}", "yellow")
        calls = f"{data['calls']} call{'' if data['calls'] == 1 else 's'}"
        _print_line(f"  ({calls}, {data['tokens']} tokens, {data['seconds']:.2f} s)", "dim")

    def _task(self, data: Mapping[str, Any]) -> None:
        from storage.explanations.store_rows import difficulty_in_words

        _print_line(f"[{data['intent']}, difficulty {difficulty_in_words(data['difficulty'])}] {data['request']}", "bold")
        expected = "expected calls (other ways to the same result count too)" if data["calls"] else "no call is expected, and this answer"
        _print_line(f"in a fresh world; {expected}:", "dim")
        for call in data["calls"]:
            _print_line(f"  > {call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}", "dim")
        _print_line(f"  = {data['answer']}", "dim")
        _print_line("an empty line sends it; you can also write your own words", "dim")

    def _verdict(self, data: Mapping[str, Any]) -> None:
        if data["accepted"]:
            _print_line("the verifier accepts it", "green")
        else:
            _print_line(f"the verifier does not accept it: {', '.join(data['failed'])} (reward {data['reward']:g})", "red")


def _shorten(text: str) -> str:
    return f"{text[:_SHOWN]} ... ({len(text):,} characters)" if len(text) > _SHOWN else text


def _print_line(text: str, style: str = "") -> None:
    from storage.outside.safe_text import safe_text

    out.print(Text(safe_text(text.encode("utf-8", errors="replace")), style=style), soft_wrap=True)
