"""The rows of a world: drawn from a seed, given by a request, changed by actions."""
