"""Domain specs written by a language model, and the gate that they pass."""
