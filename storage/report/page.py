"""report.html: one self-contained file that shows what a store holds, made from the store alone.

One idea: each section is a query and a chart or a table (`storage/report/sections.py`); a section with empty tables says that its step has
not run. The page needs no network: the plotting library is inlined once, and the page's own content security policy forbids every
load. Text from the data is escaped by the template engine, and could not run if it were not: only the two scripts whose hashes the policy
names may. It keeps no copy of the data beyond what it shows.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2
import plotly.graph_objects as go
import plotly.io
import plotly.offline

from storage.conversation import mode_in_words
from storage.errors import BadInput
from storage.files import disk_errors, replace_atomically
from storage.report import VIEWER_PORT, sections
from storage.store import Store

_HERE = Path(__file__).parent


def write_report(store: Store, path: Path | None = None) -> Path:
    """Writes the report of a store (default: `report.html` beside the store's folder) and returns its path.

    Raises:
        BadInput: there is a folder of that name.
        HeadraceError: the disk is full.
    """
    target = Path(path) if path is not None else store.root.parent / "report.html"
    if target.is_dir():
        raise BadInput(f"{target} is a folder, but the report is to be written there; move it away, then run the same command again")
    html = _html(store)
    with disk_errors("writing the report", target):
        # a policy may write half a surrogate pair, which no encoding accepts
        replace_atomically(target, lambda draft: draft.write_text(html, encoding="utf-8", errors="replace"))
    return target


def _html(store: Store) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["count"] = lambda value: "" if value is None else f"{value:,}"
    environment.filters["mode"] = lambda signature: mode_in_words(signature or "")
    environment.filters["rate"] = lambda value: "" if value is None else f"{value:.3f}"
    figures: list[go.Figure] = []

    def chart(figure: go.Figure) -> dict[str, int]:
        figures.append(figure)
        return {"number": len(figures) - 1, "height": int(figure.layout.height)}

    filled = sections.all_sections(store, chart)
    scripts = (plotly.offline.get_plotlyjs().replace("\r\n", "\n"), (_HERE / "draw.js").read_text(encoding="utf-8"))
    return environment.get_template("report.html.j2").render(
        plotly_js=scripts[0],
        draw_js=scripts[1],
        script_hashes=" ".join(f"'{_script_hash(script)}'" for script in scripts),
        charts_json=_inert(f"[{','.join(plotly.io.to_json(figure, validate=False) for figure in figures)}]"),
        name=store.root.parent.name or store.root.name,
        content_hash=store.content_hash(),
        viewer=f"http://127.0.0.1:{VIEWER_PORT}",
        **filled,
    )


def _script_hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _inert(json_text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
