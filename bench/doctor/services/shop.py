"""A shop in Flask: products in SQLite, what was seen last in Redis, a session in a signed cookie. For gunicorn: `shop:app`."""

import os
import sqlite3
import tempfile

import redis
from flask import Flask, g, jsonify, render_template_string, session

PRODUCTS = 2_000
PAGE = """<!doctype html>
<title>{{ title }}</title>
<h1>{{ title }}</h1>
<ul>
{% for product in products %}
  <li><a href="{{ url_for('product', number=product['number']) }}">{{ product['name']|title }}</a> {{ '%0.2f'|format(product['cents'] / 100) }}</li>
{% endfor %}
</ul>
<p>Visits: {{ visits }}</p>
"""

app = Flask(__name__)
app.secret_key = "of a bench"
cache = redis.Redis(port=int(os.environ["REDIS_PORT"]))
FOLDER = tempfile.TemporaryDirectory(prefix="slip-shop.")
DATABASE = os.path.join(FOLDER.name, "shop.sqlite")


def fill():
    with sqlite3.connect(DATABASE) as database:
        database.execute("CREATE TABLE product (number INTEGER PRIMARY KEY, name TEXT, cents INTEGER, shelf INTEGER)")
        rows = ((number, f"product {number}", 100 + number * 37 % 9_900, number % 50) for number in range(PRODUCTS))
        database.executemany("INSERT INTO product VALUES (?, ?, ?, ?)", rows)


fill()


def database():
    if "database" not in g:
        g.database = sqlite3.connect(DATABASE)
        g.database.row_factory = sqlite3.Row
    return g.database


@app.teardown_appcontext
def close(_error):
    if "database" in g:
        g.database.close()


@app.route("/")
def index():
    session["visits"] = session.get("visits", 0) + 1
    products = database().execute("SELECT * FROM product WHERE shelf = ? ORDER BY name", (session["visits"] % 50,)).fetchall()
    return render_template_string(PAGE, title="Shop", products=products, visits=cache.incr("visits"))


@app.route("/product/<int:number>")
def product(number):
    found = database().execute("SELECT * FROM product WHERE number = ?", (number,)).fetchone()
    seen = cache.hincrby("seen", str(number))
    cache.lpush("last", number)
    cache.ltrim("last", 0, 9)
    last = [int(other) for other in cache.lrange("last", 0, 9)]
    return jsonify(name=found["name"], cents=found["cents"], seen=seen, last=last)
