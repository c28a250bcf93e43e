"""A small stateful shop: the tiny policy's school."""
