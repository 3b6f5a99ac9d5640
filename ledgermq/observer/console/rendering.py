"""Rendering: templates, how values are written in them, and headers that bound what they may."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

FOLDER = Path(__file__).parent

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing that stands in a page runs, whatever was written into a topic's name or a body."""

HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Rendering:
    """Jinja2 with every value escaped, and no value missing unseen."""

    def __init__(self, version: str) -> None:
        """Compile all of them: a newer version may lie there before this process ends.

        Args:
            version: in the addresses of static files, which are kept by browsers for good.
        """
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals["version"] = version
        self._templates.filters.update(
            number=number_text, bytes=bytes_text, time=time_text, ms=duration_text, ago=ago_text
        )
        self._templates.filters.update(rate=rate_text, spark=spark_points)

        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def page(
        self, template: str, values: Mapping[str, object], status: int = HTTPStatus.OK
    ) -> Response:
        """An HTML page."""
        text = self._templates.get_template(template).render(values)
        return Response(text, status, headers=HEADERS, media_type="text/html; charset=utf-8")


def number_text(value: object) -> str:
    """A count with its thousands apart."""
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def bytes_text(value: object) -> str:
    """An amount of bytes in three or four digits; a text, which says what is known, as it is."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        return "–"
    amount, unit = float(value), 0
    while abs(amount) >= 1_024 and unit < len(_BYTES) - 1:
        amount, unit = amount / 1_024, unit + 1
    return f"{amount:,.0f} B" if not unit else f"{amount:,.1f} {_BYTES[unit]}"


def rate_text(value: object) -> str:
    """A number a second: with a tenth where it is small."""
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.1f}/s" if 0 < value < 10 else f"{value:,.0f}/s"


SPARK_SIZE = 100, 20


def spark_points(values: Sequence[float], count: int) -> str:
    """``values`` as the points of a line in a box of ``SPARK_SIZE``, that ends at its right edge.

    Args:
        count: points of a whole line; a course that began later begins so much further right.
    """
    width, height = SPARK_SIZE
    step, first = width / (count - 1), count - len(values)
    scale = (height - 2) / (max(values, default=0.0) or 1.0)
    return " ".join(
        f"{(first + number) * step:.1f},{height - 1 - value * scale:.1f}"
        for number, value in enumerate(values)
    )


def time_text(value: object) -> str:
    """A moment in epoch milliseconds, in UTC."""
    if not isinstance(value, int) or value < 0:
        return "–"
    try:
        moment = datetime.fromtimestamp(value / 1_000, UTC)
    except (OverflowError, OSError, ValueError):
        # What a client may have written: far from any year.
        return f"{value} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{value % 1_000:03d}"


def duration_text(value: object) -> str:
    """A duration in milliseconds, in the unit that suits it."""
    if not isinstance(value, int | float):
        return "–"
    seconds = value / 1_000
    if seconds < 1:
        return f"{value:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:,.0f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} d"


def ago_text(value: object) -> str:
    """How long ago a moment in epoch milliseconds was."""
    if not isinstance(value, int):
        return "–"
    return duration_text(max(0, time.time_ns() // 1_000_000 - value))
