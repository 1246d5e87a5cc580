# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the tests share: tiny models of every kind, inputs for them, and what "equal" means."""

import gc
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path


os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers reads it: no test may need the network

with suppress(ImportError):  # benchmarks/gpu/run.py checks kernels without it
    import hypothesis  # noqa: F401 (it refuses plugins of its own once the garbage collector is frozen, as below)
with suppress(ImportError):  # of openvino and tensorboard
    from absl.logging import get_absl_handler

    # The stream of its handler is closed with all handlers, as uvicorn does it, unless it is that of the process: that
    # of pytest at the import would end all further tests.
    get_absl_handler().python_handler.stream = sys.__stderr__
import pytest
import torch
import transformers
from graphs import traced_once  # noqa: F401, a fixture
from packaging.version import Version

import modeling_lion
from configuration_lion import registry
from modeling_lion import LionConfig
from modeling_lion.attention.implementation_names import attention_names
from modeling_lion.portable_code import is_own


KERNELS = ["parallel", "chunk", "rnn"]
MIXERS = [*registry.MIXERS, "hybrid"]  # also those of files that `pytest -p FILE` has imported
LINEAR_MIXERS = [name for name, mixer in registry.MIXERS.items() if {*KERNELS} <= {*mixer.forms}]
# Mixers in the kernels that compute them; "auto" for a mixer that has one form.
FORMS = {name: attention_names(LionConfig(mixer_type=name)) for name in registry.MIXERS}
PAIRS = [(name, form) for name, forms in FORMS.items() for form in forms if form != "auto" or len(forms) == 1]
PAIRS += [("hybrid", "chunk")]
# What the contract lets a mixer do or leave (docs/concepts/architecture.md); "hybrid" can do it all.
OTHERS_MIXERS = [name for name, mixer in registry.MIXERS.items() if not is_own(mixer)]
WITH_WEIGHTS = ["hybrid", *(name for name, x in registry.MIXERS.items() if x.is_softmax or "eager" in x.forms)]
WITH_SNAKE = ["hybrid", *(name for name, x in registry.MIXERS.items() if x.has_scans or not x.has_decays)]
BATCH, LENGTH, CHOICES, LABELS = 3, 9, 4, 3
# Weights large enough for a mistake to show, several chunks per sequence, a grid that is not square.
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
    "vocab_size": 40,
    "max_position_embeddings": 24,
    "luna_length": 5,
    "chunk_size": 4,
    "num_labels": LABELS,
}
TINY_IMAGE = {"image_size": (6, 8), "patch_size": 2}
with_masks = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.22"),
    reason="transformers before 5.22 has the image processor for masks with torchvision only",
)


def mixer_fields(mixer: str, num_hidden_layers: int = 2) -> dict:
    """The fields of a configuration with one of `MIXERS`; "hybrid" is LION-S and softmax in a window in turn."""
    if mixer != "hybrid":
        return {"mixer_type": mixer}
    layer_types = ["sliding_attention" if i % 2 else "linear_attention" for i in range(num_hidden_layers)]
    return {"layer_types": layer_types, "sliding_window": 2 if num_hidden_layers > 1 else None}


def random_ids(config: LionConfig, *shape: int) -> torch.Tensor:
    return torch.randint(1, config.vocab_size, shape)


