"""The Index: written, read and looked up by key."""
