"""The steps that turn text into frames."""
