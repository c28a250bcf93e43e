"""Python functions as a world, for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal


@dataclass
class Order:
    customer: str
    item: str
    status: str = "open"
    quantity: int = 1


@dataclass
class Shop:
    """A shop with some orders, other ones in every seed."""

    seed: int = 0
    orders: dict[str, Order] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        names = ["ada", "alan", "grace", "tony", "barbara"]
        for number in range(8):
            self.orders[f"o{number + 10}"] = Order(rng.choice(names), rng.choice(["mug", "kettle", "scale"]), quantity=rng.randrange(1, 6))

    def get_order(self, order_id: str) -> dict[str, object]:
        """Get an order.

        Args:
            order_id: Id of the order.
        """
        order = self._order(order_id)
        return {"order_id": order_id, "customer": order.customer, "item": order.item, "status": order.status, "quantity": order.quantity}

    def list_orders(self) -> list[str]:
        """List the ids of all orders."""
        return sorted(self.orders)

    def set_status(self, order_id: str, status: Literal["open", "packed", "sent"]) -> str:
        """Set the status of an order.

        Args:
            order_id: Id of the order.
            status: Its new status.
        """
        self._order(order_id).status = status
        return "done"

    def set_quantity(self, order_id: str, quantity: int) -> str:
        """Set the quantity of an order."""
        if quantity < 1:
            raise ValueError("the quantity must be at least 1")
        self._order(order_id).quantity = quantity
        return "done"

    def _order(self, order_id: str) -> Order:
        if order_id not in self.orders:
            raise KeyError(f"no order {order_id}")
        return self.orders[order_id]
