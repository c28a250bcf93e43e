"""Generated domains: `generate(seed)` draws a domain spec; every seed gives a different one.

One idea: every part of a domain is drawn from hand-written parts. A theme (`themes.yaml`: car rental, bakery, observatory ...) has the
nouns of a business in both languages; archetypes (`archetypes.yaml`) have the fields, actions and business rules of its entities. Whatever
mentions an entity or a field that was not drawn is left out, so every draw is a valid spec.

`components.py` reads these files; `draw_domain.py` draws a spec from them. Nothing here depends on how a spec becomes a world.
"""

from __future__ import annotations

from synth.worlds.declarative.generate.draw_domain import generate

__all__ = ["generate"]
