"""Live worlds: real tools as worlds, each in a private copy: MCP servers, Python functions, HTTP APIs.

One idea: everything is an MCP server in a box. An MCP server runs there as it is; Python functions and HTTP APIs run behind small servers
of ours (`inside/`), which use the standard library only. A YAML file (`live_spec.py`) says what to start and what its state is; a lock
file beside it (`lock.py`) says what was measured: tools, which of them change the state, how a copy is restored, what the world may be used
for (`synth/explore/conformance.py`), and the plans that were found by execution (`synth/explore/`).

| module | |
|---|---|
| `live_spec.py`, `lock.py`, `live_files.py` | the two files, read and written |
| `copies/` | a running copy: its box, its session, its private folder, snapshots, the pool of warm ones |
| `live_state.py`, `observations.py` | the state as JSON, and results as the policy sees them |
| `plans.py`, `live_intents.py` | plans as templates, and the intents made of them |
| `live_world.py` | the `World` |

It does not: reset a remote server that cannot be reset; keep a secret (secrets come from the environment, by name).
"""
