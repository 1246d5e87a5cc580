# Every target makes what it needs, the virtual environment included.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench bench-gpu results clean

# Train, fine-tune, save, reload in every kernel, and draw: pictures and numbers in outputs/demo.
demo: $(VENV)/installed
	$(BIN)/python examples/demo.py --output_dir outputs/demo

test: $(VENV)/installed
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4

# Minutes; the full measurements are the same scripts without --quick.
bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench_kernels.py --quick --output_dir outputs/bench
	$(BIN)/python benchmarks/bench_models.py --quick --output_dir outputs/bench
	$(BIN)/python benchmarks/bench_memory.py --quick --output_dir outputs/bench

# On a machine with an NVIDIA GPU, in half an hour: correctness, tuning and figures, in outputs/gpu.
bench-gpu: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[gpu]"
	$(BIN)/python benchmarks/gpu_session.py --minutes 28 --output_dir outputs/gpu

# Every mixer on every task, 3 seeds each, into docs/results.md; it goes on where it was stopped. SCALE=gpu is larger.
results: $(VENV)/installed
	$(BIN)/python benchmarks/bench_quality.py --scale $(or $(SCALE),cpu)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info outputs
