"""Builds the wheel ``ledgermq``, pure Python, whose extras bring the other distributions."""

from __future__ import annotations

import runpy

from setuptools import setup

shared = runpy.run_path("../../setup.py")
needs, same = shared["needs"], shared["same_version"]

setup(
    version=shared["version"](),
    install_requires=["pyzmq>=25"],
    extras_require={
        "server": [same("ledgermq-node"), same("ledgermq-web")],
        "spark": [same("ledgermq-spark")],
        **{
            name: [same(f"ledgermq-node[{name}]")]
            for name in ("grpc", "buckets", "buckets-google", "buckets-azure", "rocksdb")
        },
        **{name: [same(f"ledgermq-spark[{name}]")] for name in ("iceberg", "iceberg-postgresql")},
        **{name: needs(f"{name}.txt") for name in ("compression", "otel", "schemas")},
    },
)