def script_environment() -> dict[str, str]:
    """Environment of a process that runs a test file as a script: one thread, and the modules that tests share."""
    here = Path(__file__).parent
    folders = [str(here), str(here / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(folders)}


LABEL_MAKERS: dict[str, Callable[[LionConfig], dict[str, torch.Tensor]]] = {
    "LionForMaskedLM": lambda config: {"labels": random_ids(config, BATCH, LENGTH)},
    "LionForSequenceClassification": lambda config: {"labels": torch.randint(LABELS, (BATCH,))},
    "LionForTokenClassification": lambda config: {"labels": torch.randint(LABELS, (BATCH, LENGTH))},
    "LionForQuestionAnswering": lambda config: {
        name: torch.randint(LENGTH, (BATCH,)) for name in ("start_positions", "end_positions")
    },
    "LionForMultipleChoice": lambda config: {"labels": torch.randint(CHOICES, (BATCH,))},
    "LionForImageClassification": lambda config: {"labels": torch.randint(LABELS, (BATCH,))},
    "LionForMaskedImageModeling": lambda config: {
        "bool_masked_pos": torch.rand(BATCH, config.context_length - 1) < 0.5
    },
    "LionForSemanticSegmentation": lambda config: {"labels": torch.randint(LABELS, (BATCH, *config.image_shape))},
}


@dataclass(frozen=True, eq=False)
class Case:
    """A class of model, for one modality: how to make a tiny one and what to feed it."""

    class_name: str
    modality: str

    def __str__(self) -> str:
        return f"{self.class_name}-{self.modality}"

    @property
    def model_class(self) -> type[modeling_lion.LionPreTrainedModel]:
        return getattr(modeling_lion, self.class_name)

    def config(self, mixer_type: str = "selective", **fields) -> LionConfig:
        fields = TINY | (TINY_IMAGE if self.modality == "image" else {}) | fields
        return LionConfig(modality=self.modality, **(mixer_fields(mixer_type, fields["num_hidden_layers"]) | fields))

    def patch_order(self, mixer_type: str) -> str:
        """The snake for images, if the mixer reads along it."""
        return "snake" if self.modality == "image" and mixer_type in WITH_SNAKE else "raster"

    def model(self, mixer_type: str = "selective", kernel: str | None = None, **fields):
        """In float64, where rounding hides nothing, and in evaluation mode."""
        config = self.config(mixer_type, **fields)
        return self.model_class._from_config(config, attn_implementation=kernel).double().eval()

    def inputs(self, config: LionConfig, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
        if self.modality == "image":
            return {"pixel_values": torch.randn(BATCH, config.num_channels, *config.image_shape, dtype=dtype)}
        shape = (BATCH, CHOICES, LENGTH) if self.class_name == "LionForMultipleChoice" else (BATCH, LENGTH)
        return {"input_ids": random_ids(config, *shape), "token_type_ids": torch.randint(2, shape)}

    def labels(self, config: LionConfig) -> dict[str, torch.Tensor]:
        return LABEL_MAKERS[self.class_name](config)


CASES = [
    Case("LionModel", "text"),
    Case("LionModel", "image"),
    *(Case(name, getattr(modeling_lion, name)._modalities[0]) for name in LABEL_MAKERS),
]


def assert_equal(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """
    Equal but for the rounding of float64: a mistake shows in the first digits, rounding in the last four of sixteen.
    """
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.isfinite().all(), what
    allowed = torch.finfo(torch.float64).eps ** 0.75 * expected.abs().max().clamp(min=1)
    error = (actual - expected).abs().max()
    assert error <= allowed, f"{what} differs by {error:.1e}, allowed are {allowed:.1e}"


@pytest.fixture(autouse=True)
def repeatable():
    """One thread, one seed, a quiet library, and NaN in memory that nobody wrote."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory
    yield
    torch.use_deterministic_algorithms(False)
    transformers.logging.set_verbosity(verbosity)
    torch.set_num_threads(threads)


@pytest.fixture
def forgets_mixers(tmp_path, monkeypatch):
    """Mixers and feature maps that a test registers are unknown after it, and modules in its folder not imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = [(names, dict(names)) for names in (registry.MIXERS, registry.FEATURE_MAPS)]
    yield
    for names, before in known:
        names.clear()
        names.update(before)
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def hub(monkeypatch):
    """A Hub without a network, for uploads."""
    from hub_in_memory import HubInMemory

    hub = HubInMemory()
    monkeypatch.setattr("hub_upload_lion.publish.upload.HfApi", lambda: hub)
    return hub


@pytest.fixture
def log():
    """The warnings that are logged in a test, a list of messages; nothing logged once stays silent."""
    messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    transformers.logging.set_verbosity_warning()
    transformers.logging.warning_once.cache_clear()
    loggers = [logging.getLogger(name) for name in ("transformers", "modeling_lion", "configuration_lion")]
    for logger in loggers:
        logger.addHandler(handler)
    yield messages
    for logger in loggers:
        logger.removeHandler(handler)


# What a test may have as arguments, and goes through: `case` every class of model, the encoder for both modalities,
# `encoder` LionModel for text and for images, `head` every class that has a loss, `text_case` every class for text.
AXES = {
    "case": CASES,
    "encoder": CASES[:2],
    "head": CASES[2:],
    "text_case": [case for case in CASES if case.modality == "text"],
    "mixer": MIXERS,
    "kernel": KERNELS,
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "axes(**values): more arguments, with the values that each goes through")


# Tests that take long, or whose fixtures do. A process takes over what another would do last, not first: so the
# fixtures are made once, and none is left alone with a long test at the end.
FIRST = ["test_in_the_interpreter", "test_distributed.py", "test_sequence_parallel.py", "test_export.py"]
FIRST += ["test_sentence_modules.py", "test_upload.py", "test_bundle.py", "test_bench_recall.py"]
FIRST += ["test_recipes.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, name in enumerate(FIRST) if name in item.nodeid), len(FIRST)))


def pytest_collection_finish() -> None:
    """The garbage collector leaves alone what the libraries made: each Trainer calls it, for half a second."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Run a test for the values of its axes: the arguments named in AXES, and those of its marker `axes`. `few_runs` says
    which of them meet. What `parametrize` gives multiplies the runs.
    """
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    given = {name.strip() for names in marks for name in (names.split(",") if isinstance(names, str) else names)}
    axes = {name: values for name, values in AXES.items() if name in metafunc.fixturenames and name not in given}
    if "kernel" in given and "mixer" in axes:
        axes["mixer"] = LINEAR_MIXERS
    given = {name: values for mark in metafunc.definition.iter_markers("axes") for name, values in mark.kwargs.items()}
    goes_together = lambda row: True
    if {"mixer", "kernel"} <= axes.keys() - given.keys():
        axes["kernel"] = sorted({kernel for _, kernel in PAIRS})
        goes_together = lambda row: (row["mixer"], row["kernel"]) in PAIRS
    axes |= given
    if axes:
        runs = few_runs(axes, goes_together)
        metafunc.parametrize(list(axes), runs, ids=lambda x: str(getattr(x, "__name__", x)))


def few_runs(axes: dict[str, list], goes_together: Callable[[dict], bool]) -> list[tuple]:
    """
    A few rows with a value of each axis, in which every two values of two axes meet that go together at all. What a
    head adds is the same for every mixer and kernel: of a class of model, its modality meets them, and each has a row.
    """
    rows = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    rows = [row for row in rows if goes_together(row)]
    number, meetings = {}, []  # of each value and pair of values; of each row, a bit for each number
    for row in rows:
        values = [(name, getattr(value, "modality", value)) for name, value in row.items()]
        numbers = {number.setdefault(x, len(number)) for x in (*row.items(), *combinations(values, 2))}
        meetings.append(sum(1 << x for x in numbers))
    missing = (1 << len(number)) - 1
    chosen = []
    for least in range(len(axes) * (len(axes) + 1) // 2, 0, -1):  # first the rows that bring together the most
        for index, new in enumerate(meetings):
            if (new & missing).bit_count() >= least:
                missing &= ~new
                chosen.append(index)
    return [tuple(rows[index].values()) for index in chosen]


@pytest.fixture
def kernels_of() -> Callable[[str], list[str]]:
    """The names of `attn_implementation` that a mixer can be computed by, the reference first."""
    return lambda mixer: ["eager", *attention_names(LionConfig(num_hidden_layers=2, **mixer_fields(mixer))), "auto"]


@pytest.fixture
def find_case() -> Callable[[str], Case]:
    """The case of a class by name: `find_case("LionForMaskedLM")`, `find_case("LionModel", "image")`."""
    return lambda name, modality="": next(c for c in CASES if c.class_name == name and modality in c.modality)


@pytest.fixture
def equal() -> Callable[..., None]:
    return assert_equal
