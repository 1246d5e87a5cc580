# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion export`: a checkpoint as a graph for ONNX Runtime or OpenVINO, compared with torch."""

import argparse
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.export import Dim

from configuration_lion import LionConfig
from modeling_lion import LionPreTrainedModel
from modeling_lion.attention.export_graph import choosing_graphs

from ..checkpoint import copy_file, find_checkpoint, load_model, load_preprocessor, new_folder
from ..sample_inputs import pad_sequences
from ..sentence_modules import MODULES, encoder_class, read_modules, sentence_files
from ..timing import cpu_seconds
from ..verify import COARSEST, print_table
from .exported import FILES, PRECISION, ExportedModel, check_installed


DTYPES = {"onnx": ("float32", "float16", "int8"), "openvino": ("float32", "float16", "bfloat16", "int8")}
FORMS = ("auto", "chunk", "parallel")
LONG_TEXT = 2048
REFUSED = {
    "LionForMultipleChoice": "its inputs have a dimension of choices: export a LionForSequenceClassification",
    "LionForMaskedImageModeling": "it takes a mask of patches: export the encoder, saved as LionModel",
}
# Weights with fewer elements stay as they are in float16 and int8.
FEW = 4096
# How many times the rounding of torch in the same numbers a graph may be off; measured: up to 2, 0.8 and 1 times. In
# bfloat16, in which OpenVINO computes decays, too, as torch never does, `COARSEST` takes its place.
ALLOWANCE = {"float32": 8, "float16": 2, "int8": 2}


@dataclass(frozen=True)
class Comparison:
    """
    One input, in the runtime and in torch.

    Attributes:
        inputs: in words.
        error: the largest difference of any output from torch in float32. scale: the largest absolute output.
        tolerance: what `error` may be; `None` where it is only measured.
        seconds, torch_seconds: per call, CPU time with one thread, medians; `None` where not measured.
    """

    inputs: str
    error: float
    scale: float
    seconds: float | None = None
    torch_seconds: float | None = None
    tolerance: float | None = None


def export_checkpoint(
    checkpoint: str | Path,
    output_dir: str | Path,
    to: str = "onnx",
    *,
    dtype: str = "float32",
    attn_implementation: str = "auto",
    lengths: tuple[int, ...] = (128, 512, LONG_TEXT),
    revision: str | None = None,
) -> list[Comparison]:
    """
    Write a checkpoint as a graph that takes any batch and any length, and compare it with torch.

    Args:
        checkpoint: folder, Trainer output or Hub repository; of an encoder of sentence-transformers, its modules
            come along.
        output_dir: is made only if everything succeeds: `model.onnx` or `openvino_model.xml` and `.bin`, config.json,
            tokenizer or image processor.
        to: `"onnx"` or `"openvino"`.
        dtype: `"float32"`; `"float16"`, weights in half precision, computed with in float32; `"int8"`, weights, and
            activations where the runtime has them, of linear layers, without those that make decays and learnt
            feature maps; `"bfloat16"` (OpenVINO), computed in where the CPU can.
        attn_implementation: of linear attention: `"auto"` chooses by the length when the graph runs.
        lengths: of texts whose time is measured; as far as the model has positions.
        revision: of a Hub repository.

    Returns:
        For each input the error against torch, its tolerance, and the seconds of both.

    Raises:
        ValueError: for what cannot be exported, and if the graph does not compute what the model does (`compare`).
        ImportError: if a package is not installed.
        FileExistsError: if the output folder is not empty.
    """
    if to not in FILES:
        raise ValueError(f"`to` is {to!r}; give one of {', '.join(FILES)}.")
    if dtype not in DTYPES[to]:
        raise ValueError(f"`dtype` is {dtype!r}; {to} has {', '.join(DTYPES[to])} on CPUs.")
    if attn_implementation not in FORMS:
        raise ValueError(f"`attn_implementation` is {attn_implementation!r}; a graph has {', '.join(FORMS)}.")
    check_installed("export", ["onnx", "onnxscript", "onnxruntime", *["openvino"] * (to == "openvino")])
    with new_folder(output_dir) as folder:
        model = load_model(checkpoint, dtype=torch.float32, revision=revision)
        modality, config = model.config.modality, model.config
        source = Path(checkpoint)
        if source.is_dir():
            source = find_checkpoint(source)
        preprocessor = load_preprocessor(modality, source, checkpoint, required=False, revision=revision)
        if source.is_dir() and save_modules(source, folder) == "SentenceTransformer":
            model = model.base_model
            model.pooler = None  # sentence-transformers has its own
        check_exportable(model, attn_implementation)
        if config.has_linear_layers:
            model.set_attn_implementation(attn_implementation)
        config.save_pretrained(folder)
        if preprocessor is not None:
            preprocessor.save_pretrained(folder)
        path = folder / FILES["onnx"]
        write_onnx(model, path, dtype)
        if to == "openvino":
            write_openvino(path, folder / FILES[to], dtype)
        if config.has_linear_layers:
            model.set_attn_implementation("auto")
        return compare(model, folder, dtype, lengths)


