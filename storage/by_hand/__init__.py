"""Annotations by hand of requests, frames and conversations: their rows, and what follows from them."""
