"""Records: messages, their properties, bodies and ids."""
