"""The eight tools of the shop: OpenAI signatures, and the check of arguments that every call passes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.records import JSON, Tool
from synth.worlds.retail.data import CATEGORY_KEYS, COLOUR_KEYS, ORDERS, PRODUCTS, USERS

DEFAULT_LIMIT, MAX_LIMIT = 2, 4
MAX_QUANTITY = 3
REASONS = ("shipped", "damaged", "late", "wrong_item", "callback")
"""Why a case goes to a person: the first for orders that are on their way, the last for a user who wants to be called."""


def _identifier(letter: str, what: str) -> dict[str, JSON]:
    return {"type": "string", "pattern": rf"^{letter}\d\d$", "description": what, "x-grounded": True}


_ORDER, _USER, _PRODUCT = _identifier("o", "order id"), _identifier("u", "user id"), _identifier("p", "product id")


def _tool(name: str, description: str, properties: dict[str, JSON], required: tuple[str, ...], *, changes_state: bool = False) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        server="shop",
        domain="retail",
        world="retail",
        changes_state=changes_state,
    )


TOOLS: tuple[Tool, ...] = (
    _tool(
        "search_products",
        "Products of a category with price in dollars and stock, sorted by price.",
        {
            "category": {"type": "string", "enum": list(CATEGORY_KEYS)},
            "colour": {"type": "string", "enum": list(COLOUR_KEYS)},
            "sort": {"type": "string", "enum": ["price_asc", "price_desc"], "default": "price_asc"},
            "in_stock": {"type": "boolean", "default": False, "description": "only products that can be bought now"},
            "max_price": {"type": "number", "minimum": 0, "description": "in dollars, inclusive", "x-grounded": True},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        },
        ("category",),
    ),
    _tool("get_order", "An order's status, user, product, category and price.", {"order": _ORDER}, ("order",)),
    _tool("list_orders", "All orders of a user with status, product and category.", {"user": _USER}, ("user",)),
    _tool("cancel_order", "Cancels a pending order.", {"order": _ORDER}, ("order",), changes_state=True),
    _tool("return_order", "Returns a delivered order for a refund.", {"order": _ORDER}, ("order",), changes_state=True),
    _tool(
        "exchange_order",
        "Exchanges the item of a delivered order for another product of the same category that is in stock.",
        {"order": _ORDER, "product": _PRODUCT},
        ("order", "product"),
        changes_state=True,
    ),
    _tool(
        "buy",
        "Buys a product that is in stock for a user.",
        {
            "user": _USER,
            "product": _PRODUCT,
            "quantity": {"type": "integer", "minimum": 1, "maximum": MAX_QUANTITY, "default": 1, "x-grounded": True},
        },
        ("user", "product"),
        changes_state=True,
    ),
    _tool(
        "escalate",
        "Hands a case to a person: a shipped order that shall be changed, a problem with an order, or a user who wants a call back. "
        "Takes an order or a user, not both.",
        {"order": _ORDER, "user": _USER, "reason": {"type": "string", "enum": list(REASONS)}},
        ("reason",),
        changes_state=True,
    ),
)

_IDS: dict[str, frozenset[str]] = {"order": frozenset(ORDERS), "user": frozenset(USERS), "product": frozenset(PRODUCTS)}
_CHOICES: dict[str, dict[str, frozenset[str]]] = {
    tool.name: {
        name: _IDS[name] if name in _IDS else frozenset(schema["enum"])
        for name, schema in tool.parameters["properties"].items()
        if name in _IDS or "enum" in schema
    }
    for tool in TOOLS
}
_NUMBERS: dict[str, dict[str, dict[str, Any]]] = {
    tool.name: {
        name: schema for name, schema in tool.parameters["properties"].items() if schema["type"] in ("integer", "number", "boolean")
    }
    for tool in TOOLS
}
_REQUIRED: dict[str, tuple[str, ...]] = {tool.name: tuple(tool.parameters["required"]) for tool in TOOLS}


def _number_error(name: str, value: JSON, schema: Mapping[str, Any]) -> str | None:
    if schema["type"] == "boolean":
        return None if isinstance(value, bool) else f"{name} must be true or false"
    if isinstance(value, bool) or not isinstance(value, int if schema["type"] == "integer" else (int, float)):
        return f"{name} must be {'a whole' if schema['type'] == 'integer' else 'a'} number"
    if not schema["minimum"] <= value <= schema.get("maximum", 1e9):
        return f"{name} is out of range"
    return None


def argument_error(tool: str, arguments: Mapping[str, JSON]) -> str | None:
    """What is wrong with the arguments of a known tool, or None. Never repeats what the caller made up: observations are evidence."""
    choices, numbers = _CHOICES[tool], _NUMBERS[tool]
    for name in _REQUIRED[tool]:
        if name not in arguments:
            return f"{name} is missing"
    for name, value in arguments.items():
        allowed = choices.get(name)
        if allowed is not None:
            if not isinstance(value, str) or value not in allowed:
                return f"no such {name}"
        elif name in numbers:
            error = _number_error(name, value, numbers[name])
            if error is not None:
                return error
        else:
            return "unknown argument"
    if tool == "escalate" and ("order" in arguments) == ("user" in arguments):
        return "give an order or a user"
    return None
