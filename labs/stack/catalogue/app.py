"""The WSGI application: routes, handlers, and the conversion of their results into responses."""

import json
import os
import re
import time
from urllib.parse import parse_qs

from . import pages, pricing
from .cache import Cache
from .store import Store

PRODUCTS_PER_PAGE = 24
LONGEST_WAIT_MS = 60_000
#: Visitors of /basket are told apart by a number; the load generator draws from as many.
VISITORS = 1_000


class NotFound(Exception):
    """Raised by a handler whose subject does not exist."""


class Request:
    """What a handler needs to know of the request."""

    def __init__(self, environ):
        self.method = environ["REQUEST_METHOD"]
        self.path = environ.get("PATH_INFO", "/")
        self.query = parse_qs(environ.get("QUERY_STRING", ""))

    def number(self, name, default, lowest, highest):
        """An integer from the query, forced into its range; the default if it is absent or not a number."""
        try:
            value = int(self.query[name][0])
        except (KeyError, ValueError):
            value = default
        return min(max(value, lowest), highest)


class Application:
    """Maps paths to handlers. One per worker process: connections are opened after the fork, at the first request."""

    def __init__(self, database, redis_port):
        self.store = Store(database)
        self.cache = Cache(redis_port)
        self.renderer = pages.Renderer()
        self.routes = [
            (re.compile(r"/"), self.home),
            (re.compile(r"/category/(?P<slug>[a-z-]+)"), self.category),
            (re.compile(r"/product/(?P<product_id>\d+)"), self.product),
            (re.compile(r"/basket"), self.basket),
            (re.compile(r"/api/products"), self.api_products),
            (re.compile(r"/quote"), self.quote),
            (re.compile(r"/wait"), self.wait),
            (re.compile(r"/health"), self.health),
        ]

    def __call__(self, environ, start_response):
        status, content_type, body = self.respond(Request(environ))
        start_response(status, [("Content-Type", content_type), ("Content-Length", str(len(body)))])
        return [body]

    def respond(self, request):
        """Runs the handler; text becomes HTML, everything else JSON."""
        try:
            result = self.dispatch(request)
        except NotFound as missing:
            return "404 Not Found", "text/plain; charset=utf-8", f"not found: {missing}\n".encode()
        if isinstance(result, str):
            return "200 OK", "text/html; charset=utf-8", result.encode()
        return "200 OK", "application/json", json.dumps(result, separators=(",", ":")).encode()

    def dispatch(self, request):
        for pattern, handler in self.routes:
            match = pattern.fullmatch(request.path)
            if match:
                return handler(request, **match.groupdict())
        raise NotFound(request.path)

    # Handlers, in the order of the routes.

    def home(self, request):
        """All categories with their number of products and cheapest offer."""
        return self.renderer.render("home.html", categories=self.store.categories())

    def category(self, request, slug):
        """One page of products: read from SQLite and rendered anew each time."""
        category = self.store.category(slug)
        if category is None:
            raise NotFound(slug)
        page = request.number("page", 1, 1, 1_000)
        products = self.store.products(category["id"], PRODUCTS_PER_PAGE, (page - 1) * PRODUCTS_PER_PAGE)
        visits = self.cache.count_visit("category:" + slug)
        return self.renderer.render("category.html", category=category, products=products, page=page, visits=visits)

    def product(self, request, product_id):
        """A product and what is bought with it; both through the cache."""
        product = self.cache.remember("product:" + product_id, lambda: self.load_product(int(product_id)))
        if product is None:
            raise NotFound("product " + product_id)
        return self.renderer.render("product.html", **product)

    def load_product(self, product_id):
        product = self.store.product(product_id)
        if product is None:
            return None
        return {"product": product, "related": self.store.related(product), "reviews": self.store.reviews(product_id)}

    def basket(self, request):
        """Puts a product into the visitor's basket (Redis) and prices what is in it."""
        visitor = request.number("visitor", 1, 1, VISITORS)
        added = request.number("add", 1, 1, self.store.product_count())
        lines = self.cache.add_to_basket(visitor, added)
        products = self.store.products_by_id(list(lines))
        return pricing.price_basket([(product, lines[product["id"]]) for product in products])

    def api_products(self, request):
        """A long list as JSON: the time goes into building and encoding it."""
        limit = request.number("limit", 200, 1, 1_000)
        return {"products": self.store.products(None, limit, request.number("offset", 0, 0, 100_000))}

    def quote(self, request):
        """Packs an order into boxes: pure computation, no input and no output."""
        return pricing.quote(request.number("items", 30, 1, 200), request.number("seed", 1, 0, 1_000_000))

    def wait(self, request):
        """Waits for something slow elsewhere: here, for the clock."""
        wait_ms = request.number("ms", 20, 0, LONGEST_WAIT_MS)
        time.sleep(wait_ms / 1000)
        return {"waited_ms": wait_ms}

    def health(self, request):
        """Says that the service and what it depends on answer."""
        return {"products": self.store.product_count(), "redis": self.cache.ping()}


application = Application(
    os.environ.get("CATALOGUE_DATABASE", "catalogue.sqlite"),
    int(os.environ.get("CATALOGUE_REDIS_PORT", "6379")),
)
