"""A product catalogue behind gunicorn: the Python half of the lab.

One request goes through the modules in this order: ``app`` finds the handler, ``store`` reads SQLite, ``cache`` keeps
results and visitor state in Redis, ``pricing`` computes, ``pages`` renders.
"""
