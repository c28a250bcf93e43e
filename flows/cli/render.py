"""`headrace render`: write the files that run a training stage with verl or ROLL on their own cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows import validation
from flows.cli.shared import ConfigFile, Debug, ReadStore
from flows.cli.terminal import handle_errors, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from storage.store import Store
    from train.backends.render_stage import Rendered
    from train.config import CascadeConfig
    from train.spec import StageSpec

_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")


TrainingEngine = Annotated[Literal["verl", "roll"], typer.Argument(metavar="verl|roll", help="Training engine.")]
Model = Annotated[Path, typer.Option("--model", metavar="FOLDER", help="Folder of the initial policy, in Hugging Face format.")]
Adapter = Annotated[
    str | None,
    typer.Option("--adapter", metavar="CLASS", help="Your own class that plays our worlds in the engine (default: Headrace's)."),
]
Folder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="New folder; every node must see it under the same path.")]
Stage = Annotated[str, typer.Option("--stage", metavar="NAME", help="Stage of `train.stages`: its settings, release and split.")]
Release = Annotated[str | None, typer.Option("--release", metavar="ID|NAME", help="Release (default: the stage's latest).")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Number of machines.")]
GpusPerNode = Annotated[int, typer.Option("--gpus-per-node", min=1, help="GPUs per machine; all are used.")]
TensorParallel = Annotated[
    int, typer.Option("--tensor-parallel", min=1, help="GPUs of a node that share one copy of the policy during rollouts.")
]
PromptTokens = Annotated[int, typer.Option("--prompt-tokens", min=1, help="Most tokens of a prompt, tools included.")]
ResponseTokens = Annotated[int, typer.Option("--response-tokens", min=1, help="Most tokens after the prompt, tool results included.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the engine's configuration; may be repeated.")
]


def render(
    engine: TrainingEngine,
    model: Model,
    folder: Folder,
    adapter: Adapter = None,
    stage: Stage = "rl",
    release: Release = None,
    nodes: Nodes = 2,
    gpus_per_node: GpusPerNode = 8,
    tensor_parallel: TensorParallel = 2,
    prompt_tokens: PromptTokens = 4096,
    response_tokens: ResponseTokens = 12288,
    changes: Changes = None,
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Write the files that run one stage with verl or ROLL as a Ray Job: configuration, rows, commands. Nothing is submitted.

    The command checks the configuration before it writes: by the engine's schema if it is installed (verl), and by Headrace's rules.

    Examples:

      headrace render verl --config 8b.yaml --model /shared/qwen3-8b --out /shared/rl1

      headrace render roll --model /shared/qwen3-8b --nodes 4 --adapter team.envs.Manager --out /shared/rl2
    """
    with handle_errors(debug):
        from flows.config import Config, read
        from storage.releases.export import export
        from train.backends.cluster_shape import ClusterShape
        from train.backends.render_stage import render as render_stage
        from train.stages import SPLITS

        target = _new_folder(folder)
        opened = validation.open_store(config, store)
        settings = read(config).train if config else Config().train
        release_id = validation.resolve_release(opened, release or SPLITS[settings.stage(stage).split].release)
        spec = _spec(stage, settings, opened, release_id, model.absolute(), target)
        shape = ClusterShape(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            tensor_parallel=tensor_parallel,
            prompt_tokens=prompt_tokens,
            response_tokens=response_tokens,
        )
        rendered = render_stage(engine, spec, shape, adapter=adapter, overrides=_parse_changes(changes or []))
        export(opened, spec.release_id, target / "data", engine)
        _write(rendered, target)


def _new_folder(folder: Path) -> Path:
    """The absolute path of the folder. Raises BadInput if it exists and is not empty."""
    target = folder.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} exists already; give a new folder")
    return target


def _write(rendered: Rendered, target: Path) -> None:
    for name, text in rendered.files.items():
        (target / name).write_text(text, encoding="utf-8")
    print_text(f"wrote {target}: {', '.join(sorted(rendered.files))}, data/")
    print_text(f"checked: {rendered.checked}")
    for note in rendered.notes:
        print_text(f"note: {note}", style="yellow")
    print_text(f"submit it: RAY_ADDRESS=http://HEAD:8265 bash {target / 'submit.sh'}")


def _spec(stage: str, config: CascadeConfig, store: Store, release_id: str, model: Path, folder: Path) -> StageSpec:
    from train.stages import SPLITS

    stage_config = config.stage(stage)
    return config.spec(
        stage,
        stage_config.settings,
        store=store.root.absolute(),
        release=release_id,
        split=SPLITS[stage_config.split].part,
        model_in=model,
        model_out=folder / "model",
    )


def _parse_changes(texts: list[str]) -> dict[str, Any]:
    """Parse `KEY=VALUE` texts. Values are YAML, but YAML reads 1e-6 as text, so exponents are parsed here."""
    import yaml

    changes: dict[str, Any] = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not is_pair or not key:
            raise BadInput(f"--set {text}: write KEY=VALUE, e.g. trainer.save_freq=50")
        try:
            changes[key] = float(value) if _EXPONENT.fullmatch(value) else yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInput(f"--set {text}: {value} is not a YAML value; put text in quotes") from None
    return changes
