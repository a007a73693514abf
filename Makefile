# containers often set it: each of the many processes of the tests would compile all of its modules anew
unexport PYTHONDONTWRITEBYTECODE
# Everything runs in .venv, which `make venv` (and each other target) makes when it is missing. With
# PYTHON=python3.13 it runs in .venv-3.13, beside that.
PYTHON ?= python3
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
TORCH := torch==2.13.0
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo_data
DEMO_ENV := RLA_STATE_DIR=$(CURDIR)/$(DEMO)/state
TIMESTEPS ?= 150000
PYTEST_ARGS ?=
# for `make test-minimal`: extras, and tests that use what they bring
MINIMAL := .venv-minimal
MINIMAL_EXTRAS := plot,media,web,optuna,bucket,lake,slurm
MINIMAL_TESTS := tests/client/cli tests/e2e/cli tests/client/database tests/client/stream tests/client/run \
    tests/client/plot tests/agent/command tests/agent/pipeline tests/agent/jobs tests/agent/replicate/backend
# for `make test-integrations`, in one pip command with $(TORCH): else pip may take a build with CUDA's gigabytes
LIBRARIES := rsl-rl-lib torchrl accelerate transformers trl lightning hydra-core dowel jax optuna sb3-contrib rl_zoo3
# for `make test-capture`: programs that know nothing of us
CAPTURED := wandb transformers accelerate lightning mlflow trackio swanlab rsl-rl-lib ray tyro hydra-core simple-parsing absl-py click docopt \
    opentelemetry-distro ddtrace coverage
SCALE := tests/client/sweep tests/e2e/sweep tests/client/cli/commands/test_sweep.py tests/client/integrations/test_tune.py tests/client/launcher/sampling/test_ray_sampler.py
# four, as tests mostly wait. With `loadfile`, xdist hangs after it replaced a crashed worker: end there
PARALLEL := -n 4 --dist loadfile --max-worker-restart 0

.PHONY: help venv demo docs test test-web test-full test-further test-scale test-integrations test-capture test-imports packages schedulers test-wheel test-install test-minimal dist man lint fix check bench soak mutants clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/'

venv: $(STAMP)  ## the virtual environment with everything the other targets need

$(STAMP): pyproject.toml
	@echo "making $(VENV): gymnasium, PyTorch and the rest, a minute or two"
	@PYTHON=$(PYTHON) .ci/packages ensurepip
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip
	@.ci/pytorch $(BIN) $(TORCH)
	$(BIN)/python -m pip install -qq -e '.[dev,plot,media,web]'
	if $(BIN)/python -c 'import torch' 2>/dev/null; then $(BIN)/python -m pip install -qq -e '.[sb3]'; fi
	touch $(STAMP)

