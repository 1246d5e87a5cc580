# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a document costs on a CPU: encoders of base width in torch (float32, bfloat16, int8), ONNX Runtime and OpenVINO,
LION-LIT, LION-S, the recommended recipe and ModernBERT-base with linear layers, beside BERT and ModernBERT-base, each
exported with its own tools: LION by `lion export`, the others by the exporter of transformers. "BERT in pieces" reads
a document in pieces of 256 tokens, eight at a time; "ModernBERT-base exact" has the weights and the results of
ModernBERT-base, made by `lion convert --layers none`, so that its windows take linear time.

    python benchmarks/bench_deploy.py              # 128 to 32,768 tokens: most of an hour
    python benchmarks/bench_deploy.py --quick      # two models, short documents

One document at a time, one thread, CPU time. Of every model two layers are measured, or three where there are windows,
a period of ModernBERT. Up to `LONG` tokens the models take turns, and medians count. A longer document is computed
three times, of which the last one counts (runtimes allocate anew until then), or once if that takes more than `SLOW`
seconds. Errors and peak memory are of a process for each model and runtime. `error` is the largest difference from the
same model in torch in float32, over the largest output; a document for which the memory does not suffice has a row
without a time. Rows go to deploy.csv, a runtime at a time.
"""

import argparse
import copy
import gc
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from bench_models import make_model
from deploy_lion.export.export_checkpoint import (
    DTYPES,
    quiet,
    save_int8,
    unfuse_residual_norms,
    write_onnx,
    write_openvino,
)
from deploy_lion.export.exported import FILES, ExportedModel
from measure import (
    append_rows,
    forget_peak_memory,
    host_seconds,
    in_new_process,
    interleaved,
    limit_memory,
    make_parser,
    peak_memory,
    summary,
)
from report import write_pages
from reports.deploy import EXACT, LAYERS, MEASURED_LAYERS, PIECES
from reports.names import BASE
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from configuration_lion import lion_preset
from modeling_lion import LionModel, LionPreTrainedModel, linearize


TORCH_DTYPES = ("float32", "bfloat16", "int8")
RUNTIMES = [("torch", dtype) for dtype in TORCH_DTYPES]
RUNTIMES += [(runtime, dtype) for runtime, dtypes in DTYPES.items() for dtype in dtypes if dtype != "float16"]
LONG, SLOW = 2048, 60.0
# The published ModernBERT has no more positions. (BERT has 512; this one has a table for all.)
MODERN_BERT_POSITIONS = 8192
PIECE, PIECES_AT_ONCE = 256, 8
# A name, a runtime and a dtype.
Case = tuple[str, str, str]
# As different runtimes say it.
NO_MEMORY = re.compile(r"bad_alloc|allocat|out of memory", re.IGNORECASE)


def make_encoder(name: str, layers: int | None, longest: int) -> nn.Module:
    """Base width; "LION" is the recommended preset. Random weights."""
    layers = layers or MEASURED_LAYERS[name]
    if name == "LION":
        torch.manual_seed(0)
        encoder = LionModel(lion_preset("lion-text-base", num_hidden_layers=layers))
    elif name == EXACT:
        theirs = make_encoder(BASE[0], layers, longest)
        encoder = linearize(copy.deepcopy(theirs), layers=[])
        check_equal(encoder, theirs)
    else:
        text = f"{name} text" if name in ("LION-LIT", "LION-S") else "BERT" if name == PIECES else name
        encoder = make_model(text, layers, longest).base_model
    encoder.pooler = None
    return encoder.eval()


@torch.no_grad()
def check_equal(ours: nn.Module, theirs: nn.Module) -> None:
    """A ValueError if two encoders differ by more than rounding."""
    ours, theirs = (encoder(**document(300, batch=2)).last_hidden_state for encoder in (ours.eval(), theirs.eval()))
    if not (error := relative_error(ours, theirs)) < 1e-4:
        raise ValueError(f"The conversion differs from its source by {error:.1e} of the largest output.")


class InPieces:
    """An encoder of short texts for a longer one, `(1, length)`: its pieces are texts of their own."""

    def __init__(self, encode: Callable):
        self.encode = encode

    def __call__(self, **inputs: torch.Tensor) -> BaseModelOutput:
        if inputs["input_ids"].shape[1] <= PIECE:
            return self.encode(**inputs)
        batches = zip(*(x.view(-1, PIECE).split(PIECES_AT_ONCE) for x in inputs.values()), strict=True)
        states = [self.encode(**dict(zip(inputs, batch, strict=True))).last_hidden_state for batch in batches]
        return BaseModelOutput(torch.cat(states).flatten(0, 1).unsqueeze(0))


def reader(name: str, encode: Callable) -> Callable:
    """How a model reads a document: whole, or in pieces."""
    return InPieces(encode) if name == PIECES else encode


def can_read(name: str, length: int) -> bool:
    """The published ModernBERT has positions for 8192 tokens."""
    return name not in (BASE[0], EXACT) or length <= MODERN_BERT_POSITIONS


def document(length: int, batch: int = 1) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 30000, (batch, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def write_graph(encoder: nn.Module, path: Path, dtype: str) -> None:
    if isinstance(encoder, LionPreTrainedModel) or encoder.config.model_type.startswith("lion-"):
        write_onnx(encoder, path, dtype)
        return
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    inputs = document(300, batch=2)  # more than a window
    if encoder.config.model_type == "bert":
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.config.max_position_embeddings)}
    with quiet():
        graph = OnnxExporter().export(encoder, inputs, config=OnnxConfig(dynamic_shapes=dict.fromkeys(inputs, sizes)))
    unfuse_residual_norms(graph.program)
    if dtype == "int8":
        save_int8(graph.program, path, [], False)
    else:
        onnx_ir.save(graph.program, path)


def write_graphs(encoder: nn.Module, folder: Path, runtime: str, dtype: str) -> None:
    """As `lion export` does. What ONNX Runtime and OpenVINO share is traced once."""
    encoder.config.save_pretrained(folder)
    narrow = "int8" if dtype == "int8" else "float32"
    graph = folder.parent / f"{narrow}.onnx"
    if not graph.exists():
        write_graph(encoder, graph, narrow)
    path = folder / FILES["onnx"]
    shutil.copy(graph, path)
    if runtime == "openvino":
        write_openvino(path, folder / FILES[runtime], dtype)


def in_torch(encoder: nn.Module, dtype: str) -> nn.Module:
    """The encoder in a dtype; int8 is the dynamic quantisation of its linear layers but those of decays."""
    if dtype == "int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its successor, which needs a compiler
            return torch.ao.quantization.quantize_dynamic(encoder, {nn.Linear}, torch.qint8)
    return encoder if dtype == "float32" else copy.deepcopy(encoder).to(torch.bfloat16)


def open_encoder(encoder: nn.Module, runtime: str, dtype: str, folder: Path) -> nn.Module:
    if runtime == "torch":
        return in_torch(encoder, dtype)
    return ExportedModel(folder, threads=torch.get_num_threads())


def hidden_states(encode: Callable, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return encode(**inputs).last_hidden_state.float()


def relative_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found - truth).abs().max() / truth.abs().max())


def encode_document(encode: Callable, length: int) -> tuple[torch.Tensor, float]:
    """Hidden states, and the seconds of the last time that counts."""
    inputs, outputs = document(length), []
    for _ in range(3 if length > LONG else 1):
        outputs.clear()
        seconds = host_seconds(lambda: outputs.append(hidden_states(encode, inputs)))
        if seconds > SLOW:
            break
    return outputs[0], seconds


def encode_alone(case: Case, layers: int | None, lengths: list[int], folder: Path) -> list[dict]:
    """
    Columns for a document of each of these lengths, which ascend, in a process of its own: time, error and peak
    memory; empty ones where memory does not suffice. Compares with the outputs in torch in float32, if it has been
    measured before; it keeps them beside the folder.
    """
    name, runtime, dtype = case
    encoder = make_encoder(name, layers, max(lengths)) if runtime == "torch" else None
    encode = reader(name, open_encoder(encoder, runtime, dtype, folder))
    del encoder  # of which a copy may have been made
    gc.collect()
    limit_memory()
    forget_peak_memory()
    rows = []
    for length in lengths:
        row = {"length": length} | dict.fromkeys(("median", "min", "max", "error", "peak_memory_bytes"))
        rows.append(row)
        try:
            output, seconds = encode_document(encode, length)
        except Exception as error:  # every runtime has its own
            if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
                raise
            continue
        row |= summary([seconds]) | {"peak_memory_bytes": peak_memory()}
        truth = folder.parent / f"{length}.pt"
        if (runtime, dtype) == RUNTIMES[0]:
            torch.save(output, truth)
        row["error"] = relative_error(output, torch.load(truth)) if truth.exists() else None
    return rows


def times_in_turn(encoders: dict[str, nn.Module], length: int, runtime: str, dtype: str, folders, repeats: int):
    """Columns for the time of a document, by model; `folders` are those of the models."""
    functions = {
        name: partial(
            hidden_states, reader(name, open_encoder(encoder, runtime, dtype, folders[name])), document(length)
        )
        for name, encoder in encoders.items()
    }
    return {name: summary(seconds) for name, seconds in interleaved(functions, repeats).items()}


def main(args: list[str] | None = None) -> None:
    parser: argparse.ArgumentParser = make_parser(__doc__, "BERT and LION-S, short documents", goes_on=False)
    parser.add_argument("--layers", type=int, help="layers of all models (default: 2, or 3 with windows)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048, 4096, 8192, 32768])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    parser.add_argument("--runtimes", nargs="+", choices=["-".join(x) for x in RUNTIMES], help="not given: all")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.lengths, args.repeats, args.models = [128, 512], 3, ["BERT", "LION-S"]
    lengths = sorted(args.lengths)

    with tempfile.TemporaryDirectory() as temporary:
        encoders = {name: make_encoder(name, args.layers, max(lengths)) for name in args.models}
        chosen = [x for x in RUNTIMES if args.runtimes is None or "-".join(x) in args.runtimes]
        for runtime, dtype in chosen:
            rows, folders = {}, {name: Path(temporary) / name / f"{runtime}-{dtype}" for name in args.models}
            for name, encoder in encoders.items():
                folders[name].mkdir(parents=True)
                if runtime != "torch":
                    write_graphs(encoder, folders[name], runtime, dtype)
                about = {"model": name, "runtime": runtime, "dtype": dtype}
                about |= {"layers": encoder.config.num_hidden_layers, "batch": 1}
                readable = [length for length in lengths if can_read(name, length)]
                arguments = (name, runtime, dtype), args.layers, readable, folders[name]
                for row in in_new_process(encode_alone, *arguments):
                    rows[name, row["length"]] = about | row
            for length in [n for n in lengths if n <= LONG]:
                times = times_in_turn(encoders, length, runtime, dtype, folders, args.repeats)
                for name, columns in times.items():
                    rows[name, length] |= columns
            for row in rows.values():
                print(*list(row.values())[:7], f"error {row['error']}", flush=True)
            append_rows(args.output_dir / "deploy.csv", list(rows.values()))
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
