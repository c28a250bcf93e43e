"""What `headrace doctor` says of sandboxes is what they say of themselves."""

from __future__ import annotations

from flows.runtime.doctor import findings
from synth.sandbox import available, pick


def test_the_doctor_names_the_sandbox_that_would_be_used_and_what_others_lack() -> None:
    lacking, provider = available(), pick()

    (finding,) = [each for each in findings() if each.what == "code sandbox"]

    assert finding.state == ("ok" if provider else "note")
    assert finding.detail.startswith(f"{provider.name} runs" if provider else "none, so the code tool is not offered")
    assert all(missing in finding.detail for missing in lacking.values())
