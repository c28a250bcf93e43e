"""The language of a domain spec: YAML text to typed, resolved values, every problem with its place."""
