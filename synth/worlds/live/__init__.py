"""Live worlds: real tools as worlds, each in a private copy: MCP servers, Python functions, HTTP APIs.

One idea: everything is an MCP server in a box. An MCP server runs there as it is; Python functions and HTTP APIs run behind small servers
of ours (`inside/`), which use the standard library only. A YAML file (`live_spec.py`) says what to start and what its state is; a lock
file beside it (`lock.py`) says what was measured: tools, which of them change the state, how a copy is restored, what the world may be used
for (`conformance.py`), and the plans that were found by execution (`explore/`).

| module | |
|---|---|
| `box.py` | a command in bubblewrap: private folder, no network, limits |
| `connection.py` | the MCP session with it, through the official SDK |
| `state.py`, `folder.py` | its state as JSON, and copies of its folder |
| `server.py`, `pool.py` | a running copy: call, snapshot, restore; warm copies |
| `live_world.py` | the `World` |

It does not: reset a remote server that cannot be reset; keep a secret (secrets come from the environment, by name).
"""
