# Every target makes what it needs, the virtual environment included.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A test is run again if the process that ran it was killed, as a system without memory does, and never if it failed.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal \
	--reruns 1 --only-rerun "worker .* crashed"

.PHONY: demo docs test test-slow test-all test-common test-extras lint bench bench-deploy bench-gpu results clean

# Search; train, fine-tune, save, reload in every kernel, and draw: pictures and numbers in outputs/demo.
demo: $(or $(wildcard $(VENV)/installed),$(VENV)/installed-for-demo)
	$(BIN)/python examples/demo.py --output_dir outputs/demo

# The site, in outputs/site: every page, link and anchor is checked, and nothing is fetched. (--quiet would hide the
# warnings for which --strict fails.)
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# What a person runs while working: minutes. Tests of exports, compilers, processes, runtimes and whole scripts are
# marked `slow`; test-all runs them, too.
test: $(VENV)/installed
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/installed
	$(PYTEST) -m slow

test-all: test test-slow

# Minutes; the full measurements are the same scripts without --quick.
bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench_kernels.py --quick --output_dir outputs/bench
	$(BIN)/python benchmarks/bench_models.py --quick --output_dir outputs/bench
	$(BIN)/python benchmarks/bench_memory.py --quick --output_dir outputs/bench

# What a document costs on this CPU, in torch, ONNX Runtime and OpenVINO, beside BERT: most of an hour.
bench-deploy: $(VENV)/installed
	$(BIN)/python benchmarks/bench_deploy.py

# On a machine with an NVIDIA GPU: checks, eight numbers, tuning (into modeling_lion/triton/config.py), figures, models,
# into outputs/gpu; PART=check, quick, tune, figures, models or paper is one of them (docs/benchmarks/gpu.md).
bench-gpu: $(VENV)/installed
	$(BIN)/python benchmarks/gpu/run.py $(or $(PART),all) --out outputs/gpu --minutes $(or $(MINUTES),60) \
		$(if $(DATA),--data $(DATA))

# Trainings into the tables of docs/benchmarks/recall.md: recall, longer texts, the same search for LION and its peers, and
# names in code. It goes on where it was stopped. SCALE=gpu is larger; PART=recall, length, search or bindings is one of them,
# and PART=images or text has real data, which is fetched (docs/benchmarks/real.md), PART=lra tasks after the Long Range Arena.
# OUT=FOLDER begins tables of your own, and has them as LaTeX, too, the pictures as PDF and a manifest of their source; without
# it, the repository's tables and pages are written, and none of these. ARGS="--steps 400 --seeds 1 2" are further options
# of the scripts.
results: $(VENV)/installed
	for part in $(or $(PART),recall length search bindings); do \
		$(BIN)/python benchmarks/bench_$$part.py --scale $(or $(SCALE),cpu) $(if $(OUT),--output_dir $(OUT)) $(ARGS) || exit 1; \
	done

# transformers' own tests of models, on every mixer, kernel and recommended preset: seven minutes.
test-common: $(VENV)/installed
	$(BIN)/python tests/tools/common_tests.py --numprocesses auto --maxprocesses 4

# Each extra alone, in a new environment, and what it is for: some twenty minutes.
test-extras: $(VENV)/installed
	$(BIN)/python tests/tools/try_extras.py

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

$(VENV)/installed: EXTRAS := dev
$(VENV)/installed-for-demo: EXTRAS := train,search
# pip would compile with one core, which is two thirds of its time; some libraries have files that do not compile.
$(VENV)/installed $(VENV)/installed-for-demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[$(EXTRAS)]"
	$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || true
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info outputs
