# Two commands do everything on a machine that has only Python 3.11 and make:
#   make demo    starts a local cluster, runs real workloads, writes a report, stops everything
#   make test    unit tests and the local integration tests

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
LOCKS  := requirements.txt requirements-dev.txt
UV     := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)

.DEFAULT_GOAL := help
.PHONY: help setup setup-train setup-serve setup-notebook demo test faults engine compose kubernetes image check format lock clean

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

#   make setup   builds .venv with everything that these commands need; they call it themselves
setup: $(STAMP)

# If the machine has no uv, it is fetched from PyPI, pinned by hash.
.tools/bin/uv: requirements-uv.txt
	@echo "Fetching uv into .tools (this machine has none)"
	@$(PYTHON) -m venv .tools
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt
	@touch $@

# Compiles bytecode once: Ray starts 16 Python processes for a head and two for a worker
# (docs/architecture.md), and those that start together would each compile what they import. Leaves
# out thousands of files that the local commands never import.
NOT_COMPILED = pulumi_azure_native|pulumi_kubernetes|/moto/|/ray/rllib/|/tests/
BYTECODE = $(BIN)/python -m compileall -q -j 0 -x '$(NOT_COMPILED)' $(VENV)/lib > /dev/null || true

$(STAMP): $(UV) $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sunspot needs Python 3.11 or newer; this is %s. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version.split()[0])'
	@echo "Building $(VENV)"
	@$(UV) venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV)
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BYTECODE)
	@touch $@

#   make setup-train   adds torch and Lightning (large) for the training workloads
setup-train: $(STAMP)
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-train.txt
	@$(BYTECODE)

#   make setup-serve   adds Ray Serve, for `sunspot serve` on clusters of this machine
setup-serve: $(STAMP)
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-serve.txt
	@$(BYTECODE)

#   make setup-notebook   adds JupyterLab, for `sunspot notebook`
setup-notebook: $(STAMP)
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-notebook.txt
	@$(BYTECODE)

demo: $(STAMP)
	@$(BIN)/sunspot demo

# Unit tests wait half of their time, so two run at once on each core.
WORKERS ?= $$((2 * $$(nproc)))
test: $(STAMP)
	@$(BIN)/python -m pytest --ignore tests/real --ignore tests/faults -m "not integration" \
		--numprocesses $(WORKERS) --dist worksteal
	@$(BIN)/python -m pytest --ignore tests/real --ignore tests/faults -m integration

#   make faults  what faults leave behind, on a machine of its own made of namespaces (needs root)
faults: $(STAMP)
	@tests/faults/machine.sh $(BIN)/python -m pytest tests/faults $(ARGS)

#   make engine  builds Pulumi's engine from source (needs Go), for the tests in tests/real
engine:
	@scripts/engine/build.sh

#   make compose builds Docker's Compose plugin and an S3 server from source (needs Go), for the same
compose:
	@scripts/compose/build.sh

#   make kubernetes  a real Kubernetes with KubeRay on this machine, until Ctrl-C (needs root and Go)
kubernetes: $(STAMP)
	@scripts/kubernetes/build.sh
	@PYTHONPATH=tests:tests/real $(BIN)/python -m machines.kubernetes

#   make image   builds an image: KIND=cpu, cuda, rocm or jupyter; TAG= its name; ARGS= for docker build
KIND ?= cpu
TAG  ?= sunspot-$(KIND)
image:
	@docker build --file docker/$(KIND).Dockerfile --tag $(TAG) $(ARGS) docker

#   make check   ruff, pyright and hadolint
check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/hadolint docker/*.Dockerfile

#   make format  lets ruff fix what it can
format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

#   make lock    rewrites the requirements files from pyproject.toml (UPGRADE=1: new versions)
COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
	--python-version 3.11 --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
# For the images: what they add to Ray's image, in the same versions.
IMAGE := docker/requirements
COMPILE_IMAGE = $(COMPILE) -c requirements-train.txt
lock: $(UV)
	@$(COMPILE) pyproject.toml -o requirements.txt
	@$(COMPILE) pyproject.toml --extra dev -c requirements.txt -o requirements-dev.txt
	@$(COMPILE) pyproject.toml --extra azure -c requirements-dev.txt -o requirements-azure.txt
	@$(COMPILE) pyproject.toml --extra kubernetes -c requirements-dev.txt -o requirements-kubernetes.txt
	@$(COMPILE) pyproject.toml --extra train -c requirements-dev.txt -o requirements-train.txt
	@$(COMPILE) pyproject.toml --extra serve -c requirements-train.txt -o requirements-serve.txt
	@$(COMPILE) pyproject.toml --extra notebook -c requirements-train.txt -c requirements-serve.txt -o requirements-notebook.txt
	@$(COMPILE_IMAGE) $(IMAGE)/ray.in -o $(IMAGE)/ray.txt
	@$(filter-out --generate-hashes,$(COMPILE_IMAGE)) $(IMAGE)/torch.in --no-deps -o $(IMAGE)/torch.txt
	@$(COMPILE_IMAGE) $(IMAGE)/torch.in --excludes $(IMAGE)/ray.txt -o $(IMAGE)/cuda.txt
	@$(COMPILE_IMAGE) $(IMAGE)/libraries.in --excludes $(IMAGE)/ray.txt --excludes $(IMAGE)/torch.in \
		-o $(IMAGE)/libraries.txt
	@$(COMPILE_IMAGE) $(IMAGE)/jupyter.in --excludes $(IMAGE)/ray.txt -c $(IMAGE)/libraries.txt \
		-o $(IMAGE)/jupyter.txt

clean:
	rm -rf $(VENV) .tools sunspot-report
