"""A folder of written specs: the attempts (`attempts.json`) and the kept spec files.

One idea: an attempt is recorded before its first request, with all inputs of its prompt (`Order`), and again with its outcome. A repeated
run sends the same requests for open attempts, so the cache answers them, and nothing for finished ones. A kept attempt is recorded before
its file is written, both atomically: an attempt whose file is missing is open.
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
from synth.writing.spec_gate import GateResult, Outcome

REPORT = "attempts.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Order(_Part):
    """The inputs of an attempt's first prompt.

    examples, parent: names of the specs in the prompt.
    parent, change: empty if the attempt is no variation.
    known: names of the existing domains.
    cluster: the cluster whose tools the spec is to have; empty for tools of its own.
    """

    number: int = Field(ge=0)
    seed: int
    about: str = ""
    examples: tuple[str, ...] = ()
    parent: str = ""
    change: str = ""
    known: tuple[str, ...] = ()
    cluster: str = ""


class Attempt(_Part):
    """The state of an order.

    outcome: None while it is open.
    tries: number of checked answers.
    problems: of the last answer.
    intents: (admitted, drawn).
    likest, likeness: the most similar known world, and its similarity, 0 to 1.
    usd: price of all its answers.
    """

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
    """The attempts and kept files of a folder. Nothing is written before the first `note`.

    Raises:
        BadInput: the path is a file, or `attempts.json` cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise BadInput(f"{path} is a file; give a folder for the specs")
        self.path = path
        self._attempts = {attempt.order.number: attempt for attempt in self._read()}

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Sorted by number."""
        return tuple(self._attempts[number] for number in sorted(self._attempts))

    def kept_attempts(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.outcome == "kept")

    def counts(self) -> Counter[Outcome]:
        return Counter(attempt.outcome for attempt in self.attempts if attempt.outcome is not None)

    def note(self, attempts: Iterable[Attempt]) -> None:
        """Records the state of these attempts."""
        self._attempts |= {attempt.order.number: attempt for attempt in attempts}
        data = _ATTEMPTS.dump_json(self.attempts, indent=1)
        replace_atomically(self.path / REPORT, lambda path: path.write_bytes(data))

    def keep(self, attempt: Attempt, result: GateResult) -> Attempt:
        """Records an attempt as kept and writes its spec to a new file."""
        assert result.world is not None
        name = result.world.domain.name
        exists = (self.path / f"{name}.yaml").exists()
        settled = attempt.model_copy(update={"file": f"{name}-{result.world.domain.digest[:8]}.yaml" if exists else f"{name}.yaml"})
        self.note([settled])
        text = _provenance(settled) + result.text
        replace_atomically(self.path / settled.file, lambda path: path.write_text(text, encoding="utf-8"))
        return settled

    def signatures(self) -> Mapping[str, Signatures]:
        """File -> signatures, of every spec in the folder that compiles."""
        signatures = {}
        for path in sorted(self.path.glob("*.yaml")):
            try:
                signatures[path.name] = signatures_of(compile_file(path))
            except SpecError:
                continue
        return signatures

    def _read(self) -> tuple[Attempt, ...]:
        file = self.path / REPORT
        try:
            attempts = _ATTEMPTS.validate_json(file.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            raise BadInput(f"{file} cannot be read ({str(error).splitlines()[0]}); move it away, or give another folder") from None
        return tuple(Attempt(order=each.order) if self._is_unfinished(each) else each for each in attempts)

    def _is_unfinished(self, attempt: Attempt) -> bool:
        """Whether an attempt must start again: it was open, the engine failed, or its file is missing."""
        return attempt.outcome in (None, "infra_failure") or (attempt.outcome == "kept" and not (self.path / attempt.file).is_file())


def body_of(text: str) -> str:
    """A spec's text without the comments at its beginning."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "".join(lines[first:])


def _provenance(attempt: Attempt) -> str:
    order, (admitted, total) = attempt.order, attempt.intents
    lines = {
        "written by": f"headrace worlds write; attempt {order.number}, seed {order.seed}, {attempt.tries} tries",
        "engine": attempt.engine,
        "prompts": ", ".join(f"{name} {version}" for name, version in attempt.prompts.items()),
        "about": order.about or (f"the tools of {order.cluster}" if order.cluster else "anything"),
        "parent": f"{order.parent} ({order.change})" if order.parent else "none",
        "shown": ", ".join(order.examples) or "the starter",
        "admitted": f"{admitted} of {total} intents",
        "likest": f"{attempt.likest} ({attempt.likeness:.2f})",
        "tokens": f"{attempt.prompt_tokens:,} read, {attempt.completion_tokens:,} written",
    }
    return "".join(f"# {key}: {_one_line(value)}\n" for key, value in lines.items())


def _one_line(text: str) -> str:
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
