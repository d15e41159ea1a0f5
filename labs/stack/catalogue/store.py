"""Reads the catalogue from SQLite."""

import sqlite3
import threading

RELATED_PRODUCTS = 6


class Store:
    """The database, opened once per thread, because SQLite connections must not be shared between threads."""

    def __init__(self, path):
        self.path = path
        self.local = threading.local()

    def connection(self):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
            connection.row_factory = sqlite3.Row
            self.local.connection = connection
        return connection

    def rows(self, sql, *parameters):
        return [dict(row) for row in self.connection().execute(sql, parameters)]

    def row(self, sql, *parameters):
        row = self.connection().execute(sql, parameters).fetchone()
        return dict(row) if row else None

    def product_count(self):
        return self.row("SELECT COUNT(*) AS n FROM product")["n"]

    def categories(self):
        return self.rows(
            """SELECT category.slug, category.name, COUNT(*) AS products, MIN(product.price_cents) AS from_cents
               FROM category JOIN product ON product.category_id = category.id
               GROUP BY category.id ORDER BY category.name"""
        )

    def category(self, slug):
        return self.row("SELECT id, slug, name FROM category WHERE slug = ?", slug)

    def products(self, category_id, limit, offset):
        """Products with their mean rating; of all categories if ``category_id`` is None."""
        return self.rows(
            """SELECT product.id, product.name, product.price_cents, product.stock, product.weight_g,
                      ROUND(AVG(review.stars), 1) AS stars
               FROM product LEFT JOIN review ON review.product_id = product.id
               WHERE ?1 IS NULL OR product.category_id = ?1
               GROUP BY product.id ORDER BY product.id LIMIT ?2 OFFSET ?3""",
            category_id,
            limit,
            offset,
        )

    def products_by_id(self, ids):
        marks = ",".join("?" * len(ids))
        return self.rows(f"SELECT id, name, price_cents, weight_g FROM product WHERE id IN ({marks}) ORDER BY id", *ids)

    def product(self, product_id):
        return self.row(
            """SELECT product.*, category.name AS category, category.slug AS category_slug
               FROM product JOIN category ON category.id = product.category_id WHERE product.id = ?""",
            product_id,
        )

    def related(self, product):
        """Products of the same category whose price is nearest."""
        return self.rows(
            """SELECT id, name, price_cents FROM product WHERE category_id = ? AND id <> ?
               ORDER BY ABS(price_cents - ?) LIMIT ?""",
            product["category_id"],
            product["id"],
            product["price_cents"],
            RELATED_PRODUCTS,
        )

    def reviews(self, product_id):
        return self.rows("SELECT author, stars, text FROM review WHERE product_id = ? ORDER BY id", product_id)
