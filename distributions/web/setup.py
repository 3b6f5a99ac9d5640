"""Builds the wheel ``ledgermq-web``, with the operating pages that the console shows."""

from __future__ import annotations

import runpy

from setuptools import setup

shared = runpy.run_path("../../setup.py")

setup(
    version=shared["version"](),
    install_requires=[shared["same_version"]("ledgermq-node"), *shared["needs"]("server.txt")],
    cmdclass={"build_py": shared["CopyDocuments"]},
)
