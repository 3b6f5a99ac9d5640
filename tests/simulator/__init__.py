"""The simulator: a whole group in one process, one seed a run (docs/simulation.md).

Workers are the real ones; network, disk and clock are made up. Begin with ``runs/runs.py`` and
``world.py``. What it may import of the product is a contract in ``pyproject.toml``.
"""
