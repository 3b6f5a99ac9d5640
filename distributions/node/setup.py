"""Builds the wheel ``ledgermq-node``, with the kernels where there is a compiler."""

from __future__ import annotations

import runpy

from setuptools import setup

shared = runpy.run_path("../../setup.py")
needs, same = shared["needs"], shared["same_version"]

setup(
    version=shared["version"](),
    install_requires=[same("ledgermq"), *needs("server.txt")],
    extras_require={
        name: needs(f"{name}.txt")
        for name in ("grpc", "buckets", "buckets-google", "buckets-azure", "rocksdb")
    },
    ext_modules=shared["kernels"]("../.."),
    cmdclass={"build_ext": shared["BuildKernels"]},
)
