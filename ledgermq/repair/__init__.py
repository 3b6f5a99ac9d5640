"""Check, scrub and rebuild of a store: what is wrong in it, and how it is put right.

Begin with ``check/check_store.py`` (``ledgermq store check``) for a store as a whole,
``log_scrub.py`` for a log in use, ``rebuild.py`` for queues and index built anew. It may import
``store`` and below.
"""
