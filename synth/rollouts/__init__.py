"""A policy's conversations in live worlds, and their draws in parts of the store."""
