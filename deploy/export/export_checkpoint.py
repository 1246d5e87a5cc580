# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion export`: write a checkpoint as a graph for ONNX Runtime or OpenVINO, and compare it with torch."""

import argparse
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import torch
from hub_upload_lion.checkpoint import copy_file, find_checkpoint, load_model, load_preprocessor, new_folder
from hub_upload_lion.sentence_modules import MODULES, encoder_class, encoder_folder, read_modules, sentence_files
from hub_upload_lion.traits import CHUNK, traits_of
from hub_upload_lion.verify import print_table
from torch import Tensor
from torch.export import Dim
from transformers import PreTrainedModel

from modeling_lion.attention.export_graph import Choice, choosing_graphs
from modeling_lion.linearized.graph_choice import LinearizedChoice
from modeling_lion.linearized.model_inputs import BUFFERED_POSITIONS
from modeling_lion.mixers.mixer import Mixer

from .compare_with_torch import Comparison, compare, random_inputs
from .exported import FEW, FILES, PRECISION, check_installed, openvino_core


DTYPES = {"onnx": ("float32", "float16", "int8"), "openvino": ("float32", "float16", "bfloat16", "int8")}
FORMS = ("auto", "chunk", "parallel")
LENGTHS = (128, 512, 2048, 8192)  # tokens, at which to measure times
LONGEST_IN_GRAPH = BUFFERED_POSITIONS  # for models without a limit: some encoders have a buffer of positions
REFUSED = {
    "LionForMultipleChoice": "its inputs have a dimension of choices: export a LionForSequenceClassification",
    "LionForMaskedImageModeling": "it takes a mask of patches: export the encoder, saved as LionModel",
}


def export_checkpoint(
    checkpoint: str | Path,
    output_dir: str | Path,
    to: str = "onnx",
    *,
    dtype: str = "float32",
    attn_implementation: str = "auto",
    lengths: tuple[int, ...] = LENGTHS,
    revision: str | None = None,
) -> list[Comparison]:
    """
    Write a checkpoint as a graph for any batch size and length, and compare it with torch.

    Args:
        checkpoint: folder, Trainer output or Hub repository; for an encoder of sentence-transformers, its modules are
            copied.
        output_dir: created only if everything succeeds: `model.onnx` or `openvino_model.xml` and `.bin`, config.json,
            tokenizer or image processor.
        to: `"onnx"` or `"openvino"`.
        dtype: `"float32"`; `"float16"`: weights in half precision, computation in float32; `"int8"`: weights, and
            activations if the runtime supports them, of linear layers other than those of decays and learnt feature
            maps, and of tables of embeddings; `"bfloat16"` (OpenVINO): computation in bfloat16 if the CPU supports it.
        attn_implementation: the form of linear attention; `"auto"` chooses by the length at run time.
        lengths: lengths of the texts to time, as far as the model has positions for them.
        revision: branch, tag or commit of a Hub repository.

    Returns:
        For each input the error against torch, its tolerance, and the seconds of both.

    Raises:
        ValueError: if the model cannot be exported, or the graph differs from the model (`compare`).
        ImportError: if a package is not installed.
        FileExistsError: if the output folder is not empty.
    """
    if to not in FILES:
        raise ValueError(f"`to` is {to!r}; give one of {', '.join(FILES)}.")
    if dtype not in DTYPES[to]:
        raise ValueError(f"`dtype` is {dtype!r}; {to} has {', '.join(DTYPES[to])} on CPUs.")
    if attn_implementation not in FORMS:
        raise ValueError(f"`attn_implementation` is {attn_implementation!r}; a graph has {', '.join(FORMS)}.")
    if wrong := [length for length in lengths if length < 1]:
        raise ValueError(f"`lengths` has {wrong[0]}; give numbers of tokens from 1 on, or none.")
    check_installed("export", ["onnx", "onnxscript", "onnxruntime", *["openvino"] * (to == "openvino")])
    source = find_checkpoint(checkpoint) if Path(checkpoint).is_dir() else checkpoint
    with new_folder(output_dir) as folder, encoder_folder(source, revision) as encoder:
        model = load_model(checkpoint, dtype=torch.float32, revision=revision)
        traits = traits_of(model)
        names = {form: name for name, form in traits.forms.items()}
        preprocessor = load_preprocessor(traits.modality, source, checkpoint, required=False, revision=revision)
        if encoder is not None and save_modules(encoder, folder) == "SentenceTransformer":
            model = model.base_model
            model.pooler = None  # sentence-transformers has its own
        check_exportable(model, attn_implementation)
        if attn_implementation in names:
            model.set_attn_implementation(names[attn_implementation])
        model.config.save_pretrained(folder)
        if preprocessor is not None:
            preprocessor.save_pretrained(folder)
        path = folder / FILES["onnx"]
        write_onnx(model, path, dtype)
        if to == "openvino":
            write_openvino(path, folder / FILES[to], dtype)
        if attn_implementation in names:
            model.set_attn_implementation(traits.default_form)
        return compare(model, folder, dtype, lengths)


