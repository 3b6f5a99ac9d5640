"""Kernels in C, each with its plain Python: scans, stamps, hashes, columns."""
