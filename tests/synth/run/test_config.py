"""What cannot be synthesised is refused before anything is done, in words."""

import pytest
from pydantic import ValidationError

from synth.run.config import SynthesisConfig


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"worlds": ["retial"]}, "no world is called 'retial'; did you mean 'retail'"),
        ({"worlds": ["nope"]}, "there are city, retail"),
        ({"drills": {"City": 3}}, "did you mean 'city'"),
        ({"worlds": ["retail"], "drills": {"city": 3}}, r"drills: 'city' is not among worlds \(retail\)"),
        ({"worlds": ["retail"], "programs": {"library": 3}}, r"programs: 'library' is not among worlds \(retail\)"),
        ({"worlds": ["retail"], "world_weights": {"retial": 3}}, "did you mean 'retail'"),
        ({"worlds": ["retail"], "world_weights": {"retail": 0}}, "greater than 0"),
        ({"worlds": ["retail"], "programs": {"retail": 3}}, "no task of 'retail' needs a program"),
        ({"clusters": {"min_tools": 9, "max_tools": 4}}, "min_tools 9 is more than max_tools 4"),
        ({"evolution": {"band_shares": [0.2, 0.2, 0.2]}}, "each must be above 0, and they must add up to 1"),
        ({"evolution": {"band_shares": [0, 0.5, 0.5]}}, "each must be above 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_the_door(setting: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SynthesisConfig.model_validate(setting)


def test_without_a_word_about_drills_they_are_of_the_small_worlds_in_use() -> None:
    assert SynthesisConfig(worlds=("retail",)).drills == {"retail": 160}
    city = SynthesisConfig(worlds=("city",))
    assert city.drills == {} and city.world_weights == {}
    assert SynthesisConfig.model_validate(city.model_dump(mode="json")) == city