def check_exportable(model: PreTrainedModel, attn_implementation: str) -> None:
    """Raise a ValueError for a model that cannot be exported."""
    name = type(model).__name__
    if name in REFUSED:
        raise ValueError(f"A {name} cannot be exported: {REFUSED[name]}.")
    if traits_of(model).modality == "audio":
        raise ValueError(f"A {name} cannot be exported: it reads sounds, and graphs are of texts and images.")
    forms = traits_of(model).forms.values()
    if "sdpa" not in forms and attn_implementation not in forms:
        raise ValueError(f"`attn_implementation` is {attn_implementation!r}; this {name} has {', '.join(forms)}.")
    mixers = {module for module in model.modules() if isinstance(module, Mixer)}
    if traits_of(model).modality == "text" and not all(mixer.takes_padding for mixer in mixers):
        raise ValueError(
            f"A {name} with the mixer {model.config.mixer_type!r} cannot be exported: its method `mix` takes the "
            "sequences of a batch one by one, and a graph is for all lengths. A `forward` that takes batches can be."
        )


def save_modules(source: Path, folder: Path) -> str:
    """Copy the files of sentence-transformers, with a first module that runs the graph. Returns the class."""
    for name in sentence_files(source):
        copy_file(source / name, folder / name)
    modules = read_modules(source / MODULES)
    for module in modules:
        if not module["path"]:
            module["type"] = "deploy_lion.export.exported_sentence.ExportedTransformer"
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    return encoder_class(source)


def trace_sizes(model: PreTrainedModel) -> tuple[dict[str, torch.Tensor], dict[str, dict[int, Dim]]]:
    """Return inputs to trace the model with, and their dynamic dimensions."""
    batch, traits = Dim("batch"), traits_of(model)
    if traits.modality == "image":
        return random_inputs(model, 2, 1), {"pixel_values": {0: batch}}
    limit, chunk = traits.longest_text, traits.chunk_size
    # More than a chunk: otherwise the graph would have a spare chunk. The graph does not check the minimum, and also
    # takes shorter texts.
    shortest = chunk + 1 if limit is None or limit > 2 * chunk else 2
    length = Dim("length", min=shortest, max=limit or LONGEST_IN_GRAPH)
    inputs = random_inputs(model, 2, min(5 * chunk + 7, limit or 5 * chunk + 7))
    return inputs, {name: {0: batch, 1: length} for name in inputs}


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages of the exporters of torch and transformers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


@torch.no_grad()
def trace(model: PreTrainedModel):
    """Return the graph of a model in float32, an `onnx_ir.Model`."""
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    inputs, shapes = trace_sizes(model)
    options = OnnxConfig(dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True, optimize=False)
    with quiet(), choosing_graphs() as choices:
        graph = OnnxExporter().export(model, inputs, config=options).program
        add_choices(graph, choices, options.opset_version)
        simplify(graph)
    unfuse_residual_norms(graph)
    return graph


def write_onnx(model: PreTrainedModel, path: Path, dtype: str) -> None:
    """Write the graph of a model. More than 1 GiB of weights go into a file beside it."""
    import onnx_ir

    graph = trace(model)
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


