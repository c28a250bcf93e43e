"""A tree as a YAML file that people edit: written in a stable order, read back whole or refused with the line and the node.

Every scalar is text: `on`, `1.0` and `~` stay as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from filters.taxonomy.tree import Node, Tree, tree_of
from storage.errors import BadInput

MAX_BYTES = 16 << 20
_HEADER = """\
# Taxonomy of queries, {id}. Edit it and read it back: headrace taxonomy import FILE --store DIR
#
# A node's key is its path from the top class: lower-case words joined by _, levels parted by dots; its parent must be there too.
#   name, description   for people; a leaf without examples is known by its description
#   examples            texts that belong to this leaf; some ten in every language of your queries are good
#   cues                words or phrases that speak for this leaf wherever they stand
#   intents             intents of worlds (world/intent): a query grounded to one of them has this leaf
# Only leaves have examples, cues and intents. Rows that fit no child of a node are labelled `other` below it: never list that.
"""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS, _LISTS = ("name", "description"), ("examples", "cues", "intents")


class _Dumper(yaml.SafeDumper):
    """Escapes what does not print: YAML takes some of it for line breaks."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def dump(tree: Tree) -> str:
    """The YAML text of a tree."""
    nodes = {node.id: {key: value for key, value in node.model_dump(mode="json", exclude={"id"}).items() if value} for node in tree.nodes}
    return _HEADER.format(id=tree.id) + yaml.dump({"nodes": nodes}, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)


def load(path: Path) -> Tree:
    """The tree in a file.

    Raises:
        BadInput: the file cannot be read, is no YAML, or its nodes make no tree.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES >> 20} MiB; a taxonomy is smaller")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    return parse(text, str(path))


def parse(text: str, where: str = "taxonomy") -> Tree:
    """The tree in a YAML text; `where` names it in errors.

    Raises:
        BadInput: see `load`.
    """
    try:
        root = yaml.compose(text, Loader=_LOADER)
        top = dict(_entries(root, where))
        if list(top) != ["nodes"]:
            raise BadInput(f"{where}: the one key at the top is `nodes`, this has {', '.join(top) or 'none'}")
        nodes = [_node(name, value, where) for name, value in _entries(top["nodes"], where)]
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply, or a part of itself") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BadInput(f"{where}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    return tree_of(nodes, where)


def _entries(node: yaml.Node | None, where: str) -> Iterator[tuple[str, yaml.Node]]:
    """Key and value of a mapping's entries; nothing for an empty one."""
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        return
    if not isinstance(node, yaml.MappingNode):
        raise BadInput(f"{_at(where, node)}: keys with values are wanted here")
    ids: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise BadInput(f"{_at(where, key)}: a key is plain text")
        if key.value in ids:
            raise BadInput(f"{_at(where, key)}: the key {key.value!r} is given twice; keep one")
        ids.add(key.value)
        yield key.value, value


def _node(name: str, value: yaml.Node, where: str) -> Node:
    fields: dict[str, str | tuple[str, ...]] = {}
    for key, given in _entries(value, where):
        if key in _TEXTS:
            fields[key] = _text(given, where, name, key)
        elif key in _LISTS:
            if not isinstance(given, yaml.SequenceNode):
                raise BadInput(f"{_at(where, given)}: {name}: {key} is a list, a text a line after `- `")
            fields[key] = tuple(_text(item, where, name, key) for item in given.value)
        else:
            raise BadInput(f"{_at(where, given)}: {name}: there is no key {key!r}; a node has {', '.join((*_TEXTS, *_LISTS))}")
    return Node.model_validate({"id": name, **fields})


def _text(node: yaml.Node, where: str, name: str, key: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise BadInput(f"{_at(where, node)}: {name}: {key} holds something that is no text; put it in quotes")
    return str(node.value)


def _at(where: str, node: yaml.Node) -> str:
    return f"{where}:{node.start_mark.line + 1}"
