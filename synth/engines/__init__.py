"""Engines that answer chat requests, and text encoders."""
