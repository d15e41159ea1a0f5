"""Renders the templates."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader

TEMPLATES = Path(__file__).parent / "templates"


class Renderer:
    """Compiles each template once per process; afterwards rendering is Python code that jinja2 generated."""

    def __init__(self):
        self.environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, auto_reload=False)
        self.environment.filters["money"] = money
        self.environment.filters["stars"] = stars

    def render(self, template, **values):
        return self.environment.get_template(template).render(**values)


def money(cents):
    """1234567 cents as ``12,345.67``."""
    return f"{cents // 100:,}.{cents % 100:02d}"


def stars(rating):
    """A rating from 0 to 5 as five signs; nothing without ratings."""
    if rating is None:
        return ""
    full = round(rating)
    return "★" * full + "☆" * (5 - full)
