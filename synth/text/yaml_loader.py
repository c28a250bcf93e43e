"""The YAML loader for files of words: every scalar stays text, so `on`, `no` and 8:30 are what was written."""

from __future__ import annotations

from typing import Any

import yaml

TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""The parser in C where PyYAML was built with it."""
