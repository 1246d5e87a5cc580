# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Mistakes that the tests must catch: `python tests/tools/mutants.py [--list] [--jobs N] [names or parts of names]`.

Each mutant changes one expression of one function, in a copy of the repository, and runs the tests that should
notice. First these tests run on the copy as it is, where all must pass. A test that is left out, or run with fewer
parameters, is left out rightly if every mutant is still caught. With `--quick` only the tests that `make test` runs
are tried: they miss what needs several processes, Triton's interpreter, both runtimes and a killed training.

A function is found by its name, wherever its file is, and an expression as `ast.unparse` writes it: without comments,
line breaks and double quotes. So a mutant outlives a move or a new layout of the code around it.
"""

import argparse
import ast
import importlib
import os
import shutil
import sys
import tempfile
import textwrap
import traceback
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import tomllib  # new in Python 3.11


ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
# The folder of each package.
PACKAGES = {name: SETUPTOOLS["package-dir"].get(name, name) for name in SETUPTOOLS["packages"] if "." not in name}


class Mutant(NamedTuple):
    """
    A mistake: in `function`, `old`, which is there once, becomes `new`.

    Args:
        function: name, with that of its class or of its module (`module.name`) if several have it.
        tests: files of tests/, or tests in them.
    """

    name: str
    function: str
    old: str
    new: str
    tests: str


DIRECTIONS = "test_attention.py::test_alternating_directions"
NAIVE = "test_attention.py::test_kernels_agree_with_the_naive_form"
PACKED = "test_modeling_lion.py::test_packed_sequences_equal_single_ones"
PADDING = "test_modeling_lion.py::test_padding_changes_nothing"

MUTANTS = [
    Mutant(
        "mask: the decay of the query counts instead of the key's",
        "chunk_sums",
        "from_start=torch.cat((torch.zeros_like(forward[..., :1]), forward[..., :-1].cumsum(-1)), dim=-1),",
        "from_start=forward.cumsum(-1),",
        "test_decay_mask.py",
    ),
    Mutant(
        "mask: to the left, the source loses nothing",
        "chunk_sums",
        "to_start=backward.cumsum(-1)",
        "to_start=backward.cumsum(-1) - backward",
        "test_decay_mask.py",
    ),
    Mutant(
        "mask: a border between packed sequences stops what goes right only",
        "finite_log_decay",
        "backward.masked_fill(first, floor)",
        "backward",
        "test_decay_mask.py",
    ),
    Mutant(
        "mask: borders of packed sequences one token late",
        "finite_log_decay",
        "last.index_fill(0, borders - 1, True)",
        "last.index_fill(0, borders, True)",
        "test_decay_mask.py",
    ),
    Mutant("mask: a decay of 0 is not quite 0", "log_decay_floor", "else -110.0", "else -50.0", "test_decay_mask.py"),
    Mutant(
        "mask: cuts are not counted",
        "mask_of",
        "exponent.masked_fill(num_cuts != 0, -torch.inf).exp()",
        "exponent.exp()",
        "test_decay_mask.py",
    ),
    Mutant(
        "mask: rows of it start at the key",
        "decay_mask_rows",
        "forward.unsqueeze(-2).where(position < query, 0)",
        "forward.unsqueeze(-2).where(position <= query, 0)",
        "test_report.py",
    ),
    Mutant(
        "kernels: no scale where nothing is divided", "normalize", "numerator * head_dim ** (-0.5)", "numerator", NAIVE
    ),
    Mutant(
        "kernels: division by denominators of 0",
        "divide",
        "torch.where(is_zero, 0, numerator / torch.where(is_zero, 1, denominator))",
        "numerator / denominator",
        "test_attention.py::test_zero_denominators_give_zero",
    ),
    Mutant(
        "rnn: a token counts itself twice",
        "rnn_body",
        "split_ones(ahead + back.flip(2) - own)",
        "split_ones(ahead + back.flip(2))",
        NAIVE,
    ),
    Mutant(
        "chunk, plain: a state loses its first step in each block",
        "chunk_body",
        "to_end[..., :1, :])",
        "from_start[..., -1:, :])",
        "test_attention.py::test_gradients_that_are_differentiated_are_the_same",
    ),
    Mutant(
        "gradients: no second derivatives",
        "gradients_of_plain",
        "torch.autograd.grad(results, wanted, grads, create_graph=True, allow_unused=True)",
        "torch.autograd.grad(results, wanted, grads, allow_unused=True)",
        "test_attention.py::test_gradcheck",
    ),
    Mutant(
        "directions: backward decays are the forward ones",
        "finite_log_decay",
        "log_decay.backward is log_decay.forward else finite(log_decay.backward)",
        "log_decay.backward is log_decay.forward else forward",
        "test_decay_mask.py",
    ),
    Mutant(
        "segments: what comes from the right is read as from the left",
        "segment_attention",
        "@ border_states.backward",
        "@ border_states.forward",
        "test_segments.py",
    ),
    Mutant(
        "segments: states do not decay from segment to segment",
        "pass_borders",
        "forward.append(pass_through(forward[-1], states.forward_factor, states.forward))",
        "forward.append(states.forward + forward[-1])",
        "test_segments.py",
    ),
    Mutant(
        "processes: positions start anew in every slice",
        "SharedLayout.tokens_before",
        "return self.counts[:dist.get_rank(self.group)]",
        "return 0 * self.counts[: dist.get_rank(self.group)]",
        "test_sequence_parallel.py::test_equals_one_process",
    ),
    Mutant(
        "tiles: a convolution does not see the next tile",
        "LinearMixer.features.of_tile",
        "around.tile(tile, self.config.conv_kernel // 2)",
        "around.tile(tile, 0)",
        "test_tiles.py::test_equals_all_at_once",
    ),
    Mutant(
        "rotary: angles in float32",
        "LionRotaryEmbedding.forward",
        "wide, dtype = (wide_dtype(x.device), accumulation_dtype(x.dtype))",
        "wide = dtype = accumulation_dtype(x.dtype)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: padding is numbered inside packed sequences",
        "token_positions",
        "return (last - before).clamp(min=0)",
        "return (token - first).unsqueeze(0)",
        "test_rotary.py",
    ),
    Mutant(
        "window: one token too few on each side",
        "window_mask",
        ".abs() <= reach",
        ".abs() < reach",
        "test_hybrid.py",
    ),
    Mutant(
        "window: tiles with padding are taken for tiles without",
        "tiles",
        "if count is not None and count[left] < count[right]:",
        "if count is not None and count[first] < count[last]:",
        "test_softmax_window.py",
    ),
    Mutant(
        "local window: the gate opens the window",
        "LocalWindow.join",
        "log_sum - self.gate.",
        "log_sum + self.gate.",
        "test_branches.py::test_the_gate_leaves_either_branch",
    ),
    Mutant(
        "block: the gate and what it lets through are exchanged",
        "LionMLP.forward",
        "self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)",
        "self.activation(self.up_proj(hidden_states)) * self.gate_proj(hidden_states)",
        "test_modeling_lion.py::test_a_gated_mlp_is_that_of_llama",
    ),
    Mutant(
        "lion_local: windows are one token too wide",
        "lion_local_attention",
        "sliding_window - ADDED_TO_WINDOW[type_of_source(module.config)]",
        "sliding_window",
        "test_lion_local.py",
    ),
    Mutant(
        "scans: of columns as of rows",
        "scan_orders",
        "(curve(grid), curve(grid.T))",
        "(curve(grid), curve(grid))",
        "test_scans.py",
    ),
    Mutant(
        "padding: its keys are seen",
        "Tokens.zero_padding",
        "x * self.is_real.view(*x.shape[:2], *[1] * (x.dim() - 2)).to(x.dtype)",
        "x * 1",
        PADDING,
    ),
    Mutant(
        "padding: it decays",
        "Tokens.fold",
        "log_decay = torch.where(self.is_real[:, None], log_decay, 0)",
        "log_decay = torch.where(self.is_real[:, None], log_decay, log_decay)",
        PADDING,
    ),
    Mutant(
        "padding: ignored where any token is real", "may_pad", "bool(is_real.all())", "bool(is_real.any())", PADDING
    ),
    Mutant(
        "padding: it is numbered",
        "token_positions",
        "is_real.cumsum(dim=1) - 1",
        "token.unsqueeze(0)",
        "test_modeling_lion.py::test_padding_changes_nothing test_rotary.py",
    ),
    Mutant(
        "padding: the first token of a row is pooled, real or not",
        "LionPooler.reduce",
        "first = is_real.int().argmax(dim=1)",
        "first = is_real.int().argmax(dim=1) * 0",
        PADDING,
    ),
    Mutant(
        "padding: it counts in the mean",
        "mean_of_real",
        "weights.sum(dim=1, dtype=dtype).clamp(min=1)",
        "weights.shape[1]",
        PADDING,
    ),
    Mutant(
        "packing: a padded position 0 starts a sequence",
        "packed_borders",
        "follows & (position_ids[:, 1:] == first) & ~rises",
        "(position_ids[:, 1:] == first) & ~rises",
        "test_modeling_lion.py::test_positions_of_padding_start_no_sequence",
    ),
    Mutant(
        "packing: restarts of position_ids are not noticed",
        "packed_borders",
        "if not begins.any():",
        "if True:",
        PACKED,
    ),
    Mutant(
        "packing: a graph does not look at position_ids",
        "packed_borders",
        "~begins.any()",
        "begins.any() | True",
        "test_modeling_lion.py::test_graphs_ignore_no_packing",
    ),
    Mutant(
        "decays: a conversion to half precision rounds them",
        "Float32Parameters._apply",
        "x.dtype.itemsize < 4 and name in before",
        "False",
        "mixers/test_delta.py::test_decays_of_new_models_in_half_precision_are_float32",
    ),
    Mutant(
        "model: nothing is dropped from mixed values",
        "LionAttention.project",
        "return self.o_proj(self.dropout(output))",
        "return self.o_proj(output)",
        "test_modeling_lion.py::test_attention_dropout_is_the_same_in_every_kernel",
    ),
    Mutant(
        "model: the norm before the attention is left out",
        "LionLayer.forward",
        "self.attention(self.normed(hidden_states), layout, **kwargs)",
        "self.attention(hidden_states, layout, **kwargs)",
        "test_softmax.py",
    ),
    Mutant(
        "model: attention weights of the chosen kernel only",
        "LionAttention.forward",
        "if weights is None and output_attentions:",
        "if False:",
        "test_conformance.py::test_capture_of_hidden_states_and_attentions",
    ),
    Mutant(
        "model: sdpa accepted for linear attention",
        "name_of_form",
        "(*attention_names(config), 'eager')",
        "(*attention_names(config), 'eager', 'sdpa')",
        "test_attn_implementation.py::test_other_names_are_refused",
    ),
    Mutant(
        "mixers: of a mixer that knows no padding, padded tokens are mixed, too",
        "Tokens.sequences_as_rows",
        "real if self.is_real is None else real[self.is_real.flatten()]",
        "real",
        "test_own_mixers.py::test_padded_and_packed_tokens_are_mixed_as_defined",
    ),
    Mutant(
        "mixers: Luna forgets its memory from layer to layer",
        "LunaMixer.forward",
        "self.memory_norm(packed + memory)",
        "self.memory_norm(packed)",
        "test_luna.py",
    ),
    Mutant(
        "convolution: taps reach over the borders of packed sequences",
        "ConvBorders.of",
        "is_inside = (window == inside) & (sequence(inside) == sequence(tokens).unsqueeze(1))",
        "is_inside = window == inside",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: half of SiLU' is missing where it is differentiated again",
        "differentiate_convolution",
        "(1 + y * (-y).sigmoid())",
        "1",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: padding is convolved",
        "LinearMixer.features_of",
        "query, key, value = map(tokens.contiguous().zero_padding, (query, key, value))",
        "query, key, value = (query, key, value)",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: all tokens are sorted where some are padded",
        "has_inner_padding",
        "return bool((begins.sum(1) > 1).any())",
        "return True",
        "test_short_conv.py",
    ),
    Mutant(
        "embeddings: ids outside of the table",
        "check_ids",
        "if low < 0 or high > highest:",
        "if high > highest:",
        "test_bad_input.py::test_wrong_inputs",
    ),
    Mutant(
        "heads: choices are scored as if each were of another question",
        "LionForMultipleChoice.forward",
        ".view(len(given[0]), num_choices, -1)",
        ".view(num_choices, len(given[0]), -1).transpose(0, 1)",
        "test_modeling_lion.py::test_batch_equals_singles",
    ),
    Mutant(
        "heads: packed choices are scored in the order of their rows",
        "LionForMultipleChoice.forward",
        ".transpose(1, 2)",
        "",
        "test_modeling_lion.py::test_packed_choices_belong_to_their_questions",
    ),
    Mutant(
        "losses: many labels and regression are not divided when gradients accumulate",
        "classification_loss",
        "return loss * labels.numel() / num_items_in_batch",
        "return loss",
        "test_modeling_lion.py::test_losses_of_parts_of_a_batch_add_up",
    ),
    Mutant(
        "forward mode: kernels hide the derivative",
        "is_transformed",
        "or forward_ad._current_level >= 0",
        "",
        "test_transforms.py",
    ),
    Mutant(
        "triton: the factor from the start counts the token itself",
        "store_decays",
        "tl.exp2(tl.cumsum(before * LOG2_E, 1))",
        "tl.exp2(tl.cumsum(at * LOG2_E, 1))",
        "test_triton.py::test_in_the_interpreter",
    ),
    Mutant(
        "triton: the decay of a key before a tile is that of the keys before it",
        "next_keys",
        "reverse=IS_BEFORE",
        "reverse=not IS_BEFORE",
        "test_triton.py::test_in_the_interpreter",
    ),
    Mutant(
        "triton: the remainder of an output has the other sign",
        "output_kernel",
        "y -= y.to(output[0].dtype.element_ty).to(tl.float32)",
        "y = y.to(output[0].dtype.element_ty).to(tl.float32) - y",
        "test_triton.py::test_in_the_interpreter",
    ),
    Mutant(
        "triton: what is rounded to TensorFloat-32 may become a number",
        "tile_products.factor",
        "tl.where(x == x, rounded, x)",
        "rounded",
        "test_triton.py::test_in_the_interpreter",
    ),
    Mutant(
        "triton: a CUDA graph captures plain operations",
        "allows_custom_op",
        "torch.jit.is_tracing()",
        "is_tracing()",
        "test_triton.py::test_a_cuda_graph_captures_the_kernel",
    ),
]


class Place(NamedTuple):
    """A function in a file."""

    path: Path
    node: ast.FunctionDef

    @property
    def lines(self) -> tuple[int, int]:
        """The first and the last line, from 1, with decorators."""
        return min([self.node.lineno, *(x.lineno for x in self.node.decorator_list)]), self.node.end_lineno


@cache
def functions() -> dict[str, list[Place]]:
    """All functions of the packages and examples, by `name`, `Class.name` and `module.name`."""
    found = defaultdict(list)

    def collect(path: Path, node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                here = (*names, child.name)
                if isinstance(child, ast.FunctionDef):
                    for name in (".".join(here), ".".join((path.stem, *here))):
                        found[name].append(Place(path, child))
                collect(path, child, here)

    for folder in (*PACKAGES.values(), "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            collect(path, ast.parse(path.read_text(encoding="utf-8")), ())
    return found


def mutate(mutant: Mutant) -> tuple[Path, str]:
    """
    The file that has the function, relative to the repository, and its text with the mistake.

    Raises:
        ValueError: if the function or the expression is not there once.
    """
    places = functions().get(mutant.function, [])
    if len(places) != 1:
        raise ValueError(
            f"{mutant.name!r}: {len(places)} functions have the name {mutant.function!r}, and must be one; "
            "add the name of its class or module."
        )
    path, node = places[0]
    code = ast.unparse(node)
    if code.count(mutant.old) != 1 or mutant.old == mutant.new:
        raise ValueError(
            f"{mutant.name!r}: {mutant.old!r} is {code.count(mutant.old)} times in {mutant.function} as ast.unparse "
            "writes it, and must be there once and become something else."
        )
    mistake = textwrap.indent(code.replace(mutant.old, mutant.new), " " * node.col_offset)
    ast.parse(textwrap.dedent(mistake))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first, last = places[0].lines
    return path.relative_to(ROOT), "".join([*lines[: first - 1], mistake, "\n", *lines[last:]])


def copy_repository(folder: Path) -> Path:
    """Copy the repository into `folder`, with links by which its packages are imported."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "outputs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "repository", ignore=ignored)
    (folder / "packages").mkdir()
    for package, source in PACKAGES.items():
        (folder / "packages" / package).symlink_to(folder / "repository" / source)
    return folder


