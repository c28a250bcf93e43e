"""Tasks of live worlds by execution, without a language model: plans that are found by trying, and kept if they can be tasks.

One idea: take values from the state, try calls with them, and let execution decide. A call that changes the state is an act; a call that
shows a value is a question. Identifiers that a user would not know are looked up by what they would say. Every plan then goes through the
admission that all tasks go through (`synth/tasks/solver.py`).

| module | |
|---|---|
| `conformance.py`, `tool_list.py` | what a live world can be relied on for, measured |
| `value_records.py` | the values of the state and of results, and how they hang together |
| `call_proposals.py` | arguments for a tool |
| `sql.py` | texts for tools that take SQL |
| `lookups.py` | earlier calls that show a value |
| `explorer.py` | the search |
| `plan_wording.py` | requests by template |
"""
