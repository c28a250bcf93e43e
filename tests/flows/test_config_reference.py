"""The reference has every field of the models with its meaning and allowed values, and loads back to the same configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from filters.dedup.near import NearConfig
from flows.config import Config, read
from flows.config_reference import allowed_values, differences, models_within, reference
from flows.yaml_config import load

ROOT = Path(__file__).parents[2]


class Item(BaseModel):
    label: str = Field(description="Its label.")
    weight: float = Field(1.0, gt=0, description="Its weight.")


class Inner(BaseModel):
    count: int = Field(3, ge=1, description="How many.")
    name: str | None = Field(None, description="Its name.")


class Whole(BaseModel):
    inner: Inner = Field(Inner(count=7), description="A section.")
    texts: tuple[str, ...] = Field(("a",), description="Some texts.")
    quotas: dict[str, int] = Field({}, description="Some quotas.")
    items: tuple[Item, ...] = Field((), description="Some items.")
    folder: Path = Field(Path("x/y"), description="A folder.")


def leaves(config: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and field of every key that is not a section."""
    for name, info in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), info


def comments(text: str) -> dict[tuple[str, ...], str]:
    """Path of every key -> the comment lines directly above it, as one text."""
    lines = text.split("\n")

    def above(line: int) -> str:
        first = line
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        return " ".join(comment.strip().removeprefix("# ") for comment in lines[first:line])

    def walk(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield (*path, key.value), above(key.start_mark.line)
                yield from walk(value, (*path, key.value))

    return dict(walk(yaml.compose(text, Loader=yaml.SafeLoader), ()))


def models_below(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The model and every model that one of its fields can hold."""
    models = {model}
    for info in model.model_fields.values():
        for inner in models_within(info.annotation):
            models |= models_below(inner)
    return models


def test_every_key_has_its_meaning_and_its_allowed_values_above_it() -> None:
    by_path = comments(reference(Config()))
    keys = dict(leaves(Config()))
    assert len(keys) > 140
    for path, info in keys.items():
        comment = by_path[path]
        assert comment.startswith(" ".join(info.description.split())), path
        assert f"[{allowed_values(info)}" in comment, (path, comment)


def test_every_field_is_described_in_one_sentence_or_more_and_names_no_none() -> None:
    for model in models_below(Config):
        for name, info in model.model_fields.items():
            description = info.description or ""
            assert 8 <= len(description) <= 260 and "\n" not in description, (model, name, description)
            assert description.endswith((".", ")", "...")), (model, name, description)
            assert "None" not in description, f"{model.__name__}.{name}: a file writes null"


def test_keys_of_items_are_listed_for_lists_of_sections() -> None:
    comment = comments(reference(Config()))["curate", "contamination", "held_out"]
    assert "Keys of an item (HeldOutFile):" in comment and "file: Path, pattern or URL" in comment
    assert "label: Its label. [text, required]" in comments(reference(Whole()))["items",]


def test_the_reference_loads_back_to_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(reference(Config()), encoding="utf-8")
    assert load(tmp_path / "c.yaml", Config) == Config()
    assert differences(Config()) == ""


@pytest.mark.parametrize("name", ["ci", "cluster", "ladder", "sample"])
def test_reference_and_differences_of_a_file_load_back_to_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(ROOT)
    config = read(Path("configs") / f"{name}.yaml")
    written = yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text())
    for text in (reference(config, written=written), differences(config, written=written)):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        again = load(tmp_path / "c.yaml", Config) if text else Config()
        assert again == config


def test_a_changed_key_names_its_default_and_only_changed_keys_are_differences() -> None:
    config = Whole(inner=Inner(count=9), texts=("b # c",), items=(Item(label="x"),))
    assert "[integer >= 1; default: 7]" in comments(reference(config))["inner", "count"]
    assert "default" not in comments(reference(config))["inner", "name"]
    assert differences(config) == (
        "inner:\n  count: 9  # default: 7\ntexts: ['b # c']  # default: [a]\n# default: []\nitems:\n  - label: x\n    weight: 1.0"
    )


def test_a_key_is_a_difference_if_naming_its_section_would_change_it() -> None:
    assert differences(Whole(inner=Inner(count=7, name="x"))) == "inner:\n  count: 7  # default\n  name: x  # default: null"


def test_a_value_is_printed_as_in_its_file() -> None:
    config = Whole(texts=("shop@1a2b",), inner=Inner(count=1))
    assert differences(config, written={"texts": ["shop.yaml"]}) == ("inner:\n  count: 1  # default: 7\ntexts: [shop.yaml]  # default: [a]")
    assert "texts: [shop.yaml]" in reference(config, written={"texts": ["shop.yaml"], "inner": {"count": 1}})


@settings(max_examples=20, deadline=None)
@given(
    st.builds(
        Whole,
        inner=st.builds(Inner, count=st.integers(1, 9), name=st.none() | st.text()),
        texts=st.lists(st.text(), max_size=3).map(tuple),
        quotas=st.dictionaries(st.text(min_size=1), st.integers(), max_size=3),
        items=st.lists(st.builds(Item, label=st.text(), weight=st.floats(1e-9, 1e9)), max_size=2).map(tuple),
        folder=st.just(Path("z")),
    )
)
@example(Whole(texts=("\x85", "\u2028"), items=(Item(label="\u2029"),)))
@example(Whole(texts=("\n\U00010000", "\n\\ud800\\udc00")))
@example(Whole(inner=Inner(count=1, name="\xa0")))
def test_both_texts_load_back_for_all_values(config: Whole) -> None:
    assert Whole.model_validate(yaml.safe_load(reference(config))) == config
    assert Whole.model_validate(yaml.safe_load(differences(config)) or {}) == config


class Typed(BaseModel):
    whole: int = Field(1, ge=1, le=9)
    least: int = Field(1, ge=1)
    share: float = Field(0.5, gt=0, lt=1)
    maybe: float | None = Field(None, gt=0)
    flag: bool = False
    choice: Literal["a", "b"] = "a"
    pair: tuple[float, float] = (0.0, 0.0)
    names: tuple[str, ...] = Field((), min_length=1)
    engine: str | None = Field(None, pattern="^hf:")
    quotas: dict[str, Annotated[int, Field(ge=0)]] = {}
    folder: Path | None = None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("whole", "integer 1 to 9"),
        ("least", "integer >= 1"),
        ("share", "number > 0, < 1"),
        ("maybe", "number > 0 or null"),
        ("flag", "true or false"),
        ("choice", "a | b"),
        ("pair", "list of 2: number, number"),
        ("names", "list of text, length >= 1"),
        ("engine", "text like ^hf: or null"),
        ("quotas", "mapping of text to integer >= 0"),
        ("folder", "path or null"),
    ],
)
def test_allowed_values_in_words(name: str, says: str) -> None:
    assert allowed_values(Typed.model_fields[name]) == says


def test_the_range_in_the_reference_is_the_accepted_range() -> None:
    """Negative control: values one step outside the range are refused."""
    assert allowed_values(NearConfig.model_fields["bands"]) == "integer 1 to 64"
    for bands in (1, 64):
        NearConfig(bands=bands)
    for bands in (0, 65):
        with pytest.raises(ValueError, match="bands"):
            NearConfig(bands=bands)
