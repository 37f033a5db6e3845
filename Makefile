# Everything here sets itself up: `make demo` on a fresh Debian or Ubuntu with python3 is enough.
# ARGS goes to the command: make serve ARGS="--config my.toml"

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.headway-ready
SPARK_STAMP := $(VENV)/.headway-spark-ready
PROTON_STAMP := $(VENV)/.headway-proton-ready
UV_VERSION := 0.13.9
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo ")
# The first of these that is new enough; `make setup PYTHON=...` overrides.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; exit; }; done; true)

.PHONY: help setup serve demo tour test test-spark suite bench compare judge crash soak mutants lint style types lock clean \
	mosquitto browser proxies java jms perl

help:
	@echo "make demo    the year 2013 over New York: slow consumers handled while fast ones notice nothing (four minutes)"
	@echo "make tour    for data engineers: recorded flights, Spark, a view, an archive, reports (six minutes; needs Java)"
	@echo "make serve   a broker on mqtt://127.0.0.1:1883, for AMQP on :5672, STOMP on :61613, JMS on :61616; console: http://127.0.0.1:9883/"
	@echo "make test    lint, types and every test but those of the pipeline on Spark (ten minutes on two cores)"
	@echo "make test-spark    the tests of the pipeline on Spark (seven minutes on two cores; needs Java)"
	@echo "make soak    what takes longer: canaries beside every kind of trouble and hostile client, hundreds of seeds (half an hour)"
	@echo "make crash   kills the broker fifty times under load; nothing confirmed may be lost (two minutes)"
	@echo "make mutants a hundred small faults put into the core, one at a time: do the tests notice? (an hour)"
	@echo "make bench   side by side with every other broker that is installed (an hour or two)"
	@echo "make compare REV=main    before each landing: is anything slower than in that commit? (six minutes)"
	@echo "make judge   151 labelled consumers, fast, slow and stuck: whom does each policy call slow? (five minutes)"
	@echo "make lint    ruff and mypy only"
	@echo "make lock    pins every dependency anew, with hashes"
	@echo "make clean   removes .venv and every cache"

setup: $(STAMP)
	@:

serve: $(STAMP)
	@exec $(BIN)/headway serve $(ARGS)

# Without Java the demo still shows everything but its last part, and says so.
demo: $(SPARK_STAMP)
	@$(MAKE) java || true
	@exec $(BIN)/python -m demo $(ARGS)

# It needs Java, as all of it is about Spark.
tour: $(SPARK_STAMP)
	@$(MAKE) java
	@exec $(BIN)/python -m demo.tour $(ARGS)

lint: style types

style: $(SPARK_STAMP)
	$(BIN)/ruff check .

types: $(SPARK_STAMP)
	$(BIN)/mypy

# mypy keeps one core busy for a while where it has no cache yet, so it runs beside the tests.
test: style mosquitto browser proxies java jms perl
	@$(MAKE) -j 2 suite types

# Four workers on two cores, as each waits for others now and then. JOBS=0: one after the other.
# Compiled first: hundreds of processes are started, and where PYTHONDONTWRITEBYTECODE is set each would compile it all.
# pytest compiles what it runs in its own way, in each worker; it may keep that for the next time.
PYTEST = $(BIN)/python -m compileall -q src tests bench demo && \
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(or $(JOBS),4) --dist loadfile

suite: $(SPARK_STAMP) $(PROTON_STAMP)
	@$(PYTEST) --ignore tests/pipeline $(ARGS)

# One worker has all that shares a Spark session (tests/conftest.py).
test-spark: $(SPARK_STAMP) java
	@$(PYTEST) tests/pipeline $(ARGS)

bench: $(STAMP)
	@exec $(BIN)/python -m bench all --json bench.json --plots docs/plots $(ARGS)

# REV=4f3d37a: a commit, branch or tag. ARGS="--rows start": only some rows.
compare: $(STAMP)
	@exec $(BIN)/python -m bench.compare "$(REV)" $(ARGS)

# SEED=1,2,3: a run for each. ARGS="--policies my.toml": its policies in the place of the default ones.
judge: $(STAMP)
	@exec $(BIN)/python -m bench.behaviours --seed $(or $(SEED),1) --json judge.json $(ARGS)

# KILLS=500 SEED=7: longer, or another one.
crash: $(PROTON_STAMP)
	@exec $(BIN)/python -m tests.crash --kills $(or $(KILLS),50) --seed $(or $(SEED),1) $(ARGS)

# PARTS=canaries: only that one. HEADWAY_SEEDS=1-1000: more seeds.
soak: $(SPARK_STAMP) $(PROTON_STAMP) java jms
	@exec $(BIN)/python -m tests.soak $(PARTS)

# COUNT=20 SEED=7: fewer, or others.
mutants: $(STAMP)
	@exec $(BIN)/python -m tests.mutants --count $(or $(COUNT),100) --seed $(or $(SEED),1) $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A line of its own per thing that can be missing, each with the command that brings it.
$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "Headway needs python3 3.11 or newer: $(SUDO)apt-get install -y python3.11 python3.11-venv" >&2; exit 1; fi
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module: $(SUDO)apt-get install -y" \
			"$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV) ..."
