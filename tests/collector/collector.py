"""The OpenTelemetry Collector: its program is built when it is needed, and tells what it received.

``make check-all`` sets ``LEDGERMQ_COLLECTOR=1``: then it fails where Go is missing, or a module
cannot be fetched; else what needs it is left out. The first build takes minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S

SOURCES = Path(__file__).parent
IS_REQUIRED = os.environ.get("LEDGERMQ_COLLECTOR", "") not in ("", "0")
BUILD_S = 3_600
STOP_S = 30

CONFIG = """
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{receives}"}}
exporters:
  otlp_http:
    endpoint: "http://127.0.0.1:{sends}"
    encoding: json
    compression: none
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [otlp_http]}}
"""

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


class CollectedSpan(NamedTuple):
    """A span as the collector has handed it on."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: list[str]
    events: list[str]
    attributes: dict[str, str]


class Collector:
    """A running collector, and what has come out of it."""

    def __init__(self, endpoint: str, bodies: list[Any]) -> None:
        self._endpoint = endpoint
        self._bodies = bodies

    def provider(self) -> TracerProvider:
        """An application's provider that sends to it; shut it down to have all sent."""
        provider = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=f"{self._endpoint}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider

    def spans(self, trace: str = "") -> list[CollectedSpan]:
        """All, or those of a trace."""
        found = [span for body in list(self._bodies) for span in _spans(body)]
        return [span for span in found if trace in ("", span.trace)]

    def one(self, name: str) -> CollectedSpan:
        """The span of that name, once it has come."""
        wait_until(
            lambda: [span for span in self.spans() if span.name == name], name,
            timeout_s=PATIENCE_S,
        )  # fmt: skip
        (span,) = [span for span in self.spans() if span.name == name]
        return span


def build(folder: Path) -> Path | str:
    """The program, built in ``folder``; or why there is none."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return "no Go here (Debian: apt-get install golang-go; or https://go.dev/dl)"
    program = folder / "collector"
    built = subprocess.run(
        ["nice", "-n", "19", go, "build", "-p", "1", "-o", str(program), "."],
        cwd=SOURCES, capture_output=True, text=True, check=False, timeout=BUILD_S,
    )  # fmt: skip
    if built.returncode:
        return f"the collector cannot be built (tests/collector): {built.stderr.strip()}"
    return program


def built_collector(folder: Path) -> Path:
    """The program; where there is none, or nobody asks for it, the test is left out or fails."""
    if not IS_REQUIRED:
        pytest.skip("set LEDGERMQ_COLLECTOR=1: the OpenTelemetry Collector is built for it")
    made = build(folder)
    if isinstance(made, Path):
        return made
    pytest.fail(made)


@contextmanager
def running_collector(program: Path, folder: Path) -> Iterator[Collector]:
    """The collector, listening; nothing of it is left at the end."""
    bodies: list[Any] = []
    receives = free_port()
    sink = ThreadingHTTPServer(("127.0.0.1", 0), _sink_of(bodies))
    thread = threading.Thread(target=sink.serve_forever)
    thread.start()
    config, said = folder / "collector.yaml", folder / "collector.said"
    config.write_text(CONFIG.format(receives=receives, sends=sink.server_address[1]))
    with said.open("w") as target:
        process = subprocess.Popen(
            [str(program), "--config", f"file:{config}"], stdout=target, stderr=target
        )
    try:
        wait_until(
            lambda: process.poll() is not None or "Everything is ready" in said.read_text(),
            "the collector", timeout_s=PATIENCE_S,
        )  # fmt: skip
        assert process.poll() is None, said.read_text()
        yield Collector(f"http://127.0.0.1:{receives}", bodies)
    finally:
        process.terminate()
        process.wait(STOP_S)
        sink.shutdown()
        thread.join()
        sink.server_close()


def _sink_of(bodies: list[Any]) -> type[BaseHTTPRequestHandler]:
    class Sink(BaseHTTPRequestHandler):
        """Takes what the collector exports."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    return Sink


def _spans(body: Any) -> Iterator[CollectedSpan]:
    for resource in body["resourceSpans"]:
        service = _texts(resource["resource"].get("attributes", [])).get("service.name", "")
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield CollectedSpan(
                    service, span["name"], KINDS[span["kind"]], span["traceId"], span["spanId"],
                    span.get("parentSpanId", ""),
                    [link["spanId"] for link in span.get("links", [])],
                    [event["name"] for event in span.get("events", [])],
                    _texts(span.get("attributes", [])),
                )  # fmt: skip


def _texts(attributes: list[Any]) -> dict[str, str]:
    return {one["key"]: str(next(iter(one["value"].values()), "")) for one in attributes}
