"""Generated domains: `generate(seed)` composes a domain spec, a different one for every seed.

One idea: a domain is a choice, not an invention. A theme (`themes.yaml`: car rental, bakery, observatory ...) says what its people and
things are called in both languages; archetypes (`archetypes.yaml`) say which fields, actions and business rules such things have. What is
drawn decides what else can be: whatever mentions an entity or a field that was not drawn is left out, so every draw is valid.

`draw_domain.py` draws a spec from what `components.py` reads; nothing here knows how a spec becomes a world.
"""

from __future__ import annotations

from synth.worlds.declarative.generate.draw_domain import generate

__all__ = ["generate"]
