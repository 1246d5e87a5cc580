# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Run exported graphs with ONNX Runtime or OpenVINO, as functions of tensors."""

import threading
from collections.abc import Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import torch
from hub_upload_lion.checkpoint import copy_file
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.modeling_outputs import ModelOutput

import modeling_lion  # noqa: F401, registers the configuration


FILES = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}
PACKAGES = {"onnx": "onnxruntime", "openvino": "openvino"}
# Weights with fewer elements stay float32 in float16 and int8 graphs.
FEW = 4096
# The names of a graph's files and of its weights begin with these.
GRAPH_FILES = ("model.onnx", "openvino_model.")
# Where OpenVINO's file stores the precision.
PRECISION = ["runtime_options", "INFERENCE_PRECISION_HINT"]


def check_installed(extra: str, modules: Iterable[str]) -> None:
    """Raise an ImportError if modules are missing. It says which extra of this package installs them."""
    if missing := [name for name in modules if find_spec(name) is None]:
        raise ImportError(
            f"{', '.join(missing)} cannot be imported: in a clone of the repository, pip install '.[{extra}]'."
        )


class ExportedModel(nn.Module):
    """
    A graph of `lion export` as a function of CPU tensors. Inputs and outputs have the names that the model uses.

    Args:
        folder: a folder with `model.onnx` or `openvino_model.xml`.
        threads: number of threads; by default as many as torch uses.

    Raises:
        ValueError: if there is neither file in the folder.
        ImportError: if the runtime is not installed.

    `cancel()` ends the forward pass of another thread with an error of the runtime, after the current operation of the
    graph. Later forward passes fail as well, until `resume()`.

    Example:

    ```python
    model = ExportedModel("my-lion-onnx")
    hidden_states = model(input_ids=torch.tensor([[5, 6, 7]])).last_hidden_state  # (1, 3, hidden_size)
    ```
    """

    def __init__(self, folder: str | Path, threads: int | None = None):
        super().__init__()
        folder = Path(folder)
        threads = torch.get_num_threads() if threads is None else threads
        self.folder, self.config = folder, AutoConfig.from_pretrained(folder)
        formats = [name for name, file in FILES.items() if (folder / file).is_file()]
        if not formats:
            raise ValueError(
                f"There is neither {' nor '.join(FILES.values())} in {folder}: make it with `lion export`."
            )
        check_installed("export", [PACKAGES[formats[0]]])
        open_session = {"onnx": open_onnx, "openvino": open_openvino}[formats[0]]
        opened = open_session(folder / FILES[formats[0]], threads)
        self.input_names, self.output_names, self.compute, self.cancel, self.resume = opened

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        return_dict: bool = True,
    ) -> ModelOutput | tuple[Tensor, ...]:
        """
        Run the graph. Inputs of other dtypes are converted to the graph's, int64 and float32.

        Args:
            input_ids: `(batch, length)`.
            attention_mask: `(batch, length)`, 0 at padding; by default no token is padding.
            token_type_ids: `(batch, length)`; by default 0.
            pixel_values: `(batch, channels, height, width)`, for graphs of image models.
            return_dict: `False` for a tuple.

        Returns:
            The outputs of the model under their names, float32.

        Raises:
            ValueError: if another input of the graph is missing.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        given["pixel_values"] = pixel_values
        if input_ids is not None:
            defaults = {"attention_mask": torch.ones_like, "token_type_ids": torch.zeros_like}
            given |= {name: make(input_ids) for name, make in defaults.items() if given[name] is None}
        missing = [name for name in self.input_names if given[name] is None]
        if missing:
            raise ValueError(f"{self.folder} takes {', '.join(self.input_names)}; give {', '.join(missing)}.")
        dtypes = {"pixel_values": torch.float32}
        inputs = {name: given[name].to("cpu", dtypes.get(name, torch.int64)) for name in self.input_names}
        parts = self.parts(inputs.get("attention_mask"))
        outputs = ModelOutput(self.run_parts(inputs, parts) if parts else self.run(inputs))
        return outputs.to_tuple() if return_dict is False else outputs

    def run_parts(self, inputs: dict[str, Tensor], parts: list[tuple[Tensor, int, int]]) -> dict[str, Tensor]:
        """Run the graph once for each of the `parts` of a batch, and put their outputs together."""
        found = [self.run({name: x[rows, begin:end] for name, x in inputs.items()}) for rows, begin, end in parts]
        batch, width = inputs["attention_mask"].shape
        outputs: dict[str, Tensor] = {}
        for name, first in found[0].items():
            is_of_tokens = first.dim() > 2 or name in ("start_logits", "end_logits")
            outputs[name] = first.new_zeros(batch, *([width, *first.shape[2:]] if is_of_tokens else first.shape[1:]))
            for (rows, begin, end), part in zip(parts, found, strict=True):
                if is_of_tokens:
                    outputs[name][rows, begin:end] = part[name]
                else:
                    outputs[name][rows] = part[name]
        return outputs

    def run(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run the graph once."""
        outputs = self.compute({name: x.contiguous().numpy() for name, x in inputs.items()})
        return dict(zip(self.output_names, map(torch.from_numpy, outputs), strict=True))

    def parts(self, mask: Tensor | None) -> list[tuple[Tensor, int, int]]:
        """
        Return the parts of a batch that must be run by themselves: their rows, first column and end. Empty if one run
        is enough. The graph of a linearized model is exact up to `lion_exact_length` columns, padding included, and
        torch up to as many real tokens in a row. So short rows beside long ones are run by themselves.
        """
        exact = getattr(self.config, "lion_exact_length", None)
        if exact is None or mask is None or mask.dim() != 2 or mask.shape[1] <= exact:
            return []
        # If the position of a token is its column, padding in front of it must stay.
        first = torch.zeros(len(mask), dtype=torch.int64)
        if getattr(self.config, "lion_position_table", None) is None:
            first = mask.argmax(1)
        end = mask.shape[1] - mask.flip(1).argmax(1)
        is_short = (end - first <= exact) & mask.any(1)
        if not is_short.any():
            return []
        parts = [] if is_short.all() else [(torch.nonzero(~is_short)[:, 0], 0, mask.shape[1])]
        for begin in first[is_short].unique().tolist():
            rows = torch.nonzero(is_short & (first == begin))[:, 0]
            parts.append((rows, begin, int(end[rows].max())))
        return parts

    def save_pretrained(self, save_directory: str | Path, **kwargs) -> None:
        """Copy the graph, its weights and the configuration to a folder. `SentenceTransformer.save` calls this."""
        target = Path(save_directory)
        target.mkdir(parents=True, exist_ok=True)
        if target.resolve() == self.folder.resolve():
            return
        self.config.save_pretrained(target)
        for file in sorted(self.folder.iterdir()):
            if file.name.startswith(GRAPH_FILES):
                copy_file(file, target / file.name)


