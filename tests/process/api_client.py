"""The API as a program asks it: JSON out, JSON back, with or without a token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.process.http_client import HttpAnswer, Where, connect, parse, read_all

PREFIX = "/api/v1"
JSON = {"Content-Type": "application/json"}


class Told(NamedTuple):
    """Status, what the JSON says, and the answer itself."""

    status: int
    document: Any
    answer: HttpAnswer


class ApiClient:
    """Asks one node, as one caller."""

    def __init__(self, where: Where, token: str = "") -> None:
        self._where = where
        self._token = token

    def get(self, path: str, **query: object) -> Told:
        """Ask for something; true and false as JSON has them."""
        words = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
        }
        return self.send("GET", path + (f"?{urlencode(words)}" if words else ""))

    def change(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Told:
        """Change something."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.send(method, path, content, JSON)

    def send(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
    ) -> Told:
        """Send just that."""
        lines = [f"{method} {PREFIX}{path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        if self._token:
            lines.append(f"Authorization: Bearer {self._token}")
        if content or method != "GET":
            lines.append(f"Content-Length: {len(content)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        with connect(self._where) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
            answer = parse(read_all(connection))
        kind = answer.headers.get("content-type", "")
        document = json.loads(answer.body) if "json" in kind and answer.body else None
        return Told(answer.status, document, answer)


def there(where: Where | Path) -> bool:
    """Whether the node answers HTTP."""
    try:
        return ApiClient(where).send("GET", "/openapi.json").status in (200, 401)
    except OSError:
        return False