def start_tests(folder: Path, tests: str, is_quick: bool) -> int:
    """Run pytest in a fork of this process, which has the libraries already; its output goes to a file."""
    if pid := os.fork():
        return pid
    status = 3
    try:
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder / "repository")
        os.environ["PYTHONPATH"] = str(folder / "packages")
        sys.path[:1] = [str(folder / "packages")]  # instead of the folder of this file
        options = [
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        if is_quick:
            options += ["-m", "not slow"]
        status = pytest.main([*options, *(path_of(test) for test in dict.fromkeys(tests.split()))])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def path_of(test: str) -> str:
    """
    A test as pytest wants it, with its folder.

    Raises:
        ValueError: if there is no such file, or no such test in it.
    """
    name, *rest = test.split("::")
    (path,) = (ROOT / "tests").rglob(name)
    if rest and f"def {rest[0]}(" not in path.read_text(encoding="utf-8"):
        raise ValueError(f"{path} has no test {rest[0]!r}.")
    path = path.relative_to(ROOT)
    return "::".join([str(path), *rest])


def write(file: Path, text: str, folder: Path) -> None:
    (folder / "repository" / file).write_text(text, encoding="utf-8")


def verdict(folder: Path, status: int) -> str:
    """Tell from a finished run of the tests whether its mutant was caught, and by which test."""
    printed = (folder / "output.txt").read_text(encoding="utf-8")
    if os.waitstatus_to_exitcode(status) in (0, pytest.ExitCode.NO_TESTS_COLLECTED):  # none of them is quick
        return "SURVIVED"
    if os.waitstatus_to_exitcode(status) != 1:
        return f"BROKEN: the tests could not run.\n{printed[-2000:]}\n"
    failed = [
        line.split(" - ")[0].split(" ", 1)[1] for line in printed.splitlines() if line[:6] in ("FAILED", "ERROR ")
    ]
    return f"caught by {' '.join(failed)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of mutants; all if not given")
    parser.add_argument("--list", action="store_true", help="print the names and check that all fit; run nothing")
    parser.add_argument("--quick", action="store_true", help="only tests that `make test` runs")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    args = parser.parse_args()
    mutants = [m for m in MUTANTS if not args.names or any(name in m.name for name in args.names)]
    texts = {mutant: mutate(mutant) for mutant in mutants}  # before anything runs: all must fit
    if args.list:
        print(*(f"{mutant.name} ({file})" for mutant, (file, _) in texts.items()), sep="\n")
        return 0
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for library in ("torch", "transformers.trainer", "transformers.modeling_utils", "datasets"):
        importlib.import_module(library)  # takes seconds, and is no part of this repository
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        idle = [copy_repository(Path(temporary, str(n))) for n in range(args.jobs)]
        waiting: list[Mutant | None] = [None, *mutants]  # the first: no mistake at all
        running = {}
        while waiting or running:
            if waiting and idle:
                mutant, folder = waiting.pop(0), idle.pop()
                if mutant is not None:
                    write(*texts[mutant], folder)
                tests = mutant.tests if mutant else " ".join(x.tests for x in mutants)
                running[start_tests(folder, tests, args.quick)] = (mutant, folder)
                continue
            pid, status = os.wait()
            mutant, folder = running.pop(pid)
            said = verdict(folder, status)
            idle.append(folder)
            print(f"{mutant.name if mutant else 'no mutant at all'}: {said}", flush=True)
            if mutant is not None:
                file = texts[mutant][0]
                write(file, (ROOT / file).read_text(encoding="utf-8"), folder)
                verdicts.append(said.startswith("caught"))
            elif said != "SURVIVED":
                print("The tests fail without a mutant, and so tell nothing.")
                return 1
    print(f"{sum(verdicts)} of {len(verdicts)} caught")
    return int(not all(verdicts))


if __name__ == "__main__":
    sys.exit(main())