# One distribution comes as source only: what builds it comes from the lock too, so nothing unhashed is fetched.
	@awk '/^[a-zA-Z0-9]/ { wanted = /^setuptools==/ } wanted' requirements.lock > $(VENV)/build.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(VENV)/build.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation --use-pep517 \
		-r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $(STAMP)

# What runs on Spark is half a gigabyte more, and only the demo and the tests need all of it.
$(SPARK_STAMP): $(STAMP) requirements-spark.lock
	@echo "Installing Spark into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation --use-pep517 \
		-r requirements-spark.lock
	@touch $(SPARK_STAMP)

# AMQP 1.0 is tested with Qpid Proton, which comes as source: it is compiled here, against what the first lock brought.
$(PROTON_STAMP): $(STAMP) requirements-proton.lock
	@if ! command -v g++ >/dev/null || ! command -v pkg-config >/dev/null || \
		! $(BIN)/python -c 'import os, sysconfig as s; sys_h = s.get_path("include") + "/Python.h"; \
			raise SystemExit(not os.path.exists(sys_h))'; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
				g++ python3-dev libssl-dev pkg-config >/dev/null; \
		else \
			echo "The tests need a compiler: sudo apt-get install -y g++ python3-dev libssl-dev pkg-config" >&2; exit 1; \
		fi; fi
	@echo "Building Qpid Proton into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation --use-pep517 \
		-r requirements-proton.lock
	@touch $(PROTON_STAMP)

# Spark runs on Java 17 or newer. What is missing, and what brings it here, headway itself knows.
java: $(STAMP)
	@$(BIN)/python -c 'from headway.pipeline.java import *; check_java()' 2>/dev/null || { \
		command="$$($(BIN)/python -c 'from headway.pipeline.java import *; print(install_command())')"; \
		if [ "$$(id -u)" = 0 ] && [ -z "$${JAVA_HOME:-}" ] && [[ "$$command" = apt-get* ]]; then \
			echo "Installing Java: $$command"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$command -qq --no-install-recommends >/dev/null; \
		else \
			echo "Spark needs Java 17 or newer: $$command$${JAVA_HOME:+ (JAVA_HOME is $$JAVA_HOME)}" >&2; exit 1; \
		fi; }

# The interoperability tests drive mosquitto's own clients, and `headway trouble` is tested against mosquitto itself. Its
# package would start a broker: RUNLEVEL=1 keeps it from that.
mosquitto:
	@if ! command -v mosquitto_pub >/dev/null || ! PATH="$$PATH:/usr/sbin" command -v mosquitto >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -qq --no-install-recommends mosquitto mosquitto-clients >/dev/null; \
		else \
			echo "The tests need: sudo apt-get install -y --no-install-recommends mosquitto mosquitto-clients" >&2; exit 1; \
		fi; fi

# STOMP is tested with Perl's client, too. Where it cannot be had, those tests are skipped.
perl:
	@if ! perl -MNet::Stomp -e 1 2>/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && \
				DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libnet-stomp-perl >/dev/null || true; \
		else \
			echo "For the tests with Perl's STOMP client: sudo apt-get install -y libnet-stomp-perl" >&2; \
		fi; fi

# OpenWire is tested with ActiveMQ's JMS client. Where it cannot be had, those tests are skipped.
JMS := libactivemq-java openjdk-17-jdk-headless
jms:
	@if [ ! -e /usr/share/java/activemq-client.jar ] || ! command -v javac >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(JMS) >/dev/null || \
			echo "$(JMS) cannot be installed: the tests of JMS are skipped" >&2; \
		else \
			echo "The tests of JMS are skipped without: sudo apt-get install -y --no-install-recommends $(JMS)" >&2; \
		fi; fi

# MQTT over WebSocket is tested with mqtt.js, in node and in a page in Chromium. Where they cannot be had, those tests
# are skipped.
BROWSER := node-mqtt node-browserify chromium-headless-shell libnss3-tools
browser:
	@if [ ! -e /usr/share/nodejs/mqtt ] || ! { command -v node && command -v browserify && command -v certutil; } >/dev/null || \
		! { command -v chromium || command -v chromium-headless-shell || command -v google-chrome; } >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROWSER) >/dev/null || \
			echo "$(BROWSER) cannot be installed: the tests with a browser are skipped" >&2; \
		else \
			echo "The tests with a browser are skipped without: sudo apt-get install -y --no-install-recommends $(BROWSER)" >&2; \
		fi; fi

# The console is tested behind real proxies, with the lines of docs/PROXIES.md. RUNLEVEL=1 keeps the packages from starting
# servers. Where they cannot be had, those tests are skipped.
proxies:
	@if ! PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || ! command -v caddy >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -qq --no-install-recommends nginx-light caddy >/dev/null || \
			echo "nginx-light and caddy cannot be installed: the tests of proxies are skipped" >&2; \
		else \
			echo "The tests of proxies are skipped without: sudo apt-get install -y nginx-light caddy" >&2; \
		fi; fi

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(LOCK_ARGS)

# The tool that writes the lock comes first, in a version of its own.
lock:
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION)
	$(LOCK) --extra demo --extra dev --extra telemetry --extra otel --extra bench -o requirements.lock pyproject.toml
	$(LOCK) --extra spark --extra notebook -c requirements.lock -o requirements-spark.lock pyproject.toml
	$(LOCK) --extra proton -c requirements.lock -o requirements-proton.lock pyproject.toml
