"""What a shop holds before anybody touches it: products, orders, users, drawn from a seed.

One idea: the immutable part of a shop (`Shop`) is made once a seed and cached, so that `reset` of a world costs next to nothing;
what acts change lies in the world as a small overlay. Identifiers (`o17`, `u07`, `p23`) run over a fixed range in every seed, but which
product is what, and who ordered it, differs from seed to seed: nothing can be learned by heart.

Numbers: 10 categories of 10 products (distinct whole-dollar prices) in three of six colours (4, 3, 3 products); 25 users with four
orders each, of four different categories.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, repeat
from types import MappingProxyType
from typing import NamedTuple

from storage.records import Language

Names = MappingProxyType[str, dict[Language, str]]


def _names(*rows: tuple[str, str, str]) -> Names:
    return MappingProxyType({key: {"en": english, "zh": chinese} for key, english, chinese in rows})


CATEGORIES = _names(
    ("backpack", "backpack", "背包"),
    ("chair", "chair", "椅子"),
    ("headphones", "headphones", "耳机"),
    ("jacket", "jacket", "夹克"),
    ("keyboard", "keyboard", "键盘"),
    ("lamp", "lamp", "台灯"),
    ("mug", "mug", "马克杯"),
    ("pillow", "pillow", "枕头"),
    ("umbrella", "umbrella", "雨伞"),
    ("watch", "watch", "手表"),
)
COLOURS = _names(
    ("black", "black", "黑色"),
    ("blue", "blue", "蓝色"),
    ("green", "green", "绿色"),
    ("red", "red", "红色"),
    ("white", "white", "白色"),
    ("yellow", "yellow", "黄色"),
)
STATUSES = _names(
    ("pending", "pending", "待发货"),
    ("shipped", "shipped", "运输中"),
    ("delivered", "delivered", "已送达"),
    ("cancelled", "cancelled", "已取消"),
    ("returned", "returned", "已退货"),
    ("exchanged", "exchanged", "已换货"),
)
PICKS = _names(("cheapest", "cheapest", "最便宜的"), ("dearest", "most expensive", "最贵的"))
PROBLEMS = _names(("damaged", "damaged", "有破损"), ("late", "late", "太晚了"), ("wrong_item", "the wrong item", "发错货"))
SERVICES = _names(
    ("crypto_payment", "pay with bitcoin", "用比特币付款"),
    ("gift_wrap", "gift wrapping", "礼品包装"),
    ("engraving", "engrave a name", "刻字"),
    ("paper_invoice", "a paper invoice", "纸质发票"),
)
WISHES = _names(
    ("arrive_yesterday", "make it arrive yesterday", "让它昨天就到"),
    ("make_it_rain", "make it rain money", "让天上下钱"),
    ("read_my_mind", "read my mind about it", "猜猜我在想什么"),
)
TOPICS = _names(
    ("return_window", "how long returns are accepted", "退货期限"),
    ("shipping_fee", "the shipping fee", "运费"),
    ("opening_time", "when support opens", "客服上班时间"),
)

CATEGORY_KEYS, COLOUR_KEYS = tuple(CATEGORIES), tuple(COLOURS)
PRODUCTS = tuple(f"p{index:02d}" for index in range(100))
ORDERS = tuple(f"o{index:02d}" for index in range(100))
USERS = tuple(f"u{index:02d}" for index in range(25))

_STOCKS = bytes((0, 0, 1, 2, 3, 4, 5, 6)[draw % 8] for draw in range(256))
_GAPS = bytes(1 + draw % 9 for draw in range(256))
"""A random byte as the stock of a product, and as the dollars from one product's price to the next one's."""
_RANKS = bytes(draw % 10 for draw in range(256))
_ORDER_STATUSES = ("pending", "pending", "pending", "delivered", "delivered", "delivered", "shipped", "shipped")


def _layouts() -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[int, ...], ...]]:
    """256 ways to colour the ten products of a category, and 256 ways in which a user's four orders fall on categories."""
    rng = random.Random(20240229)
    colourings, baskets = [], []
    for _ in range(256):
        first, second, third = rng.sample(COLOUR_KEYS, 3)
        colouring = [first] * 4 + [second] * 3 + [third] * 3
        rng.shuffle(colouring)
        colourings.append(tuple(colouring))
        baskets.append(tuple(rng.sample(range(len(CATEGORY_KEYS)), 4)))
    return tuple(colourings), tuple(baskets)


_COLOURINGS, _BASKETS = _layouts()


class Product(NamedTuple):
    id: str
    category: str
    colour: str
    price: int
    stock: int


class Order(NamedTuple):
    id: str
    user: str
    product: str
    status: str


@dataclass(frozen=True, slots=True)
class Shop:
    """products and orders by id; `shelves`: products of a category by rising price; `baskets`: orders of a user by id."""

    products: dict[str, Product]
    shelves: dict[str, tuple[Product, ...]]
    orders: dict[str, Order]
    baskets: dict[str, tuple[Order, ...]]


def _permuted(names: tuple[str, ...], keys: bytes) -> list[str]:
    """The names in the order of random two-byte keys."""
    return [name for _, _, name in sorted(zip(keys[::2], keys[1::2], names, strict=True))]


@lru_cache(maxsize=256)
def open_shop(seed: int) -> Shop:
    """The shop of `seed`: equal in every process."""
    rng = random.Random(seed)
    product_ids, order_ids = _permuted(PRODUCTS, rng.randbytes(200)), _permuted(ORDERS, rng.randbytes(200))
    gaps = rng.randbytes(100).translate(_GAPS)
    stocks, layouts, ranks = rng.randbytes(100).translate(_STOCKS), rng.randbytes(35), rng.randbytes(100).translate(_RANKS)
    statuses = [_ORDER_STATUSES[draw % 8] for draw in rng.randbytes(100)]
    shelves: dict[str, tuple[Product, ...]] = {}
    for index, category in enumerate(CATEGORY_KEYS):
        shelf = slice(10 * index, 10 * index + 10)
        colours = _COLOURINGS[layouts[index]]
        shelves[category] = tuple(map(Product, product_ids[shelf], repeat(category), colours, accumulate(gaps[shelf]), stocks[shelf]))
    baskets: dict[str, tuple[Order, ...]] = {}
    for index, user in enumerate(USERS):
        basket = slice(4 * index, 4 * index + 4)
        places = zip(_BASKETS[layouts[10 + index]], ranks[basket], strict=True)
        products = [shelves[CATEGORY_KEYS[category]][rank].id for category, rank in places]
        baskets[user] = tuple(map(Order, sorted(order_ids[basket]), repeat(user), products, statuses[basket]))
    return Shop(
        products={product.id: product for shelf in shelves.values() for product in shelf},
        shelves=shelves,
        orders={order.id: order for basket in baskets.values() for order in basket},
        baskets=baskets,
    )
