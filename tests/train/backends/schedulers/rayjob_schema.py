"""The schema of RayJobs, reduced from KubeRay's own CRD, and the check of a manifest by it.

`rayjob_crd.json` is the v1 schema of ray-operator/config/crd/bases/ray.io_rayjobs.yaml (1.4 MB) of ray-project/kuberay at the commit that
it names. Left out: descriptions, and what stands under keys that our manifests do not use. The names of all keys beside ours are kept, so
a key that the CRD does not have is still refused, as `kubectl create` refuses it.
`python -m tests.train.backends.schedulers.rayjob_schema CRD.yaml COMMIT` writes the file again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FILE = Path(__file__).with_name("rayjob_crd.json")
_USED = {
    *("apiVersion", "kind", "metadata", "spec", "rayClusterSpec", "headGroupSpec", "workerGroupSpecs", "template", "containers", "envFrom"),
    *("secretRef", "resources", "limits", "requests", "volumeMounts", "volumes", "persistentVolumeClaim", "nodeSelector", "rayStartParams"),
}
"""Keys whose schema is kept whole; of others, only that of a plain value."""


def errors(manifest: dict[str, Any]) -> list[str]:
    """What the schema says against a manifest: a line each, with its place."""
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text())["schema"])
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(manifest))


def reduce(schema: dict[str, Any]) -> dict[str, Any]:
    """A CRD's schema as JSON schema: objects are closed, unused branches open."""
    kept = {key: schema[key] for key in ("type", "enum", "minimum", "maximum", "pattern", "required", "minItems") if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **{key: schema[key] for key in ("pattern",) if key in schema}}
    if "properties" in schema:
        kept["properties"] = {name: reduce(each) if name in _USED or _is_plain(each) else {} for name, each in schema["properties"].items()}
        kept["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = reduce(schema[key])
    return kept


def _is_plain(schema: dict[str, Any]) -> bool:
    return schema.get("type") in ("string", "integer", "number", "boolean") or "x-kubernetes-int-or-string" in schema


if __name__ == "__main__":
    crd = yaml.safe_load(Path(sys.argv[1]).read_text())
    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1")
    source = f"github.com/ray-project/kuberay {sys.argv[2]} ray-operator/config/crd/bases/ray.io_rayjobs.yaml, Apache-2.0"
    reduced = reduce(version["schema"]["openAPIV3Schema"])
    reduced["properties"]["metadata"] = {}
    FILE.write_text(json.dumps({"source": source, "schema": reduced}, separators=(",", ":")) + "\n")
