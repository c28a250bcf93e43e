"""Blueprints: what a conversation is to contain, before it runs."""
