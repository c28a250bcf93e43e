"""`headrace ground`: how requests are read in a world; try one, or measure the reader on labelled requests of your own."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from filters.reading.labels.fit import Labelled
    from filters.reading.labels.teaching import Turn
    from filters.reading.readings import Reading
    from filters.reading.world_reader import WorldReader

app = typer.Typer(
    no_args_is_help=True,
    help="""How requests of users are read: world, intent and slots, with a confidence. No language model is called.

A reader is compiled from what a world declares, so any world can be read, your own too, in English and Chinese.""",
)
WorldNames = Annotated[
    list[str],
    typer.Option("--world", "-w", metavar="NAME|FILE", help="World to read, e.g. hotel; or a spec file. Repeatable."),
]
LabelledFile = Annotated[
    Path, typer.Argument(metavar="FILE", help='Labelled requests, JSON Lines: {"text": ..., "intent": ..., "slots": {...}}.')
]
_SHARES = (0.1, 0.25, 0.5, 1.0)
_STEPS = (0.5, 0.7, 0.9)


@app.command("try")
def try_(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Request of a user.")],
    world: WorldNames,
    debug: Debug = False,
) -> None:
    """Read one request: its frame, where each value stands, how sure the reader is, what a task would add to it, and what is left unread.

    Examples:

      headrace ground try "please cancel reservation b012" --world hotel

      headrace ground try "Transfer 200 dollars from a012 to a034" --world banking --world hotel
    """
    with handle_errors(debug):
        from filters.reading.world_reader import UNREAD

        (reading,) = _reader_of(world).read([text])
        if reading is UNREAD:
            raise BadInput("no world that is named speaks the language of this request")
        for line in _lines(reading, text):
            print_text(line)


@app.command()
def bench(
    file: LabelledFile,
    world: WorldNames,
    debug: Debug = False,
) -> None:
    """Measure the reader on labelled requests: how often the frame is right, by how sure the reader is.

    A frame is right if intent and every slot are. A line may name its `world`; days are ISO dates.

    Example: headrace ground bench labelled.jsonl --world hotel
    """
    with handle_errors(debug):
        from filters.reading.labels.labelled_file import read_labelled
        from flows.summaries.summary_tables import Table, print_table

        reader = _reader_of(world)
        judged = sorted(_judge(reader, read_labelled(file, list(reader.declared.values()))), reverse=True)
        rows = [_row(f"most confident {share:.0%}", judged[: max(1, round(len(judged) * share))]) for share in _SHARES]
        rows += [_row(f"confidence of {step} or more", [each for each in judged if each[0] >= step]) for step in _STEPS]
        print_table(Table("ground", f"{file}: {len(judged):,} requests", rows), out)


@app.command()
def teach(
    file: LabelledFile,
    world: WorldNames,
    debug: Debug = False,
) -> None:
    """Say how much a world's reader learns from labelled requests: each is read by a reader that has seen the others.

    `curate.ground.labelled: FILE` in a configuration has a curation learn from the file.

    Example: headrace ground teach labelled.jsonl --world hotel
    """
    with handle_errors(debug):
        from filters.reading.labels.labelled_file import read_labelled
        from filters.reading.labels.teaching import folds, turns_of
        from flows.summaries.summary_tables import Table, print_table

        reader = _reader_of(world)
        examples = read_labelled(file, list(reader.declared.values()))
        parts = [_judge(_reader_of(world, turns_of(others)), measured) for others, measured in folds(examples)]
        before, after = (sorted(part, reverse=True) for part in (_judge(reader, examples), chain.from_iterable(parts)))
        rows = [_row(f"{name}, {share:.0%} most confident", judged[: max(1, round(len(judged) * share))])
                for share in (0.5, 1.0) for name, judged in (("without", before), ("with the others", after))]  # fmt: skip
        print_table(Table("ground", f"{file}: {len(examples):,} requests", rows), out)
        print_text(f"to learn from them in a curation: curate: {{ground: {{labelled: {file}}}}} in its configuration")


def _judge(reader: WorldReader, examples: Sequence[Labelled]) -> list[tuple[float, bool]]:
    """Confidence, and whether the frame is right, of each request."""
    readings = reader.read([each.text for each in examples])
    return [(reading.confidence, reader.is_right(reading, example)) for reading, example in zip(readings, examples, strict=True)]


def _row(name: str, judged: Sequence[tuple[float, bool]]) -> dict[str, str]:
    """judged: (confidence, whether the frame is right) of each request."""
    right = sum(is_right for _, is_right in judged)
    return {"requests": name, "number": f"{len(judged):,}", "right": f"{right / len(judged):.1%}" if judged else ""}


def _lines(reading: Reading, text: str) -> list[str]:
    lines = [f"frame       {reading.world}/{reading.intent}"]
    lines += [f"  {value.slot} = {value.value}    “{value.said}”, {value.probability:.0%} sure" for value in reading.values]
    lines.append(f"confidence  {reading.confidence:.2f} that all of it is right")
    if reading.twins:
        lines.append(f"the same    {', '.join(f'{world}/{intent}' for world, intent in reading.twins)}: either may be taken")
    lines += _task_lines(reading, text)
    if reading.foreign:
        lines.append(f"unread      {', '.join(reading.foreign)}")
    if reading.unread:
        lines.append(f"left over   {reading.unread} value{'s' if reading.unread > 1 else ''} that no slot takes")
    return lines


def _task_lines(reading: Reading, text: str) -> list[str]:
    """What a task of the reading adds to what was said: values that are drawn, and rows that its world is given."""
    from filters.reading.complete import draw_missing, missing_slots, say
    from filters.reading.of_world import slots_of
    from filters.reading.world_reader import language_of
    from storage.records import canonical_json
    from synth.worlds import WORLDS

    world = WORLDS[reading.world]
    slots = slots_of(world, reading.intent, reading.values)
    if slots is None:
        return ["no task     a value is none of its kind in this world"]
    drawn = draw_missing(world, reading.intent, slots)
    if drawn is None or (drawn and reading.unread):
        return [f"no task     it does not say {', '.join(missing_slots(world, reading.intent, slots))}"]
    given = world.given_for(reading.intent, {**slots, **drawn})
    lines = [f"drawn       {say(world, reading.intent, drawn, language_of(text))}"] if drawn else []
    return [*lines, f"given       {canonical_json(given)}, where no seed has it"] if given else lines


def _reader_of(names: list[str], turns: Sequence[Turn] = ()) -> WorldReader:
    """The reader of some worlds. Raises BadInput: no such world."""
    from filters.reading.world_reader import WorldReader
    from flows.validation import resolve_worlds
    from synth.worlds import WORLDS

    return WorldReader([WORLDS[name] for name in resolve_worlds(names)], turns=turns)
