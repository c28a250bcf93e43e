"""Tasks, world and verifier as packages of other ecosystems: verifiers, Inspect, OpenEnv, Harbor, NeMo Gym."""
