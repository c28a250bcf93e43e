"""The tests of Headrace. A package of its own, because some dependency installs one of the same name."""
