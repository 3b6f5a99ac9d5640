"""Paths in the runtime directory: files and sockets of one running node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """Files and sockets of one running node, all in ``listen.runtime_dir``."""

    directory: Path

    @property
    def cursors(self) -> Path:
        """The cursor page."""
        return self.directory / "cursors"

    @property
    def append_ring(self) -> Path:
        """The ring through which raft hands entries to the writer."""
        return self.directory / "append-ring"

    @property
    def run_fence(self) -> Path:
        """The file whose lock is the fence between raft and a writer that commits by itself."""
        return self.directory / "run.lock"

    @property
    def control(self) -> Path:
        """The supervisor's control socket."""
        return self.directory / "control.sock"

    @property
    def raft_control(self) -> Path:
        """The raft process's control socket."""
        return self.directory / "raft.sock"

    @property
    def produce(self) -> Path:
        """The writer's socket for producers."""
        return self.directory / "produce"

    @property
    def produce_stream(self) -> Path:
        """The writer's socket for producers of this machine, without ZeroMQ."""
        return self.directory / "produce.sock"

    @property
    def consume(self) -> Path:
        """The broker's socket for consumers."""
        return self.directory / "consume"

    @property
    def ports(self) -> Path:
        """The broker's socket for port processes."""
        return self.directory / "ports.sock"

    @property
    def http(self) -> Path:
        """The observer's socket for HTTP, with ``listen.http = "unix"``."""
        return self.directory / "http.sock"

    @property
    def grpc(self) -> Path:
        """The socket behind the port of gRPC clients, for its process alone."""
        return self.directory / "grpc.sock"

    @property
    def cold(self) -> Path:
        """The socket at which the broker and port processes ask for what was sealed."""
        return self.directory / "cold"

    @property
    def damage(self) -> Path:
        """What of the log is damaged now, as the raft process knows it; JSON."""
        return self.directory / "damage"

    @property
    def levels(self) -> Path:
        """Which feature level each member knows, as the raft process has heard; JSON."""
        return self.directory / "levels"

    @property
    def mirror(self) -> Path:
        """How far a mirror is behind its source, as its raft process knows it; JSON."""
        return self.directory / "mirror"