class Branch(torch.nn.Module):
    """A function of tensors as a module, as exporters require."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def add_choices(model, choices: Sequence[Choice | LinearizedChoice], opset_version: int | None) -> None:
    """
    Add the functions that an ONNX model calls to choose a branch by length (`choosing_graphs`).

    Each branch is traced once. Exporters trace a `torch.cond` many times, which took two thirds of an export.
    """
    import onnx_ir

    for number, choice in enumerate(choices):
        branches = [export_branch(branch, choice, opset_version) for branch in (choice.short, choice.long)]
        inputs = [
            onnx_ir.val(f"choice_input_{n}", type=x.type, shape=x.shape) for n, x in enumerate(branches[0].inputs)
        ]
        graphs = [as_subgraph(branch, name, inputs) for branch, name in zip(branches, ("short", "long"), strict=True)]
        longest = onnx_ir.node("Constant", [], {"value": onnx_ir.tensor([choice.longest], onnx_ir.DataType.INT64)})
        length = onnx_ir.node("Shape", [inputs[0]], {"start": 2, "end": 3})
        is_short = onnx_ir.node("LessOrEqual", [length.outputs[0], longest.outputs[0]])
        attributes = dict(zip(("then_branch", "else_branch"), graphs, strict=True))
        chosen = onnx_ir.node("If", is_short.outputs, attributes, num_outputs=len(graphs[0].outputs))
        for output, of_branch in zip(chosen.outputs, graphs[0].outputs, strict=True):
            output.type = of_branch.type
        nodes = [longest, length, is_short, chosen]
        graph = onnx_ir.Graph(inputs, chosen.outputs, nodes=nodes, opset_imports=dict(branches[0].opset_imports))
        function = onnx_ir.Function("lion", f"Choice{number}", graph=graph, attributes=[])
        model.functions[function.identifier()] = function


def export_branch(
    branch: Callable[..., tuple[Tensor, ...]], choice: Choice | LinearizedChoice, opset_version: int | None
):
    """Export a branch as a graph for any batch size and length."""
    batch, length = Dim("batch"), Dim("length", min=choice.least_length)
    inputs, shapes = [], []
    for sizes, dtype in zip(choice.sizes, choice.dtypes, strict=True):
        shapes.append({i: length if i else batch for i, n in enumerate(sizes) if n is None})
        traced = [2, *[4 * max(CHUNK, choice.least_length) + 7] * 3]  # for unknown sizes
        inputs.append(torch.zeros([n or traced[i] for i, n in enumerate(sizes)], dtype=dtype))
    program = torch.export.export(
        Branch(branch),
        tuple(inputs),
        dynamic_shapes=(tuple(shapes),),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    return torch.onnx.export(program, opset_version=opset_version, optimize=False, verbose=False).model.graph


def as_subgraph(graph, name: str, inputs: list):
    """Make a graph a branch of an `If`, which reads values of the graph around it instead of inputs."""
    import onnx_ir

    for own, outer in zip(graph.inputs, inputs, strict=True):
        own.replace_all_uses_with(outer)
    for node in graph.all_nodes():
        for value in node.outputs:
            value.name = f"{name}_{value.name}"
    initializers, nodes, outputs = list(graph.initializers.values()), list(graph), list(graph.outputs)
    graph.initializers.clear()
    graph.outputs.clear()
    graph.remove(nodes)
    for value in initializers:
        value.name = f"{name}_{value.name}"
    return onnx_ir.Graph([], outputs, nodes=nodes, initializers=initializers, name=name)


def simplify(model) -> None:
    """
    Inline the functions of an ONNX model, fold constants, and remove what is not used.

    The exporter's own `optimize` also looks for fusions. That takes as long as the rest of an export, and a runtime
    does the same when it loads a graph: times and results of the graphs are equal.
    """
    from onnx_ir.passes import common
    from onnxscript import optimizer

    common.InlinePass()(model)
    optimizer.fold_constants(model)
    for simplification in (
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
    ):
        simplification(model)


def save_int8(graph, path: Path, excluded: list[str], is_large: bool) -> None:
    """
    Save a graph whose products with constant weights are in int8. Activations are quantised by their range in each
    call. Products with a matrix per head are not changed: ONNX Runtime does not support them in int8.

    Args:
        excluded: names of nodes that are not changed.
        is_large: write weights to a file beside the graph.
    """
    import onnx_ir
    from onnxruntime.quantization import QuantType, quantize_dynamic

    narrow_tables(graph)
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


def narrow_tables(graph) -> None:
    """Store tables of embeddings as int8 with a scale for each row. The graph widens the rows that it reads."""
    import numpy
    import onnx_ir

    for node in list(graph.graph):
        table = node.inputs[0].const_value if node.op_type == "Gather" else None
        if table is None or len(table.shape) != 2 or table.size < FEW or table.dtype != onnx_ir.DataType.FLOAT:
            continue
        weights = table.numpy()
        steps = abs(weights).max(1, keepdims=True).clip(numpy.finfo(numpy.float32).tiny) / 127
        name, (_, ids), (rows,) = node.inputs[0].name, node.inputs, node.outputs
        found = []
        for kind, values in (("int8", (weights / steps).round().astype(numpy.int8)), ("steps", steps)):
            value = onnx_ir.val(f"{name}_{kind}", const_value=onnx_ir.tensor(values))
            graph.graph.register_initializer(value)
            found.append(onnx_ir.node("Gather", [value, ids], {"axis": 0}))
        cast = onnx_ir.node("Cast", [found[0].outputs[0]], {"to": onnx_ir.DataType.FLOAT.value})
        wide = onnx_ir.node("Mul", [cast.outputs[0], found[1].outputs[0]])
        wide.outputs[0].shape, wide.outputs[0].type = rows.shape, rows.type
        graph.graph.insert_before(node, [*found, cast, wide])
        rows.replace_all_uses_with(wide.outputs[0])
        graph.graph.remove(node, safe=True)
    for name in [name for name, value in graph.graph.initializers.items() if not value.uses()]:
        del graph.graph.initializers[name]


def unfuse_residual_norms(graph) -> None:
    """
    Replace Add by Sum for residuals before a LayerNormalization. ONNX Runtime would fuse both into an operator that
    takes four times as long on a CPU (7.0 against 1.5 ms at 2048 x 768).
    """
    for node in graph.graph:
        before = node.inputs[0].producer() if node.op_type == "LayerNormalization" else None
        if before is not None and before.op_type == "Add":
            before.op_type = "Sum"


def decay_weights(model: PreTrainedModel) -> list[Tensor]:
    """Return the weights of the layers that compute decays, which stay float32 (SPEC §5)."""
    return [p.detach() for name, p in model.named_parameters() if "decay" in name and p.dim() > 1]


def reads(node, weights: list[Tensor]) -> bool:
    """Return whether one of these weights, or its transpose, is a constant input of a node."""
    found = [torch.from_numpy(x.copy()) for x in constants(node) if x.ndim == 2]
    return any(torch.equal(x, y) for x in found for w in weights for y in (w, w.T) if x.shape == y.shape)


def constants(node) -> list:
    """Return the constant inputs of a node as NumPy arrays."""
    return [x.const_value.numpy() for x in node.inputs if x is not None and x.const_value is not None]


def halve_weights(graph, kept: list[Tensor]) -> None:
    """Store weights in float16, with casts to float32, which a runtime computes once when it loads the graph."""
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
    """Replace an ONNX graph by files of OpenVINO, which also store the precision of the computation."""
    import openvino

    model = openvino_core().read_model(graph)
    # Otherwise a CPU with bfloat16 products would use them for everything, also for decays.
    model.set_rt_info("bf16" if dtype == "bfloat16" else "f32", PRECISION)
    openvino.save_model(model, path, compress_to_fp16=False)
    del model  # maps the weights
    for file in path.parent.glob(f"{graph.name}*"):
        file.unlink()


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
        default=LENGTHS,
        help="numbers of tokens at which to measure time (default: 128 512 2048 8192)",
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
        ratio = "" if row.seconds is None or row.torch_seconds is None else f"{row.seconds / row.torch_seconds:.2f}"
        cells = [f"{row.scale:.3g}", f"{row.error:.1e}", ms(row.seconds), ms(row.torch_seconds), ratio]
        rows.append([row.inputs, *cells])
    print_table(rows)
    print(f"\nWrote {Path(args.output_dir) / FILES[args.to]} ({args.dtype}). Times: one thread, CPU time, medians.")
