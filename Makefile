# Every target makes what it needs, the virtual environment included.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench clean

# Train, fine-tune, save, reload in every kernel, and draw: pictures and numbers in outputs/demo.
demo: $(VENV)/installed
	$(BIN)/python examples/demo.py --output_dir outputs/demo

test: $(VENV)/installed
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4

# Minutes; the full measurements are the same scripts without --quick.
bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench_kernels.py --quick --output_dir outputs/bench
	$(BIN)/python benchmarks/bench_models.py --quick --output_dir outputs/bench

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info outputs