demo: $(STAMP)  ## train a small PPO, then show status, files and learning curve
	@.ci/pytorch $(BIN) $(TORCH) --always
	@mkdir -p $(DEMO)/state && chmod 700 $(DEMO)/state
	@$(DEMO_ENV) $(BIN)/rla-agent start --detach
	@status=0; \
	echo "training a small PPO: a minute or so"; \
	$(DEMO_ENV) $(BIN)/python examples/ppo_cartpole.py --data-root $(DEMO)/data --timesteps $(TIMESTEPS) || status=$$?; \
	$(DEMO_ENV) $(BIN)/rla-agent status || status=$$?; \
	if $(DEMO_ENV) $(BIN)/rla-agent stop >/dev/null; then echo "the demo's own agent has stopped"; else status=1; fi; \
	echo; echo "The files of the run:"; \
	run=$$(find $(DEMO)/data/log -name run.json | sort | tail -n 1 | xargs -r dirname); \
	echo "  $$run/"; (cd "$$run" && find . -type f | sort | sed 's;^\./;      ;'); \
	index=$${run#$(DEMO)/data/log/}; \
	for kind in checkpoint code results; do \
	    count=$$(find "$(DEMO)/data/$$kind/$$index" -type f | wc -l); \
	    [ "$$count" = 0 ] || echo "  $(DEMO)/data/$$kind/$$index/: $$count files"; \
	done; echo; \
	$(DEMO_ENV) $(BIN)/rla plot perf/return -r @last -d $(DEMO)/data -o $(DEMO)/learning_curve.png || status=$$?; \
	echo; echo "Next: look at $(DEMO)/learning_curve.png, then try"; \
	echo "  $(BIN)/rla show @last -d $(DEMO)/data"; \
	echo "  $(BIN)/rla ls -d $(DEMO)/data"; \
	echo "  $(BIN)/rla init YOUR_PROJECT"; \
	exit $$status

test: $(STAMP) packages  ## the quick tests
	$(BIN)/python -m pytest $(PARALLEL) -rs -m "not slow and not soak and not scale and not further" $(PYTEST_ARGS)

test-web: $(STAMP)  ## the tests of `rla web`, those that click in a browser too
	@.ci/packages chromium
	$(BIN)/python -m pytest $(PARALLEL) tests/client/web tests/e2e/page $(PYTEST_ARGS)

test-full: $(STAMP) packages schedulers  ## all tests but `make test-further`, full counts of `make soak`, most of `make test-scale`
	$(BIN)/python -m pytest $(PARALLEL) -m "not soak and not further and (not scale or brief)" $(PYTEST_ARGS)

test-further: $(STAMP) packages  ## the cases that `make test-full` leaves out
	$(BIN)/python -m pytest $(PARALLEL) -m "further and not soak" -rs $(PYTEST_ARGS)

test-scale: $(STAMP) schedulers  ## all tests that need a scheduler, Ray or Slurm
	$(BIN)/python -m pytest $(PARALLEL) -m "not soak or scale" $(SCALE) $(PYTEST_ARGS)

test-integrations: $(STAMP)  ## adapters, each with its library from PyPI: at most 15 minutes of tests
	$(BIN)/python -m pip install -qq $(TORCH) $(LIBRARIES)
	timeout --signal=INT --kill-after=60 900 $(BIN)/python -m pytest $(PARALLEL) -m "not soak" -rs tests/client/integrations $(PYTEST_ARGS)

test-capture: $(STAMP)  ## programs of other libraries, captured without a change: at most 15 minutes of tests
	$(BIN)/python -m pip install -qq $(TORCH) $(CAPTURED)
	timeout --signal=INT --kill-after=60 900 $(BIN)/python -m pytest $(PARALLEL) -m "not soak" -rs tests/e2e/capture $(PYTEST_ARGS)

test-imports: $(STAMP)  ## `rla import` of runs that wandb, MLflow, trackio, Aim and sacred write, installed beside
	test -x .venv-import/bin/python || $(PYTHON) -m venv .venv-import
	.venv-import/bin/python -m pip install -qq -e '.[read,parquet]' pytest pytest-timeout hypothesis wandb mlflow trackio aim sacred pillow
	.venv-import/bin/python -m pytest tests/e2e/database/test_imported_tools.py $(PYTEST_ARGS)

packages:  # system programs that tests use, where they may be installed; else it says what is left out
	@.ci/packages sshd ssh-keygen openssl strace mkfs.ext4 ip git chromium

schedulers: $(STAMP)  # likewise Slurm and Ray; tests of what is missing are skipped with that reason
	@.ci/packages munged slurmctld slurmd sbatch
	@$(BIN)/python -m pip install -qq -e '.[ray,slurm]' || echo "left out: what needs Ray (pip cannot install it)"

test-wheel: $(STAMP)  ## the same tests against the built wheel instead of this folder
	rm -rf build/wheel build/installed build/run
	$(BIN)/python -m build --wheel --outdir build/wheel .
	$(BIN)/python -m pip install -qq --no-deps --target build/installed build/wheel/*.whl
	mkdir -p build/run && cp -r tests examples rla_config.yaml pyproject.toml build/run/
	cd build/run && PYTHONPATH=$(CURDIR)/build/installed $(CURDIR)/$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

PYTHONS ?= $(PYTHON)
test-install: $(STAMP)  ## the wheel in an empty environment; PYTHONS="python3.10 python3.13": of each of these
	rm -rf build/wheel
	$(BIN)/python -m build --outdir build/wheel .
	.ci/try-wheel build/wheel/*.whl $(PYTHONS)

test-minimal:  ## quick tests with the oldest libraries that pyproject.toml allows: `PYTHON=python3.10`
	rm -rf $(MINIMAL)
	$(PYTHON) -m venv $(MINIMAL)
	$(MINIMAL)/bin/python -m pip install -qq uv
	$(MINIMAL)/bin/uv pip install -q --python $(MINIMAL)/bin/python --resolution lowest-direct -e '.[$(MINIMAL_EXTRAS)]'
	$(MINIMAL)/bin/uv pip install -q --python $(MINIMAL)/bin/python pytest pytest-timeout pytest-xdist hypothesis omegaconf
	$(MINIMAL)/bin/python -m pytest $(PARALLEL) -m "not slow and not soak" $(MINIMAL_TESTS) $(PYTEST_ARGS)

man: $(STAMP)  ## write docs/man and docs/modules.md anew: after a change of commands, options, modules or the version
	$(BIN)/python .ci/man_pages.py
	$(BIN)/python .ci/module_index.py

dist: $(STAMP)  ## what is published: the source archive, and the wheel that is built from it
	rm -rf dist
	$(BIN)/python -m build .

lint: $(STAMP)  ## format, lint, types, import layers, names in prose: all of them, then it fails if one did
	@status=0; \
	for tool in "$(BIN)/ruff format --check ." "$(BIN)/ruff check ." "$(BIN)/mypy --strict" "$(BIN)/lint-imports" \
	    "$(BIN)/python .ci/names_exist.py"; do \
	    echo "$$tool"; $$tool || status=1; \
	done; \
	exit $$status

fix: $(STAMP)  ## what `make lint` can mend by itself: format, imports, simple faults
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint test  ## all of `make lint`, and the quick tests

docs: $(STAMP)  ## the documentation site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -f .mkdocs.yml

bench: $(STAMP)  ## benchmarks: they print ratios and never fail on time
	$(BIN)/python -m tests.bench

PART ?=
soak: $(STAMP)  ## full counts of docs/reliability.md; PART="r3 r6" picks, FRESH=1 repeats, SHOW=1 only tells
	$(BIN)/python -m tests.soak $(PART) $(if $(FRESH),--fresh) $(if $(SHOW),--show)

mutants: $(STAMP)  ## seeded faults, each in a copy of the packages: which test notices it
	$(BIN)/python -m tests.soak mutants --fresh

clean:  ## remove what the targets made, the virtual environment aside
	rm -rf $(DEMO) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
