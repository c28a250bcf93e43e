"""The ecosystems by name."""

from __future__ import annotations

from collections.abc import Mapping

from synth.packages.forms import for_harbor, for_inspect, for_nemo_gym, for_openenv, for_verifiers
from synth.packages.forms.form import Form

FORMS: Mapping[str, Form] = {
    form.name: form for form in (for_verifiers.FORM, for_inspect.FORM, for_openenv.FORM, for_harbor.FORM, for_nemo_gym.FORM)
}
