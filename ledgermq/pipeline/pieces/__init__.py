"""Sealed pieces: stretches of the log as Parquet files that give back its very bytes.

Begin with ``piece_seal.py`` and ``piece_file.py``; the format is docs/formats/piece.md.
"""
