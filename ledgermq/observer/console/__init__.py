"""The console: the node's pages for people in a browser, made on the server.

Begin with ``console.py``.
"""