def check_exportable(model: LionPreTrainedModel, attn_implementation: str) -> None:
    """Raise a ValueError for a model of which there is no graph."""
    name = type(model).__name__
    if name in REFUSED:
        raise ValueError(f"A {name} cannot be exported: {REFUSED[name]}.")
    if model.config.mixer_type == "diagonal" and attn_implementation == "parallel":
        raise ValueError('`attn_implementation="parallel"` has no graph with `mixer_type` \'diagonal\': use "chunk".')


def save_modules(source: Path, folder: Path) -> str | None:
    """
    Copy what sentence-transformers saves beside a model, with a first module that runs the graph; the class of the
    encoder, `None` where the source is of no such encoder.
    """
    names = sentence_files(source)
    if not names:
        return None
    for name in names:
        copy_file(source / name, folder / name)
    modules = read_modules(source / MODULES)
    for module in modules:
        if not module["path"]:
            module["type"] = "hub_upload_lion.exported_sentence.ExportedTransformer"
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    return encoder_class(source)


def random_inputs(config: LionConfig, batch: int, length: int, padding: str = "right") -> dict[str, Tensor]:
    """Texts of several lengths, the longest of `length` tokens, padded; or images, for which the length is nothing."""
    generator = torch.Generator().manual_seed(length)
    if config.modality == "image":
        return {"pixel_values": torch.randn(batch, config.num_channels, *config.image_shape, generator=generator)}
    lengths = torch.linspace(length, 1, batch).round().int().tolist()
    rows = [torch.randint(config.vocab_size, (n,), generator=generator) for n in lengths]
    ids, mask = (x[:, :length] if padding == "right" else x for x in pad_sequences(rows, padding, 0))
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.type_vocab_size > 1:
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, ids.shape, generator=generator)
    return inputs


