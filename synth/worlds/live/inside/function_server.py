"""Python functions as an MCP server: `python function_server.py MODULE:OBJECT [SEED]`.

OBJECT is a class (its public methods are tools, one instance is the state), an instance, or left out: the public functions of the module,
whose module-level values are the state. Type hints give the schemas, docstrings the descriptions (Google, NumPy or reST style).
Three more tools serve the host and are never offered: the state as JSON, a snapshot of it (pickled), and its restoring.
It needs pydantic, and docstring_parser for the descriptions of parameters.
"""

import base64
import dataclasses
import datetime
import importlib
import inspect
import json
import os
import pickle
import random
import sys
import types
import typing

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stdio_server import ToolFailed, serve

STATE, SNAPSHOT, RESTORE = "_headrace_state", "_headrace_snapshot", "_headrace_restore"


class Toolbox:
    """The functions of an object or module, and its state."""

    def __init__(self, name, seed):
        module_name, _, object_name = name.partition(":")
        random.seed(seed)
        module = importlib.import_module(module_name)
        target = module
        for part in filter(None, object_name.split(".")):
            target = getattr(target, part)
        if inspect.isclass(target):
            takes_seed = "seed" in inspect.signature(target).parameters
            target = target(seed=seed) if takes_seed else target()
        self.target, self.is_module = target, inspect.ismodule(target)
        self.functions = {name: function for name, function in self._public() if callable(function)}
        self.models = {name: model_of(name, function) for name, function in self.functions.items()}

    def _public(self):
        if self.is_module:
            names = getattr(self.target, "__all__", None) or [name for name in vars(self.target) if not name.startswith("_")]
            for name in names:
                value = getattr(self.target, name)
                if inspect.isfunction(value) and value.__module__ == self.target.__name__:
                    yield name, value
            return
        for name in dir(type(self.target)):
            if not name.startswith("_") and inspect.isroutine(getattr(type(self.target), name)):
                yield name, getattr(self.target, name)

    def tools(self):
        own = [{"name": name, "description": "For the host.", "inputSchema": {"type": "object"}} for name in (STATE, SNAPSHOT, RESTORE)]
        return [tool_of(name, function, self.models[name]) for name, function in sorted(self.functions.items())] + own

    def call(self, name, arguments):
        if name == STATE:
            return {key: as_json(value) for key, value in self.values().items()}
        if name == SNAPSHOT:
            return base64.b64encode(pickle.dumps((self.values(), random.getstate()))).decode()
        if name == RESTORE:
            return self.restore(base64.b64decode(arguments["data"]))
        if name not in self.functions:
            raise ToolFailed("no such tool")
        import pydantic

        try:
            checked = self.models[name].model_validate(arguments)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise ToolFailed(".".join(map(str, first["loc"])) + ": " + first["msg"]) from None
        values = {field: getattr(checked, field) for field in type(checked).model_fields}
        result = self.functions[name](**values)
        return as_json(result)

    def values(self):
        if self.is_module:
            kinds = (dict, list, set, str, int, float, bool, type(None), tuple)
            return {name: value for name, value in vars(self.target).items() if not name.startswith("__") and isinstance(value, kinds)}
        return dict(vars(self.target))

    def restore(self, data):
        values, state = pickle.loads(data)
        random.setstate(state)
        holder = vars(self.target)
        for name in self.values():
            if name not in values:
                del holder[name]
        for name, value in values.items():
            setattr(self.target, name, value)
        return "restored"


def model_of(name, function):
    """A pydantic model of the function's parameters."""
    import pydantic

    try:
        hints = typing.get_type_hints(function)
    except Exception:
        hints = {}
    fields = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name == "self":
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, typing.Any), default)
    return pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def tool_of(name, function, model):
    schema = model.model_json_schema()
    documented = inspect.getdoc(function) or ""
    text, parameters = documented, {}
    try:
        import docstring_parser

        parsed = docstring_parser.parse(documented)
        text = " ".join(filter(None, (parsed.short_description, parsed.long_description)))
        parameters = {each.arg_name: each.description for each in parsed.params if each.description}
    except ImportError:
        pass
    for key, inner in schema.get("properties", {}).items():
        inner.pop("title", None)
        if key in parameters:
            inner["description"] = parameters[key]
    schema.pop("title", None)
    return {"name": name, "description": " ".join(text.split()), "inputSchema": schema}


def as_json(value):
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted((as_json(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return str(value)
    if hasattr(value, "__dict__"):
        return {name: as_json(inner) for name, inner in vars(value).items()}
    return str(value)


def main():
    toolbox = Toolbox(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    serve(sys.argv[1], toolbox.tools(), toolbox.call, inspect.getdoc(toolbox.target) or "" if toolbox.is_module else "")


if __name__ == "__main__":
    main()
