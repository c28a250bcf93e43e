"""Drawings of pages: they compute places alone, and templates draw them."""
