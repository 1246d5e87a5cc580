# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a document costs on a CPU: encoders of base width in torch (float32, bfloat16, int8), ONNX Runtime and OpenVINO,
LION-LIT, LION-S and the recommended recipe beside BERT, each exported with its own tools: LION by `lion export`, BERT
by the exporter of transformers.

    python benchmarks/bench_deploy.py              # 128 to 4096 tokens, two layers
    python benchmarks/bench_deploy.py --quick      # one layer, short documents

One document at a time, one thread, CPU time, the models and BERT in torch in turn, medians. `ratio` is to BERT in the
same runtime and dtype, `ratio_to_torch` to BERT in torch in float32; `error` is the largest difference from the same
model in torch in float32, over the largest output. Peak memory is that of a process that computes the longest one.
Rows go to deploy.csv.
"""

import argparse
import copy
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from bench_models import make_model
from hub_upload_lion.export import DTYPES, quiet, save_int8, write_onnx, write_openvino
from hub_upload_lion.exported import FILES, ExportedModel
from measure import append_rows, in_new_process, interleaved, make_parser, peak_memory, summary
from torch import nn

from configuration_lion import lion_preset
from modeling_lion import LionModel, LionPreTrainedModel


MODELS = ("BERT", "LION-LIT", "LION-S", "LION")
TORCH_DTYPES = ("float32", "bfloat16", "int8")
PEERS = {"ratio": "of BERT", "ratio_to_torch": "of BERT in torch"}
RUNTIMES = [("torch", dtype) for dtype in TORCH_DTYPES]
RUNTIMES += [(runtime, dtype) for runtime, dtypes in DTYPES.items() for dtype in dtypes if dtype != "float16"]


def make_encoder(name: str, layers: int, longest: int) -> nn.Module:
    """Base width; "LION" is the recommended preset. Random weights."""
    if name == "LION":
        torch.manual_seed(0)
        encoder = LionModel(lion_preset("lion-text-base", num_hidden_layers=layers))
    else:
        encoder = make_model(f"{name} text" if name != "BERT" else name, layers, longest).base_model
    encoder.pooler = None
    return encoder.eval()


def document(length: int, batch: int = 1) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 30000, (batch, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def write_graph(encoder: nn.Module, path: Path, dtype: str) -> None:
    if isinstance(encoder, LionPreTrainedModel):
        write_onnx(encoder, path, dtype)
        return
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    inputs = document(100, batch=2)
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.config.max_position_embeddings)}
    with quiet():
        graph = OnnxExporter().export(encoder, inputs, config=OnnxConfig(dynamic_shapes=dict.fromkeys(inputs, sizes)))
    if dtype == "int8":
        save_int8(graph.program, path, [], False)
    else:
        onnx_ir.save(graph.program, path)


def write_folder(encoder: nn.Module, folder: Path, runtime: str, dtype: str) -> None:
    """As `lion export` does. What ONNX Runtime and OpenVINO share is traced once."""
    folder.mkdir(parents=True)
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


def peak_memory_of(name: str, layers: int, longest: int, runtime: str, dtype: str, folder: Path) -> int:
    """Of a process that loads a model and encodes a document of `longest` tokens."""
    if runtime == "torch":
        encoder = in_torch(make_encoder(name, layers, longest), dtype)
    else:
        encoder = ExportedModel(folder, threads=1)
    with torch.no_grad():
        encoder(**document(longest))
    return peak_memory()


def hidden_states(encode: Callable, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return encode(**inputs).last_hidden_state.float()


def relative_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found - truth).abs().max() / truth.abs().max())


def main(args: list[str] | None = None) -> None:
    parser: argparse.ArgumentParser = make_parser(__doc__, "one layer, short documents, no memory")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no_memory", action="store_true", help="leave out peak memory, a process for each case")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.layers, args.lengths, args.repeats = 1, [128, 512], 3
    longest = max(args.lengths)

    with tempfile.TemporaryDirectory() as temporary:
        encoders = {name: make_encoder(name, args.layers, longest) for name in args.models}
        folders, memory = {}, {}
        for case in itertools.product(args.models, RUNTIMES):
            name, (runtime, dtype) = case
            folders[case] = Path(temporary) / name / f"{runtime}-{dtype}"
            if runtime != "torch":
                write_folder(encoders[name], folders[case], runtime, dtype)
            if not (args.quick or args.no_memory):
                arguments = name, args.layers, longest, runtime, dtype, folders[case]
                memory[case] = in_new_process(peak_memory_of, *arguments)
        for length in args.lengths:
            truth = {name: hidden_states(encoder, document(length)) for name, encoder in encoders.items()}
            for runtime, dtype in RUNTIMES:  # one at a time: what a runtime has allocated it keeps
                calls = {
                    name: in_torch(encoder, dtype)
                    if runtime == "torch"
                    else ExportedModel(folders[name, (runtime, dtype)], threads=args.threads)
                    for name, encoder in encoders.items()
                }
                functions = {name: partial(hidden_states, call, document(length)) for name, call in calls.items()}
                errors = {name: relative_error(encode(), truth[name]) for name, encode in functions.items()}
                if "BERT" in encoders:
                    functions["torch"] = partial(hidden_states, encoders["BERT"], document(length))
                times = {name: summary(seconds) for name, seconds in interleaved(functions, args.repeats).items()}
                rows = []
                for name in args.models:
                    row = {"model": name, "runtime": runtime, "dtype": dtype, "layers": args.layers}
                    row |= {"length": length, "batch": 1} | times[name]
                    for column, peer in (("ratio", "BERT"), ("ratio_to_torch", "torch")):
                        row[column] = row["median"] / times[peer]["median"] if peer in times else None
                    peak = memory.get((name, (runtime, dtype))) if length == longest else None
                    rows.append(row | {"error": errors[name], "peak_memory_bytes": peak})
                    ratios = ", ".join(f"{row[c]:.2f} {of}" for c, of in PEERS.items() if row[c] is not None)
                    print(length, runtime, dtype, name, f"{row['median'] * 1e3:.1f} ms", ratios, flush=True)
                append_rows(args.output_dir / "deploy.csv", rows)


if __name__ == "__main__":
    main()