def open_onnx(path: Path, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # CPUs without VNNI instructions add pairs of 8-bit products in 16 bits, where they saturate: outputs of a small
    # model were off by a third. With this setting, such CPUs (and no others) compute exact sums, 1.1 times as slow.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs, outputs = ([x.name for x in both] for both in (session.get_inputs(), session.get_outputs()))
    run = onnxruntime.RunOptions()

    compute = lambda feeds: session.run(outputs, feeds, run)
    terminate = partial(setattr, run, "terminate")
    return inputs, outputs, compute, partial(terminate, True), partial(terminate, False)


@cache
def openvino_core():
    """
    Return the only `openvino.Core` of this process.

    The CPU plugin of a core sets a stack for signals (for AMX), and restores the previous one when it ends. If the
    first of two cores ends first, the second one restores a stack that no longer exists. Then the next signal that
    Python handles, such as that of a data loader's worker that exits, ends the process.
    """
    import openvino

    return openvino.Core()


def open_openvino(path: Path, threads: int):
    core = openvino_core()
    model, options = core.read_model(path), {"INFERENCE_NUM_THREADS": threads}
    if model.has_rt_info(PRECISION):  # OpenVINO does not apply it, and the default of some CPUs is bfloat16
        options[PRECISION[-1]] = model.get_rt_info(PRECISION).astype(str)
    model = core.compile_model(model, "CPU", options)
    inputs, outputs = ([x.get_any_name() for x in both] for both in (model.inputs, model.outputs))
    request, is_cancelled = model.create_infer_request(), threading.Event()

    def compute(feeds: dict) -> list:
        if is_cancelled.is_set():
            raise RuntimeError("The inference was cancelled before it began.")
        request.start_async(feeds)
        if is_cancelled.is_set():  # since just before the start, when there was nothing to cancel
            request.cancel()
        request.wait()
        return [request.get_output_tensor(i).data.copy() for i in range(len(outputs))]

    def cancel() -> None:
        is_cancelled.set()
        request.cancel()

    return inputs, outputs, compute, cancel, is_cancelled.clear
