"""The automations of a folder's `automations.yaml`, created on the server by `headrace up`. Safe to repeat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import BadInput

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


def create_automations(file: Path, client: SyncPrefectClient) -> int:
    """Create or update every automation of the file by its name; returns their number. A switched-off automation stays off.

    Raises BadInput: the file is no list of automations.
    """
    import yaml
    from prefect.events.schemas.automations import AutomationCore
    from pydantic import TypeAdapter, ValidationError

    try:
        wanted = TypeAdapter(list[AutomationCore]).validate_python(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise BadInput(f"{file}: not a list of Prefect automations: {str(error).splitlines()[0]}; correct it, or move it away") from None
    for automation in wanted:
        present = client.read_automations_by_name(automation.name)
        if present:
            client.update_automation(present[0].id, automation.model_copy(update={"enabled": present[0].enabled}))
        else:
            client.create_automation(automation)
    return len(wanted)
