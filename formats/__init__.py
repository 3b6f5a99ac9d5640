"""Bytes of a store: message, entry, queue unit, index item, batch, and kernels that read them."""
