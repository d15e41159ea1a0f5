"""Redis: results that are expensive to make, counters, baskets."""

import json

import redis

REMEMBER_S = 60
BASKET_S = 3_600
#: A full basket is emptied, so that its price does not grow more expensive with the length of a load run.
BASKET_LINES = 20


class Cache:
    """All keys of the catalogue start with ``catalogue:``."""

    def __init__(self, port):
        self.redis = redis.Redis("127.0.0.1", port, decode_responses=True)

    def ping(self):
        return self.redis.ping()

    def remember(self, key, make):
        """The value of a key, made and kept for a minute if Redis does not have it. None is not kept."""
        key = "catalogue:" + key
        text = self.redis.get(key)
        if text is not None:
            return json.loads(text)
        value = make()
        if value is not None:
            self.redis.set(key, json.dumps(value), ex=REMEMBER_S)
        return value

    def count_visit(self, subject):
        return self.redis.incr("catalogue:visits:" + subject)

    def add_to_basket(self, visitor, product_id):
        """Adds one piece and returns ``{product id: pieces}``."""
        key = f"catalogue:basket:{visitor}"
        with self.redis.pipeline() as pipeline:
            pipeline.hincrby(key, str(product_id), 1)
            pipeline.expire(key, BASKET_S)
            pipeline.hgetall(key)
            lines = pipeline.execute()[-1]
        if len(lines) >= BASKET_LINES:
            self.redis.delete(key)
        return {int(product): int(pieces) for product, pieces in lines.items()}