def trace_sizes(config: LionConfig) -> tuple[dict[str, torch.Tensor], dict[str, dict[int, Dim]]]:
    """Inputs to trace the model with, and which of their dimensions stay free."""
    batch = Dim("batch")
    if config.modality == "image":
        return random_inputs(config, 2, 1), {"pixel_values": {0: batch}}
    limit, chunk = config.longest_text, config.chunk_size
    # More than a chunk, of which the graph would be another with a chunk to spare. Nothing of it is left in the graph,
    # which takes shorter texts, too.
    shortest = chunk + 1 if limit is None or limit > 2 * chunk else 2
    length = Dim("length", min=shortest, max=limit)
    inputs = random_inputs(config, 2, min(5 * chunk + 7, limit or 5 * chunk + 7))
    return inputs, {name: {0: batch, 1: length} for name in inputs}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the exporters of torch and transformers say of themselves."""
    names = ("transformers", "torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@torch.no_grad()
def write_onnx(model: LionPreTrainedModel, path: Path, dtype: str) -> None:
    """The graph of a model in float32 or with narrower weights; weights of more than a gigabyte are beside it."""
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    inputs, shapes = trace_sizes(model.config)
    options = OnnxConfig(dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True)
    with quiet(), choosing_graphs():
        graph = OnnxExporter().export(model, inputs, config=options).program
    unfuse_residual_norms(graph)
    is_large = sum(p.numel() * 4 for p in model.parameters()) > 2**30
    data = f"{path.name}_data" if is_large else None
    if dtype == "float16":
        halve_weights(graph, decay_weights(model))
    if dtype == "int8":
        excluded = [
            node.name for node in graph.graph if node.op_type == "MatMul" and reads(node, decay_weights(model))
        ]
        save_int8(graph, path, excluded, data is not None)
    else:
        onnx_ir.save(graph, path, external_data=data)


def save_int8(graph, path: Path, excluded: list[str], is_large: bool) -> None:
    """
    Save a graph whose products with constant weights are of int8, the activations by their range in each call.
    Products with a matrix for each head stay as they are: ONNX Runtime has none of those in int8.

    Args:
        excluded: names of nodes that stay as they are.
        is_large: whether weights go beside the graph.
    """
    import onnx_ir
    from onnxruntime.quantization import QuantType, quantize_dynamic

    of_heads = [node.name for node in graph.graph if any(x.ndim > 2 for x in constants(node))]
    proto = onnx_ir.to_proto(graph)
    del proto.graph.value_info[:]  # shapes of products that the quantiser writes differently
    with quiet():
        quantize_dynamic(
            proto,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[*excluded, *of_heads],
            use_external_data_format=is_large,
        )


def unfuse_residual_norms(graph) -> None:
    """
    Add residuals by Sum before a LayerNormalization. ONNX Runtime would fuse an Add with it, into an operator that
    takes four times as long as both on a CPU (7.0 against 1.5 ms at 2048 x 768).
    """
    for node in graph.graph:
        before = node.inputs[0].producer() if node.op_type == "LayerNormalization" else None
        if before is not None and before.op_type == "Add":
            before.op_type = "Sum"


def decay_weights(model: LionPreTrainedModel) -> list[Tensor]:
    """Of the layers that make decays, which stay float32 (SPEC §5)."""
    return [p.detach() for name, p in model.named_parameters() if "decay" in name and p.dim() > 1]


def reads(node, weights: list[Tensor]) -> bool:
    """Whether one of these weights, or its transpose, is a constant input of a node."""
    found = [torch.from_numpy(x.copy()) for x in constants(node) if x.ndim == 2]
    return any(torch.equal(x, y) for x in found for w in weights for y in (w, w.T) if x.shape == y.shape)


def constants(node) -> list:
    """The constant inputs of a node, as arrays of NumPy."""
    return [x.const_value.numpy() for x in node.inputs if x is not None and x.const_value is not None]


def halve_weights(graph, kept: list[Tensor]) -> None:
    """Store weights in float16 and widen them before they are used, which a runtime does once, when it loads."""
    import numpy
    import onnx_ir

    for value in list(graph.graph.initializers.values()):
        weights = value.const_value.numpy()
        users = [node for node, _ in value.uses()]
        if weights.dtype != numpy.float32 or weights.size < FEW or any(reads(node, kept) for node in users):
            continue
        if abs(weights).max() > numpy.finfo(numpy.float16).max:
            raise ValueError(
                f"A weight of up to {abs(weights).max():.3g} does not fit into float16: export with dtype float32."
            )
        narrow = onnx_ir.val(f"{value.name}_float16", const_value=onnx_ir.tensor(weights.astype(numpy.float16)))
        graph.graph.register_initializer(narrow)
        wide = onnx_ir.node("Cast", [narrow], {"to": onnx_ir.DataType.FLOAT.value})
        wide.outputs[0].shape, wide.outputs[0].type = value.shape, value.type
        graph.graph.insert_before(graph.graph[0], wide)
        value.replace_all_uses_with(wide.outputs[0])
        del graph.graph.initializers[value.name]


def write_openvino(graph: Path, path: Path, dtype: str) -> None:
    """A graph of ONNX as OpenVINO's files, in place of it. The precision to compute in is stored with it."""
    import openvino

    model = openvino.Core().read_model(graph)
    # Else a CPU with bfloat16 products would compute everything with them, decays included.
    model.set_rt_info("bf16" if dtype == "bfloat16" else "f32", PRECISION)
    openvino.save_model(model, path, compress_to_fp16=False)
    del model  # maps the weights
    for file in path.parent.glob(f"{graph.name}*"):
        file.unlink()


