"""A folder of written specs: what was asked for, what became of it, and the files that were kept.

One idea: an attempt is written down before anything is asked (`Order`: all that its prompt is made from), and settled when its outcome is
known, both in `attempts.json`. A run that is called again asks for what is not settled in the very same words, so that a cache of answers
knows them, and nothing that is settled is asked again. What is kept is settled first and written then, both by renaming: a file that
is missing is an attempt that is not settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from storage.errors import BadInput
from storage.files import replace_atomically
from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.language.problems import SpecError
from synth.writing.similarity import Signatures, signatures_of
from synth.writing.spec_gate import Looked, Outcome

REPORT = "attempts.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Order(_Part):
    """All that an attempt's first prompt is made from. examples, parent: names of specs that are shown; parent and change are empty where
    it is no variation. known: names of domains that there are already."""

    number: int = Field(ge=0)
    seed: int
    about: str = ""
    examples: tuple[str, ...] = ()
    parent: str = ""
    change: str = ""
    known: tuple[str, ...] = ()


class Attempt(_Part):
    """What became of an order. outcome: None while it is open. tries: answers that were looked at. problems: of the last of them.
    intents: admitted, and drawn. usd: what all of its answers cost."""

    order: Order
    outcome: Outcome | None = None
    engine: str = ""
    prompts: dict[str, str] = Field(default_factory=dict)
    tries: int = 0
    problems: tuple[str, ...] = ()
    file: str = ""
    tools: int = 0
    intents: tuple[int, int] = (0, 0)
    likest: str = ""
    likeness: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


_ATTEMPTS = TypeAdapter(tuple[Attempt, ...])


class SpecFolder:
    """The attempts of a folder and its kept files. Nothing is written before the first attempt is noted.

    Raises:
        BadInput: it is no folder, or what it says of its attempts cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise BadInput(f"{path} is a file; give a folder for the specs")
        self.path = path
        self._attempts = {attempt.order.number: attempt for attempt in self._read()}

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """In the order of their numbers."""
        return tuple(self._attempts[number] for number in sorted(self._attempts))

    def kept(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.outcome == "kept")

    def counts(self) -> Counter[Outcome]:
        return Counter(attempt.outcome for attempt in self.attempts if attempt.outcome is not None)

    def note(self, attempts: Iterable[Attempt]) -> None:
        """Writes down what is known of these attempts now, in place of what was known before."""
        self._attempts |= {attempt.order.number: attempt for attempt in attempts}
        data = _ATTEMPTS.dump_json(self.attempts, indent=1)
        replace_atomically(self.path / REPORT, lambda path: path.write_bytes(data))

    def keep(self, attempt: Attempt, looked: Looked) -> Attempt:
        """Settles an attempt with its spec, which is a file of the folder then; one that is there already is left alone."""
        assert looked.world is not None
        name = looked.world.domain.name
        taken = (self.path / f"{name}.yaml").exists()
        settled = attempt.model_copy(update={"file": f"{name}-{looked.world.domain.digest[:8]}.yaml" if taken else f"{name}.yaml"})
        self.note([settled])
        text = _provenance(settled) + looked.text
        replace_atomically(self.path / settled.file, lambda path: path.write_text(text, encoding="utf-8"))
        return settled

    def signatures(self) -> Mapping[str, Signatures]:
        """Of every spec of the folder that compiles, kept by us or lying there, by file."""
        found = {}
        for path in sorted(self.path.glob("*.yaml")):
            try:
                found[path.name] = signatures_of(compile_file(path))
            except SpecError:
                continue
        return found

    def _read(self) -> tuple[Attempt, ...]:
        file = self.path / REPORT
        try:
            found = _ATTEMPTS.validate_json(file.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            raise BadInput(f"{file} cannot be read ({str(error).splitlines()[0]}); move it away, or give another folder") from None
        return tuple(Attempt(order=each.order) if self._is_undone(each) else each for each in found)

    def _is_undone(self, attempt: Attempt) -> bool:
        """Whether it is to be made from its beginning: it was under way, the engine failed, or the file that was kept is not there."""
        return attempt.outcome in (None, "infra_failure") or (attempt.outcome == "kept" and not (self.path / attempt.file).is_file())


def body_of(text: str) -> str:
    """A spec's text without the comments above it, ours or its writer's."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "".join(lines[first:])


def _provenance(attempt: Attempt) -> str:
    order, (admitted, drawn) = attempt.order, attempt.intents
    lines = {
        "written by": f"headrace worlds write; attempt {order.number}, seed {order.seed}, {attempt.tries} tries",
        "engine": attempt.engine,
        "prompts": ", ".join(f"{name} {version}" for name, version in attempt.prompts.items()),
        "about": order.about or "anything",
        "parent": f"{order.parent} ({order.change})" if order.parent else "none",
        "shown": ", ".join(order.examples) or "the starter",
        "admitted": f"{admitted} of {drawn} intents",
        "likest": f"{attempt.likest} ({attempt.likeness:.2f})",
        "tokens": f"{attempt.prompt_tokens:,} read, {attempt.completion_tokens:,} written",
    }
    return "".join(f"# {key}: {_one_line(value)}\n" for key, value in lines.items())


def _one_line(text: str) -> str:
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
