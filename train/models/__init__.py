"""The models of stages: a base model, adapters, shards, and what they take."""