@torch.no_grad()
def compare(
    model: LionPreTrainedModel, folder: Path, dtype: str, lengths: tuple[int, ...], repeats: int = 5
) -> list[Comparison]:
    """
    Errors on batches of texts, padded left, right and in between, of one token and of several chunks, or on images;
    and times.

    Raises:
        ValueError: if an error is above its tolerance: `ALLOWANCE` times the rounding of torch in the same numbers, on
            the same inputs; in bfloat16 `COARSEST` of the largest output.
    """
    rounded = in_numbers_of(model, dtype)
    exported = ExportedModel(folder, threads=1)
    config = model.config
    limit = config.longest_text
    chunk = config.chunk_size
    sizes = [(1, 1, "right"), (3, chunk // 2 + 3, "left"), (4, 3 * chunk + 5, "right"), (2, 6 * chunk, "interior")]
    if config.modality == "image":
        sizes = [(1, 1, ""), (3, 1, "")]
    found = []
    for batch, length, padding in sizes:
        length = max(1, length if limit is None else min(length, limit - 1))
        inputs = random_inputs(config, batch, length, padding)
        row = comparison(model, exported, inputs, padding if batch > 1 else "")
        tolerance = COARSEST * row.scale
        if dtype in ALLOWANCE:
            rounding = max(rounding_error(model, rounded, inputs), torch.finfo(torch.float32).eps * row.scale)
            tolerance = ALLOWANCE[dtype] * rounding
        row = replace(row, tolerance=tolerance)
        if not row.error <= row.tolerance:
            raise ValueError(
                f"The graph differs from the model by {row.error:.2g} on {row.inputs}, where outputs are up to "
                f"{row.scale:.3g} and {dtype} may round by {row.tolerance:.2g}: export with dtype float32; if it is, "
                "please report it with the configuration."
            )
        found.append(row)
    timed = [n for n in lengths if limit is None or n <= limit]
    for length in timed[:1] if config.modality == "image" else timed:
        found.append(comparison(model, exported, random_inputs(config, 1, length), "", repeats))
    return found


def comparison(
    model: LionPreTrainedModel, exported: ExportedModel, inputs: dict[str, Tensor], padding: str, repeats: int = 0
) -> Comparison:
    calls = {"exported": lambda: exported(**inputs), "torch": lambda: model(**inputs)}
    outputs, expected = (call() for call in calls.values())
    error, scale = largest_difference(outputs, expected, inputs)
    seconds = cpu_seconds(calls, repeats)
    size = " x ".join(map(str, next(iter(inputs.values())).shape))
    times = (median(s) for s in seconds.values()) if repeats else ()
    return Comparison(size + (f", padded {padding}" if padding else ""), error, scale, *times)


def largest_difference(
    outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], inputs: dict[str, Tensor]
) -> tuple[float, float]:
    """Of all outputs at real tokens: the largest difference, NaN if there is one, and the largest that is expected."""
    error = scale = 0.0
    for name, values in outputs.items():
        truth = expected[name]
        if values.shape[:2] == inputs.get("attention_mask", values.new_empty(0)).shape:  # of real tokens only
            values, truth = (x[inputs["attention_mask"].bool()] for x in (values, truth))
        error = max(error, float((values - truth).abs().max()), key=lambda x: (x != x, x))  # NaN is the largest
        scale = max(scale, float(truth.abs().max()))
    return error, scale


def in_numbers_of(model: LionPreTrainedModel, dtype: str) -> LionPreTrainedModel:
    """The model as torch computes it in the numbers of a graph; in int8, rounded to them and computed in float32."""
    if dtype not in ALLOWANCE or dtype == "float32":
        return model
    rounded = deepcopy(model)
    if dtype == "float16":
        return rounded.half()
    for name, layer in rounded.named_modules():
        if isinstance(layer, nn.Linear) and "decay" not in name:
            weight = layer.weight.detach()  # it may be tied to word embeddings, which are not rounded
            layer.weight = nn.Parameter(round_to_int8(weight, weight.abs().amax(1, keepdim=True), 127))
            layer.register_forward_pre_hook(lambda layer, args: (round_to_int8(*args, range_of(*args), 255),))
    return rounded


def range_of(x: Tensor) -> Tensor:
    """What the runtimes spread the steps of activations over: from the smallest to the largest number, 0 included."""
    return x.max().clamp(min=0) - x.min().clamp(max=0)


def round_to_int8(x: Tensor, size: Tensor, steps: int) -> Tensor:
    """`x` in so many steps of a range of a size; 0 stays 0."""
    step = size.clamp(min=torch.finfo(x.dtype).tiny) / steps
    return (x / step).round() * step


def rounding_error(model: LionPreTrainedModel, rounded: LionPreTrainedModel, inputs: dict[str, Tensor]) -> float:
    """The error of `in_numbers_of`: from float64 where it is float32 itself, else from float32."""
    cast = lambda dtype: {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
    truth = model if rounded is not model else deepcopy(model).double()
    return largest_difference(rounded(**cast(rounded.dtype)), truth(**cast(truth.dtype)), inputs)[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="folder, Trainer output or Hub repository")
    parser.add_argument("output_dir", help="folder for the graph, the configuration and the tokenizer")
    parser.add_argument("--to", choices=FILES, default="onnx", help="runtime (default: %(default)s)")
    dtypes = dict.fromkeys(name for names in DTYPES.values() for name in names)
    parser.add_argument(
        "--dtype", choices=dtypes, default="float32", help="precision of the graph (default: %(default)s)"
    )
    parser.add_argument(
        "--attn_implementation",
        choices=FORMS,
        default="auto",
        help="form of linear attention in the graph; auto (default) has two and chooses by length",
    )
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="*",
        default=[128, 512, LONG_TEXT],
        help="numbers of tokens at which to measure time (default: 128 512 2048)",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hub repository")


def run(args: argparse.Namespace) -> None:
    found = export_checkpoint(
        args.checkpoint,
        args.output_dir,
        args.to,
        dtype=args.dtype,
        attn_implementation=args.attn_implementation,
        lengths=tuple(args.lengths),
        revision=args.revision,
    )
    ms = lambda seconds: "" if seconds is None else f"{seconds * 1e3:.1f}"
    rows = [["input", "largest output", "largest error", "ms", "ms in torch", "ratio"]]
    for row in found:
        ratio = "" if row.seconds is None else f"{row.seconds / row.torch_seconds:.2f}"
        cells = [f"{row.scale:.3g}", f"{row.error:.1e}", ms(row.seconds), ms(row.torch_seconds), ratio]
        rows.append([row.inputs, *cells])
    print_table(rows)
    print(f"\nWrote {Path(args.output_dir) / FILES[args.to]} ({args.dtype}). Times: one thread, CPU time, medians.")
