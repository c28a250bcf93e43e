"""The ecosystems by name."""

from __future__ import annotations

from collections.abc import Mapping

from synth.packages.forms import harbor, inspect, nemo_gym, openenv, verifiers
from synth.packages.forms.base import Form

FORMS: Mapping[str, Form] = {form.name: form for form in (verifiers.FORM, inspect.FORM, openenv.FORM, harbor.FORM, nemo_gym.FORM)}
