"""Prices, discounts and packing: the part of the catalogue that only computes."""

import random
from itertools import accumulate

#: (from so many cents, percent off)
DISCOUNTS = [(50_000, 10), (20_000, 5), (10_000, 2)]
SHIPPING_CENTS_PER_KG = 180
BOX_CAPACITY_G = 2_000
#: Weights are packed in steps of this size; finer steps make the table larger and the request longer.
STEP_G = 10


def price_basket(lines):
    """Sums up ``(product, pieces)`` lines with discount and shipping."""
    goods_cents = sum(product["price_cents"] * pieces for product, pieces in lines)
    weight_g = sum(product["weight_g"] * pieces for product, pieces in lines)
    discount_cents = goods_cents * discount_percent(goods_cents) // 100
    shipping_cents = -(-weight_g // 1_000) * SHIPPING_CENTS_PER_KG
    return {
        "lines": len(lines),
        "pieces": sum(pieces for _, pieces in lines),
        "goods_cents": goods_cents,
        "discount_cents": discount_cents,
        "shipping_cents": shipping_cents,
        "total_cents": goods_cents - discount_cents + shipping_cents,
    }


def discount_percent(goods_cents):
    return next((percent for threshold, percent in DISCOUNTS if goods_cents >= threshold), 0)


def quote(items, seed):
    """Invents an order of ``items`` pieces and packs it into as valuable boxes as possible."""
    order = invent_order(items, random.Random(seed))
    boxes = []
    while order:
        box = fill_box(order)
        boxes.append(box)
        packed = {piece["number"] for piece in box}
        order = [piece for piece in order if piece["number"] not in packed]
    values = [sum(piece["value_cents"] for piece in box) for box in boxes]
    return {"items": items, "boxes": len(boxes), "values_cents": values, "running_total": list(accumulate(values))}


def invent_order(items, generator):
    return [
        {"number": number, "weight_g": generator.randrange(50, 900), "value_cents": generator.randrange(100, 20_000)}
        for number in range(items)
    ]


def fill_box(pieces):
    """The most valuable subset that one box can carry: a knapsack table, read backwards."""
    capacity = BOX_CAPACITY_G // STEP_G
    table = [[0] * (capacity + 1)]
    for piece in pieces:
        table.append(next_row(table[-1], weight_steps(piece), piece["value_cents"], capacity))
    return chosen_pieces(table, pieces, capacity)


def weight_steps(piece):
    return -(-piece["weight_g"] // STEP_G)


def next_row(above, weight, value, capacity):
    row = above[:]
    for room in range(weight, capacity + 1):
        with_piece = above[room - weight] + value
        if with_piece > row[room]:
            row[room] = with_piece
    return row


def chosen_pieces(table, pieces, room):
    chosen = []
    for index in range(len(pieces), 0, -1):
        if table[index][room] != table[index - 1][room]:
            chosen.append(pieces[index - 1])
            room -= weight_steps(pieces[index - 1])
    return chosen
