"""A browser without a screen: keeps cookies, fills in forms, follows where it is sent."""

from __future__ import annotations

import re
import ssl
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

from tests.process.http_client import HttpAnswer, connect, parse, read_all

Where = tuple[str, int] | Path

_CHANGE_KEY = re.compile(r'name="change_key" value="([^"]+)"')


class ConsoleClient:
    """One browser at one node.

    Attributes:
        cookies: those that it was given and keeps.
        set_cookies: whole headers of those, the newest last.
    """

    def __init__(self, where: Where, host: str = "127.0.0.1", *, tls: bool = False) -> None:
        self.where = where
        self.host = host
        self.tls = ssl.create_default_context() if tls else None
        if self.tls is not None:
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []

    def get(self, path: str, **headers: str) -> HttpAnswer:
        """Ask for a page."""
        return self._ask("GET", path, b"", headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> HttpAnswer:
        """Send a form."""
        kind = {"content_type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(fields).encode(), {**kind, **headers})

    def change_key(self, path: str = "/") -> str:
        """What a page's forms bring along."""
        found = _CHANGE_KEY.search(self.get(path).text)
        assert found is not None, f"{path} has no form"
        return unescape(found[1])

    def act(self, path: str, act: str, **fields: str) -> HttpAnswer:
        """Fill in a form of a page and send it; the page that comes then."""
        form = {"change_key": self.change_key(path), "act": act, **fields}
        sent = self.post(path, form)
        assert sent.status == 303, sent.text
        return self.get(sent.headers["location"])

    def sign_in(self, **fields: str) -> HttpAnswer:
        """Sign in with ``token``, or with ``user`` and ``secret``."""
        by = "user" if "user" in fields else "token"
        return self.post("/sign-in", {"by": by, "to": "/", **fields})

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", "Connection: close"]
        if self.cookies:
            kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            lines.append(f"Cookie: {kept}")
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with ExitStack() as open_:
            connection = open_.enter_context(connect(self.where))
            if self.tls is not None:
                connection = open_.enter_context(self.tls.wrap_socket(connection))
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            answer = parse(read_all(connection))
        given = answer.headers.get("set-cookie")
        if given is not None:
            self.set_cookies.append(given)
            name, _, value = given.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return answer
