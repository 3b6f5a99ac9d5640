"""Builds the wheel ``ledgermq-spark``."""

from __future__ import annotations

import runpy

from setuptools import setup

shared = runpy.run_path("../../setup.py")
needs, same = shared["needs"], shared["same_version"]

setup(
    version=shared["version"](),
    install_requires=[same("ledgermq-node"), *needs("spark.txt")],
    extras_require={name: needs(f"{name}.txt") for name in ("iceberg", "iceberg-postgresql")},
)
