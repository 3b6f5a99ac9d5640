"""Communication of a node's processes on one machine: cursor page, append ring, bells, orders.

Begin with ``cursor_page.py``: which cursors there are, and who alone writes each; then
``doorbell.py`` and ``orders.py``. ``loop.py`` is the main loop that runs each worker. It may import
``formats`` and ``model``.
"""
