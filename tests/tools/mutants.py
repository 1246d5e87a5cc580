# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Mistakes that the tests must catch: `python tests/tools/mutants.py [--list] [--jobs N] [names or parts of names]`.

Each mutant changes one place of the code, in a copy of the repository, and runs the tests that should notice. First
these tests run on the copy as it is, where all must pass. A test that is left out, or run with fewer parameters, is
left out rightly if every mutant is still caught. The whole list takes about half an hour on one core. With `--quick`
only the tests that `make test` runs are tried: they miss what needs several processes, Triton's interpreter, both
runtimes, a killed training and the modules of sentence-transformers.
"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple


os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

import pytest


# What takes seconds to import, and is no part of this repository.
for library in ("torch", "transformers.trainer", "transformers.modeling_utils", "datasets"):
    importlib.import_module(library)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "configuration_lion": "configuration_lion",
    "hub_upload_lion": "hub_upload",
    "modeling_lion": "modeling_lion",
    "tokenization_lion": "tokenization",
    "training_lion": "training",
}


class Mutant(NamedTuple):
    """A mistake: in `file`, `old`, which is there once, becomes `new`. `tests`: files of tests/, or tests in them."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MODEL, CONFORMANCE, KERNELS = "test_modeling_lion.py", "test_conformance.py", "test_attention.py"
PADDING = f"{MODEL}::test_padding_changes_nothing"
PACKED = f"{MODEL}::test_packed_sequences_equal_single_ones"
INTERPRETED = "test_triton.py::test_in_the_interpreter"
SAME_KERNELS = f"{MODEL}::test_kernels_are_equal"

MASK = [
    Mutant(
        "mask: the decay of the query counts instead of the key's",
        "modeling_lion/attention/decay.py",
        "from_start=torch.cat((torch.zeros_like(forward[..., :1]), forward[..., :-1].cumsum(-1)), dim=-1),",
        "from_start=forward.cumsum(-1),",
        "test_decay.py",
    ),
    Mutant(
        "mask: on the way left the source loses nothing",
        "modeling_lion/attention/decay.py",
        "to_start=backward.cumsum(-1),",
        "to_start=backward.cumsum(-1) - backward,",
        "test_decay.py",
    ),
    Mutant(
        "mask: a border between packed sequences stops what goes right only",
        "modeling_lion/attention/decay.py",
        "backward.masked_fill(first, floor)",
        "backward",
        "test_decay.py",
    ),
    Mutant(
        "mask: borders of packed sequences one token late",
        "modeling_lion/attention/decay.py",
        "last.index_fill(0, borders - 1, True)",
        "last.index_fill(0, borders, True)",
        "test_decay.py",
    ),
    Mutant(
        "mask: a decay of 0 is not quite 0",
        "modeling_lion/attention/decay.py",
        "else -110.0",
        "else -50.0",
        "test_decay.py",
    ),
    Mutant(
        "mask: sums over a long sequence in float32",
        "modeling_lion/attention/decay.py",
        'return torch.float32 if device.type == "mps" else torch.float64',
        "return torch.float32",
        "test_decay.py test_export.py::test_sums_over_many_blocks_keep_their_digits",
    ),
    Mutant(
        "mask: cuts are not counted",
        "modeling_lion/attention/decay.py",
        "exponent.masked_fill(num_cuts != 0, -torch.inf).exp()",
        "exponent.exp()",
        "test_decay.py",
    ),
    Mutant(
        "mask: differences of sums over more than a block",
        "modeling_lion/attention/decay.py",
        "LONGEST_CHUNK = 66",
        "LONGEST_CHUNK = 6600",
        f"test_decay.py {KERNELS}::test_long_sequence",
    ),
    Mutant(
        "mask: rows of it start at the key",
        "modeling_lion/attention/decay.py",
        "forward.unsqueeze(-2).where(position < query, 0)",
        "forward.unsqueeze(-2).where(position <= query, 0)",
        "test_report.py",
    ),
]

FORWARD = [
    Mutant(
        "kernels: no scale where nothing is divided",
        "modeling_lion/attention/numerics.py",
        "numerator * head_dim**-0.5",
        "numerator",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "kernels: division by denominators of 0",
        "modeling_lion/attention/numerics.py",
        "torch.where(is_zero, 0, numerator / torch.where(is_zero, 1, denominator))",
        "numerator / denominator",
        f"{KERNELS}::test_zero_denominators_give_zero",
    ),
    Mutant(
        "kernels: half precision is computed in half precision",
        "modeling_lion/attention/numerics.py",
        "return torch.float64 if dtype == torch.float64 else torch.float32",
        "return dtype",
        f"{CONFORMANCE}::test_decays_are_not_rounded_with_the_hidden_states {KERNELS}::test_autocast_does_not_narrow",
    ),
    Mutant(
        "rnn: a token counts itself twice",
        "modeling_lion/attention/plain.py",
        "split_ones(ahead + back.flip(2) - own)",
        "split_ones(ahead + back.flip(2))",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "rnn: the way back loses what the way there does",
        "modeling_lion/attention/plain.py",
        "log_decays = forward.unsqueeze(-1), backward.unsqueeze(-1)",
        "log_decays = forward.unsqueeze(-1), forward.unsqueeze(-1)",
        f"{KERNELS}::test_packed_sequences_are_apart",
    ),
    Mutant(
        "chunk, plain: a state loses its first step in each block",
        "modeling_lion/attention/plain.py",
        "to_end[..., :1, :])",
        "from_start[..., -1:, :])",
        f"{KERNELS}::test_gradients_that_are_differentiated_are_the_same",
    ),
    Mutant(
        "chunk: a state loses the last step of each block only",
        "modeling_lion/cpu/chunk.py",
        "return self.factors[pairs, chunks, 1, way, -1 if is_backward else 0]",
        "return self.factors[pairs, chunks, 1, way, -1]",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "graph: one decay for both directions is another one backward",
        "modeling_lion/attention/export_graph.py",
        "(query, key, value, forward) if backward is forward",
        "(query, key, value, forward, 0.5 * forward) if backward is forward",
        "test_export.py::test_a_graph_computes_what_the_model_does_in_both_runtimes",
    ),
    Mutant(
        "chunk, exported: states of the way left include their own block",
        "modeling_lion/attention/export_graph.py",
        "left = steps.cumsum(-1).exp() * (origin > to)",
        "left = steps.cumsum(-1).exp() * (origin >= to)",
        "test_export.py::test_a_kernel_exported_once_is_right_at_every_length",
    ),
    Mutant(
        "exported: what goes right loses the query's decay, too",
        "modeling_lion/attention/export_graph.py",
        "return (through if forward is backward else forward.cumsum(-1)) - forward, through",
        "return (through if forward is backward else forward.cumsum(-1)), through",
        "test_export.py::test_a_kernel_exported_once_is_right_at_every_length",
    ),
    Mutant(
        "export: a wrong graph is kept",
        "hub_upload/export/compare_with_torch.py",
        "if not row.error <= row.tolerance:",
        "if row.error > row.tolerance:",
        "test_export.py::test_what_cannot_be_exported_is_refused_by_name",
    ),
    Mutant(
        "parallel: blocks far left of a row lose too much",
        "modeling_lion/cpu/decay_mask.py",
        "keys = x.unsqueeze(-2) - first\n",
        "keys = x.unsqueeze(-2) - 0.999 * first\n",
        f"{KERNELS}::test_long_sequence",
    ),
    Mutant(
        "bfloat16: used where the CPU is slow at it",
        "modeling_lion/cpu/common.py",
        "like.dtype == torch.bfloat16 and has_fast_bfloat16()",
        "like.dtype == torch.bfloat16",
        f"{KERNELS}::test_products_in_bfloat16",
    ),
    Mutant(
        "short sequences: gradients are laid out as their copies are",
        "modeling_lion/cpu/common.py",
        "return *map(laid_out_as, inputs, gradients), d_forward, d_backward",
        "return *gradients, d_forward, d_backward",
        f"{KERNELS}::test_gradients_have_the_memory_that_compilers_expect",
    ),
]

TRANSFORMERS_WINDOWS = [
    Mutant(
        "lion_local: windows are one token too wide",
        "modeling_lion/in_transformers/local_attention.py",
        "sliding_window - ADDED_TO_WINDOW[module.config.model_type]",
        "sliding_window",
        "test_local_attention.py",
    ),
    Mutant(
        "lion_local: a sink takes no weight",
        "modeling_lion/in_transformers/local_attention.py",
        "return output * kept.transpose(1, 2).unsqueeze(-1).to(output.dtype)",
        "return output",
        "test_local_attention.py",
    ),
    Mutant(
        "lion_local: packed sequences see each other in layers without a window",
        "modeling_lion/in_transformers/local_attention.py",
        "if cu_seqlens is None and (is_dense",
        "if reach is None or (is_dense",
        "test_local_attention.py",
    ),
    Mutant(
        "lion_local: padding is seen",
        "modeling_lion/in_transformers/local_attention.py",
        "return attention_mask if may_pad(attention_mask) else None",
        "return None",
        "test_local_attention.py",
    ),
    Mutant(
        "lion_local: a soft cap is left out",
        "modeling_lion/in_transformers/local_attention.py",
        "is_eager = output_attentions or softcap is not None",
        "is_eager = output_attentions",
        "test_local_attention.py",
    ),
]

GRADIENTS = [
    Mutant(
        "gradients: no second derivatives",
        "modeling_lion/attention/custom_operator.py",
        "is_differentiable = torch.is_grad_enabled()",
        "is_differentiable = False",
        f"{KERNELS}::test_gradcheck",
    ),
    Mutant(
        "gradients: of the denominators with the wrong sign",
        "modeling_lion/cpu/common.py",
        "torch.sum(product, -1, out=d[:, :length]).neg_()",
        "torch.sum(product, -1, out=d[:, :length])",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "directions: heads of a later slice begin with the wrong one",
        "modeling_lion/cpu/common.py",
        "return s % -(-heads // pairs) * pairs",
        "return 0",
        f"{KERNELS}::test_alternating_directions_of_heads_one_by_one",
    ),
    Mutant(
        "directions: odd heads read forward, too",
        "modeling_lion/cpu/decay_mask.py",
        "return slice(first_head % 2, None, 2), slice(1 - first_head % 2, None, 2)",
        "return slice(None), slice(0)",
        f"{KERNELS}::test_alternating_directions",
    ),
    Mutant(
        "directions: packed one-way heads read over borders inside of chunks",
        "modeling_lion/cpu/decay_mask.py",
        "closed = close_directions(forward, backward, tiles.heads, head_directions)\n",
        "closed = forward, backward\n",
        f"{KERNELS}::test_alternating_directions",
    ),
    Mutant(
        "directions: the full form keeps what is between blocks in the closed direction",
        "modeling_lion/cpu/decay_mask.py",
        "out[backward].triu_(first_query)",
        "out[backward].triu_()",
        f"{KERNELS}::test_alternating_directions",
    ),
    Mutant(
        "directions: long encoding reads both ways",
        "modeling_lion/layout/border_states.py",
        "finite_log_decay(log_decay, query, head_directions=head_directions)",
        "finite_log_decay(log_decay, query)",
        "test_segments.py",
    ),
    Mutant(
        "directions: a second derivative forgets them",
        "modeling_lion/attention/custom_operator.py",
        "arguments = ctx.chunk_size, ctx.division, ctx.head_directions",
        'arguments = ctx.chunk_size, ctx.division, "both"',
        f"{KERNELS}::test_gradients_that_are_differentiated_are_the_same",
    ),
    Mutant(
        "learning: initial weights of mixers of another size",
        "modeling_lion/mixers/mixer.py",
        "init.normal_(module.weight, std=module.initializer_range)",
        "pass",
        f"{CONFORMANCE}::test_mixers_start_by_their_fan_in",
    ),
    Mutant(
        "gradients: a step takes what ends at it",
        "modeling_lion/cpu/decay_mask.py",
        ".where(step < query, 0)",
        ".where(step <= query, 0)",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "chunk: denominators have no gradient inside of blocks",
        "modeling_lion/cpu/chunk.py",
        "                g.add_(d)\n",
        "                g.add_(0 * d)\n",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "chunk: values have no gradient from other blocks",
        "modeling_lion/cpu/chunk.py",
        "    scratch.product(scaled_key, d_sum_operand, dv, adds=True)\n",
        "",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "chunk: gradients of decays for what goes right counted for the way left",
        "modeling_lion/cpu/chunk.py",
        ".sum(-1).transpose(1, 2)\n",
        ".sum(-1).transpose(1, 2).flip(1)\n",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "chunk: denominators passing through a block give its decays no gradient",
        "modeling_lion/cpu/chunk.py",
        "through += (column * d_column).squeeze(-1)",
        "through += 0 * (column * d_column).squeeze(-1)",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "chunk without decays: keys have no gradient from denominators",
        "modeling_lion/cpu/lit.py",
        '            dk.add_(torch.bmm(d.transpose(1, 2), scratch.wide("q", q)))\n',
        "",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "parallel: values have the gradient of undecayed scores",
        "modeling_lion/cpu/parallel.py",
        "multiply_(scores, mask_rows).transpose(1, 2)",
        "scores.transpose(1, 2)",
        f"{KERNELS}::test_kernels_agree_with_the_naive_form",
    ),
    Mutant(
        "parallel: keys have the gradient of the last tile only",
        "modeling_lion/cpu/parallel.py",
        "q_rows, dk, adds)",
        "q_rows, dk)",
        f"{KERNELS}::test_slices_do_not_matter",
    ),
    Mutant(
        "parallel: a fixed decay has the gradient of one sequence of the batch",
        "modeling_lion/cpu/decay_mask.py",
        "by_row.view(len(by_row), -1, *gradient.shape).sum((0, 1), dtype=gradient.dtype)",
        "by_row.view(len(by_row), -1, *gradient.shape)[:, 0].sum(0, dtype=gradient.dtype)",
        f"{KERNELS}::test_slices_of_several_sequences",
    ),
]

DIRECTIONS = [
    Mutant(
        "directions: where gradients are differentiated, each gets that of both",
        "modeling_lion/attention/custom_operator.py",
        "apart = (lambda x: x.view_as(x)) if is_differentiable",
        "apart = (lambda x: x) if is_differentiable",
        f"{KERNELS}::test_gradients_that_are_differentiated_are_the_same",
    ),
    Mutant(
        "directions: what is lost on the way back is what is lost on the way there",
        "modeling_lion/attention/decay.py",
        "log_decay.backward is log_decay.forward else finite(log_decay.backward)",
        "log_decay.backward is log_decay.forward else forward",
        "test_decay.py",
    ),
    Mutant(
        "directions: fixed decays are those of the way there",
        "modeling_lion/cpu/decay_mask.py",
        "exponent.addcmul_((backward * LOG2_E)",
        "exponent.addcmul_((forward * LOG2_E)",
        f"{KERNELS}::test_the_directions_may_differ",
    ),
    Mutant(
        "directions: gradients of fixed decays in each other's place",
        "modeling_lion/cpu/decay_mask.py",
        "d_forward, d_backward = self.d_log_decay.to(forward.dtype).T.contiguous()",
        "d_backward, d_forward = self.d_log_decay.to(forward.dtype).T.contiguous()",
        f"{KERNELS}::test_the_directions_may_differ",
    ),
    Mutant(
        "sums: denominators have no gradient",
        "modeling_lion/cpu/common.py",
        "d[:, :length] = grad_denominator",
        "d[:, :length] = 0",
        f"{KERNELS}::test_numerators_and_denominators",
    ),
    Mutant(
        "sums: numerators are divided",
        "modeling_lion/cpu/common.py",
        'if division != "later":',
        "if True:",
        f"{KERNELS}::test_numerators_and_denominators",
    ),
]

SEGMENTS = [
    Mutant(
        "segments: what comes from the right is read as from the left",
        "modeling_lion/layout/border_states.py",
        "@ border_states.backward",
        "@ border_states.forward",
        "test_segments.py",
    ),
    Mutant(
        "segments: a state keeps all of itself on its way right",
        "modeling_lion/layout/border_states.py",
        "forward.append(torch.addcmul(states.forward, forward[-1], states.forward_keep))",
        "forward.append(states.forward + forward[-1])",
        "test_segments.py",
    ),
    Mutant(
        "long encoding: padding is read",
        "modeling_lion/layout/segments.py",
        "yield segment, SegmentLayout(mask, position,",
        "yield segment, SegmentLayout(None, position,",
        "test_segments.py",
    ),
    Mutant(
        "processes: positions start anew in every slice",
        "modeling_lion/layout/sequence_parallel.py",
        "return self.counts[: dist.get_rank(self.group)]",
        "return 0 * self.counts[: dist.get_rank(self.group)]",
        "test_sequence_parallel.py::test_equals_one_process",
    ),
    Mutant(
        "processes: gradients of border states in each other's place",
        "modeling_lion/layout/sequence_parallel.py",
        "return got.backward, got.forward,",
        "return got.forward, got.backward,",
        "test_sequence_parallel.py::test_equals_one_process",
    ),
]

TILES = [
    Mutant(
        "tiles: a convolution does not see the next tile",
        "modeling_lion/mixers/linear.py",
        "tokens.tile(tile, self.config.conv_kernel // 2)",
        "tokens.tile(tile, 0)",
        "test_tiles.py::test_equals_all_at_once",
    ),
    Mutant(
        "tiles: all have the borders of the first one",
        "modeling_lion/mixers/linear.py",
        "borders.between(tile.first - some.before, tile.end + some.after)",
        "borders.between(0, some.hidden_states.shape[1])",
        "test_tiles.py",
    ),
    Mutant(
        "tiles: all have the positions of the first one",
        "modeling_lion/layout/tiles.py",
        "tuple(map(self.of, tables))",
        "tuple(x[:, : self.end - self.first] for x in tables)",
        "test_tiles.py::test_equals_all_at_once",
    ),
    Mutant(
        "tiles: of a segment, they begin with its neighbours",
        "modeling_lion/layout/halo.py",
        "first, end = self.before + tile.first, self.before + tile.end",
        "first, end = tile.first, tile.end",
        "test_tiles.py::test_long_texts_in_segments test_segments.py",
    ),
    Mutant(
        "tiles: hooks get some tokens at a time",
        "modeling_lion/layout/tiles.py",
        "return not any(has_hooks(part)",
        "return not any(False and has_hooks(part)",
        "test_tiles.py::test_what_waits_for_all_tokens_gets_them",
    ),
    Mutant(
        "passages: the name is no part of the passage behind it",
        "modeling_lion/layout/passages.py",
        "starts = starts + len(in_front) * np.searchsorted(named, starts)",
        'starts = starts + len(in_front) * np.searchsorted(named, starts, side="right")',
        "test_passages.py",
    ),
    Mutant(
        "passages: queries of one document are taken as independent",
        "examples/passages.py",
        "_, cluster_of = clusters.unique(return_inverse=True)",
        "cluster_of = torch.arange(len(clusters))",
        "test_bench_passages.py::test_errors_allow_for_queries_of_one_document",
    ),
    Mutant(
        "search: files of vectors are deleted before the one that joins them is written",
        "examples/search.py",
        "        with replaced(part) as unfinished:\n            save_file",
        "        [x.unlink(missing_ok=True) for x in self.parts if is_whole]\n"
        "        with replaced(part) as unfinished:\n            save_file",
        "test_search.py::test_a_process_that_is_killed_keeps_what_was_saved",
    ),
    Mutant(
        "search: vectors that were joined come back when their files could not be deleted",
        "examples/search.py",
        'if about["is_whole"]:',
        'if about["is_whole"] and False:',
        "test_search.py::test_a_save_writes_what_is_new",
    ),
    Mutant(
        "passages: a token that begins where a passage ends counts in both",
        "modeling_lion/layout/passages.py",
        'characters[:, 1], side="left"',
        'characters[:, 1], side="right"',
        "test_passages.py::test_passages_may_touch",
    ),
    Mutant(
        "passages: a part of a document begins anywhere",
        "modeling_lion/layout/passages.py",
        "borders.append(max(starts[(starts > borders[-1]) & (starts <= limit)], default=limit))",
        "borders.append(limit)",
        "test_passages.py",
    ),
    Mutant(
        "segments: hooks that transformers leaves on layers keep long texts in one pass",
        "modeling_lion/private_apis.py",
        '!= "output_capturing_hook"',
        '!= ""',
        "test_segments.py",
    ),
]

ROTARY = [
    Mutant(
        "rotary: channels that are not turned change places between queries and keys",
        "modeling_lion/layout/rotary.py",
        "zip((query, key), rest, strict=True)",
        "zip((query, key), rest[::-1], strict=True)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: queries and keys are turned behind the feature map",
        "modeling_lion/mixers/linear.py",
        "else rotate(query, key, tables, heads_dim=2)",
        "else rotate(self.feature_map(query), self.feature_map(key), tables, heads_dim=2)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: frequencies in half precision",
        "modeling_lion/layout/rotary.py",
        "if self.inv_freq.dtype in (torch.bfloat16, torch.float16):",
        "if False:",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: angles in float32",
        "modeling_lion/layout/rotary.py",
        "wide, dtype = wide_dtype(x.device), accumulation_dtype(x.dtype)",
        "wide = dtype = accumulation_dtype(x.dtype)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: segments of a long text start anew",
        "modeling_lion/layout/segments.py",
        "embedding(segment, position, text",
        "embedding(segment, position - position[:, :1], text",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: the length of a text counts its padding",
        "modeling_lion/layout/text.py",
        "(position_ids + 1) * is_real",
        "(position_ids + 1)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: packed texts have the length of the longest",
        "modeling_lion/layout/text.py",
        '"amax")[:, sequence]',
        '"amax").amax(1, keepdim=True)',
        "test_rotary.py",
    ),
    Mutant(
        "rotary: padding is numbered inside packed sequences",
        "modeling_lion/layout/text.py",
        "return before - before[:, first]",
        "return (token - first).unsqueeze(0)",
        "test_rotary.py",
    ),
    Mutant(
        "rotary: the report leaves the positions out",
        "modeling_lion/attention/report.py",
        "hidden_states, layout = args[:2]",
        "hidden_states, layout = args[0], type(args[1])(args[1].is_real, border_taps=args[1].border_taps)",
        "test_report.py",
    ),
    Mutant(
        "rotary: no parameters by layer type",
        "modeling_lion/configuration_lion.py",
        "any(name in LAYER_TYPES or",
        "any(name not in LAYER_TYPES and",
        "test_rotary.py test_configuration_lion.py",
    ),
]

WINDOWS = [
    Mutant(
        "window: one token too few on each side",
        "modeling_lion/attention/softmax_window_plain.py",
        ".abs() <= sliding_window",
        ".abs() < sliding_window",
        "test_hybrid.py",
    ),
    Mutant(
        "window: packed sequences see each other",
        "modeling_lion/attention/softmax_window_plain.py",
        "seen = seen & (query_sequence.unsqueeze(-1) == key_sequence.unsqueeze(-2))",
        "seen = seen & (query_sequence.unsqueeze(-1) >= key_sequence.unsqueeze(-2))",
        "test_softmax_window.py",
    ),
    Mutant(
        "window: tiles with padding are taken for tiles without",
        "modeling_lion/cpu/softmax_window.py",
        "if count is not None and count[left] < count[right]:",
        "if count is not None and count[first] < count[last]:",
        "test_softmax_window.py",
    ),
    Mutant(
        "window: gradients of keys are not scaled",
        "modeling_lion/cpu/softmax_window.py",
        'scratch("dk", *dk.shape)), alpha=scaling)',
        'scratch("dk", *dk.shape)))',
        "test_softmax_window.py",
    ),
    Mutant(
        "window: flash attention is told of a token too few",
        "modeling_lion/mixers/softmax.py",
        "else self.sliding_window + 1,",
        "else self.sliding_window,",
        "test_hybrid.py::test_the_librarys_functions_are_told_the_window",
    ),
    Mutant(
        "window: a segment takes its neighbours for its first tokens",
        "modeling_lion/mixers/softmax.py",
        "(query[:, :, own], key, value)",
        "(query[:, :, : hidden_states.shape[1]], key, value)",
        "test_hybrid.py::test_long_texts_in_segments",
    ),
    Mutant(
        "window: rotary positions of neighbours in segments are those of the segment",
        "modeling_lion/layout/segments.py",
        "position = position_ids[:, first - halo.before.shape[1] : end + halo.after.shape[1]]",
        "position = position_ids[:, first : end + halo.after.shape[1] + halo.before.shape[1]]",
        "test_hybrid.py::test_long_texts_in_segments",
    ),
    Mutant(
        "window: processes count the positions of neighbours from their own",
        "modeling_lion/layout/sequence_parallel.py",
        """        if reach == 0:
            return self.position_ids
""",
        """        return self.position_ids
""",
        "test_sequence_parallel.py",
    ),
    Mutant(
        "local window: the gate opens the window",
        "modeling_lion/mixers/local_window.py",
        "log_sum.unsqueeze(-1) - gate - denominator",
        "log_sum.unsqueeze(-1) + gate - denominator",
        "test_local_window.py::test_agrees_with_the_definition",
    ),
    Mutant(
        "local window: its sum has no gradient",
        "modeling_lion/cpu/softmax_window.py",
        "if d_log_sum is not None:",
        "if False:",
        "test_softmax_window.py::test_sums_of_the_window",
    ),
    Mutant(
        "local window: keys have the features of queries",
        "modeling_lion/mixers/linear.py",
        "(self.key_feature_map or self.feature_map)(key)",
        "self.feature_map(key)",
        "test_local_window.py::test_learnt_features",
    ),
    Mutant(
        "shared keys: heads take turns instead of standing side by side",
        "modeling_lion/mixers/linear.py",
        "x.repeat_interleave(self.heads_per_key, dim=2)",
        "x.repeat(1, 1, self.heads_per_key, 1)",
        "test_key_heads.py::test_a_layer_is_what_the_definition_says",
    ),
    Mutant(
        "attention report: what heads see in their windows is left out",
        "modeling_lion/attention/report.py",
        """    if window is None:
        weights = normalize""",
        """    if True:
        weights = normalize""",
        "test_report.py::test_windows_in_the_heads_are_reported",
    ),
    Mutant(
        "local window: the sum of a window is that of its first weight",
        "modeling_lion/cpu/softmax_window.py",
        "torch.sub(largest, weights.amax(-1).log_(), out=log_sum)",
        "torch.sub(largest, weights[..., 0].log(), out=log_sum)",
        "test_softmax_window.py::test_sums_of_the_window",
    ),
    Mutant(
        "local window: padded keys of a segment's neighbours are seen",
        "modeling_lion/mixers/linear.py",
        "near_query, *outer, gate, around.is_real, around.before,",
        "near_query, *outer, gate, None if around.before else around.is_real, around.before,",
        "test_local_window.py::test_long_texts_in_segments",
    ),
    Mutant(
        "local window: weights overflow",
        "modeling_lion/mixers/local_window.py",
        "torch.maximum(scores.amax(-1, keepdim=True), log_linear).detach()",
        "torch.zeros_like(log_linear)",
        "test_local_window.py::test_gradients_of_the_weights",
    ),
    Mutant(
        "positions: a cyclic table ends",
        "modeling_lion/embeddings.py",
        "position_ids.fmod(num_positions)",
        "position_ids.clamp(max=num_positions - 1)",
        "test_local_window.py::test_cyclic_positions",
    ),
    Mutant(
        "hybrid: a kernel of linear attention is asked of transformers",
        "modeling_lion/attention/implementation_names.py",
        'return "sdpa" if implementation in FORMS else implementation',
        "return implementation",
        "test_hybrid.py::test_names_of_either_kind",
    ),
    Mutant(
        "hybrid: every layer gets the rotary positions of the first type",
        "modeling_lion/mixers/softmax.py",
        "tables = layout.rotary_tables.get(self.layer_type)",
        "tables = next(iter(layout.rotary_tables.values()), None)",
        "test_hybrid.py",
    ),
    Mutant(
        "hybrid: layers that see all tokens take long texts for short ones",
        "modeling_lion/layout/segments.py",
        'if "full_attention" in model.config.layer_types_in_use:',
        "if not model.config.has_linear_layers:",
        "test_hybrid.py::test_full_attention_has_no_segments",
    ),
    Mutant(
        "block: the gate and what it lets through are exchanged",
        "modeling_lion/blocks.py",
        "self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)",
        "self.activation(self.up_proj(hidden_states)) * self.gate_proj(hidden_states)",
        "test_modeling_lion.py::test_a_gated_mlp_is_that_of_llama",
    ),
    Mutant(
        "distillation: far tokens alone are to give what near ones do",
        "examples/distill.py",
        "scores = scores.masked_fill(~is_far, torch.finfo(scores.dtype).min)",
        "scores = scores - 0.0",
        "test_distill.py::test_the_error_is_that_of_outputs",
    ),
    Mutant(
        "distillation: after a stop, other tokens are compared",
        "examples/distill.py",
        "seed = self.args.seed + self.state.global_step",
        "seed = random.SystemRandom().getrandbits(32)",
        "test_distill.py::test_a_stopped_training_goes_on",
    ),
    Mutant(
        "heads inside encoders: the size of a key is not learnt",
        "modeling_lion/in_transformers/in_place_head.py",
        "return super().forward(x) * bounded_exp(size).unsqueeze(-1)",
        "return super().forward(x)",
        "test_branches.py::test_features_have_a_learnt_size",
    ),
]

SCANS = [
    Mutant(
        "scans: their sum, not their mean",
        "modeling_lion/layout/scans.py",
        "zip(x.split(heads, 1), raster, strict=True)) / len(scans)",
        "zip(x.split(heads, 1), raster, strict=True))",
        "test_scans.py::test_attention_along_both_curves",
    ),
    Mutant(
        "scans: outputs stay in the order of the scan",
        "modeling_lion/layout/scans.py",
        "heads, raster = query.shape[1], scans.argsort(dim=1)",
        "heads, raster = query.shape[1], scans",
        "test_scans.py::test_attention_along_both_curves",
    ),
    Mutant(
        "scans: both with the decays of the first",
        "modeling_lion/layout/scans.py",
        "torch.cat([d[:, :, s] for d, s in zip(x.split(heads, 1), scans, strict=True)], dim=1)",
        "torch.cat([x[:, :heads, s] for s in scans], dim=1)",
        "test_scans.py::test_attention_along_both_curves",
    ),
    Mutant(
        "scans: of columns as of rows",
        "modeling_lion/layout/scans.py",
        "(curve(grid), curve(grid.T))",
        "(curve(grid), curve(grid))",
        "test_scans.py",
    ),
    Mutant(
        "scans: the snake starts backwards",
        "modeling_lion/layout/scans.py",
        "device=grid.device).unsqueeze(1) % 2 == 1",
        "device=grid.device).unsqueeze(1) % 2 == 0",
        "test_scans.py::test_curves",
    ),
]

PADDINGS = [
    Mutant(
        "padding: its keys are seen",
        "modeling_lion/mixers/padding.py",
        "key = key * is_real[:, :, None, None].to(key.dtype)",
        "key = key * 1",
        PADDING,
    ),
    Mutant(
        "padding: it decays",
        "modeling_lion/mixers/padding.py",
        "log_decay = torch.where(is_real[:, None], log_decay, 0)",
        "log_decay = torch.where(is_real[:, None], log_decay, log_decay)",
        PADDING,
    ),
    Mutant(
        "padding: ignored where any token is real",
        "modeling_lion/layout/text.py",
        "and is_real.all():",
        "and is_real.any():",
        PADDING,
    ),
    Mutant(
        "padding: it is numbered",
        "modeling_lion/layout/text.py",
        "is_real.cumsum(dim=1) - is_real.long()",
        "token.unsqueeze(0)",
        f"{PADDING} test_rotary.py",
    ),
    Mutant(
        "padding: the first token of a row is pooled, real or not",
        "modeling_lion/blocks.py",
        "first = is_real.int().argmax(dim=1)",
        "first = is_real.int().argmax(dim=1) * 0",
        PADDING,
    ),
    Mutant(
        "padding: it counts in the mean",
        "modeling_lion/blocks.py",
        "/ weights.sum(dim=1).clamp(min=1)",
        "/ weights.shape[1]",
        PADDING,
    ),
    Mutant(
        "padding: rows of nothing else are divided by 0",
        "modeling_lion/blocks.py",
        "/ weights.sum(dim=1).clamp(min=1)",
        "/ weights.sum(dim=1)",
        f"{MODEL}::test_nothing_but_padding_gives_zeros_not_nan",
    ),
    Mutant(
        "padding: Luna packs it",
        "modeling_lion/mixers/luna.py",
        "weights = weights if mask is None else weights * mask",
        "weights = weights * 1",
        "test_luna.py",
    ),
    Mutant(
        "padding: eager softmax sees it",
        "modeling_lion/mixers/softmax.py",
        "scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen",
        "scores.softmax(-1) * seen",
        "test_softmax.py",
    ),
]

PACKING = [
    Mutant(
        "packing: a padded position 0 starts a sequence",
        "modeling_lion/layout/text.py",
        "starts = starts & is_real",
        "starts = starts | ~is_real",
        f"{MODEL}::test_positions_of_padding_start_no_sequence",
    ),
    Mutant(
        "packing: positions of a sequence continue those of the one before",
        "modeling_lion/layout/text.py",
        "first = cu_seqlens[sequence_of_each_token(cu_seqlens, inputs.shape[1])]",
        "first = cu_seqlens[sequence_of_each_token(cu_seqlens, inputs.shape[1]).roll(1)]",
        PACKED,
    ),
    Mutant(
        "packing: restarts of position_ids are not noticed",
        "modeling_lion/layout/text.py",
        "if not restarts.any():",
        "if True:",
        PACKED,
    ),
    Mutant(
        "packing: rows that are packed differently are taken as the first",
        "modeling_lion/layout/text.py",
        "if (restarts != restarts[:1]).any():",
        "if False:",
        "test_bad_input.py::test_wrong_inputs",
    ),
    Mutant(
        "packing: linear attention is not told",
        "modeling_lion/mixers/linear.py",
        """            cu_seqlens=layout.cu_seqlens,
            head_directions""",
        """            cu_seqlens=None,
            head_directions""",
        PACKED,
    ),
    Mutant(
        "packing: softmax attention sees the sequences before",
        "modeling_lion/mixers/softmax.py",
        "seen = (sequence.unsqueeze(1) == sequence)[None, None]",
        "seen = (sequence.unsqueeze(1) >= sequence)[None, None]",
        PACKED,
    ),
    Mutant(
        "packing: the labels of the collator that flattens for causal models",
        "training/packing.py",
        "flat = layout | {name: values[mask].unsqueeze(0) for name, values in batch.items()}",
        "flat = {name: values[mask].unsqueeze(0) for name, values in batch.items()} | layout",
        "test_packing.py",
    ),
    Mutant(
        "packing: the same order in every epoch",
        "training/packing.py",
        "manual_seed(self.seed + self.epoch)",
        "manual_seed(self.seed)",
        "test_packing.py",
    ),
    Mutant(
        "packing: long sequences share a batch",
        "training/packing.py",
        "self.is_long = self.lengths > max_tokens // 2",
        "self.is_long = self.lengths > max_tokens",
        "test_packing.py",
    ),
    Mutant(
        "packing: processes that resume start with the first epoch's order",
        "training/packing.py",
        "loader.batch_sampler.set_epoch = sampler.set_epoch",
        "pass",
        "test_distributed.py::test_packed_processes_share_an_epoch_and_resume_in_it",
    ),
]

MODELS = [
    Mutant(
        "model: nothing is dropped from mixed values",
        "modeling_lion/modeling_lion.py",
        "return self.o_proj(self.dropout(output))",
        "return self.o_proj(output)",
        f"{MODEL}::test_attention_dropout_is_the_same_in_every_kernel",
    ),
    Mutant(
        "model: no LayerNorm after the MLP",
        "modeling_lion/modeling_lion.py",
        "return hidden_states if self.is_pre_norm else self.mlp_norm(hidden_states)",
        "return hidden_states",
        "test_softmax.py",
    ),
    Mutant(
        "model: the norm before the attention is left out",
        "modeling_lion/modeling_lion.py",
        "self.attention(self.normed(hidden_states), layout, memory, **kwargs)",
        "self.attention(hidden_states, layout, memory, **kwargs)",
        "test_softmax.py",
    ),
    Mutant(
        "model: hidden states passed by name, which reentrant checkpointing loses",
        "modeling_lion/modeling_lion.py",
        "layer(hidden_states, layout, memory, **kwargs)",
        "layer(hidden_states=hidden_states, layout=layout, memory=memory, **kwargs)",
        f"{CONFORMANCE}::test_gradient_checkpointing",
    ),
    Mutant(
        "model: attention weights of the chosen kernel only",
        "modeling_lion/modeling_lion.py",
        "        if weights is None and output_attentions:",
        "        if False:",
        f"{CONFORMANCE}::test_capture_of_hidden_states_and_attentions",
    ),
    Mutant(
        "model: auto computes twice for attention weights",
        "modeling_lion/mixers/linear.py",
        'return "eager" if name == "auto" and output_attentions else name',
        "return name",
        "test_attn_implementation.py::test_auto_shows_weights_without_computing_twice",
    ),
    Mutant(
        "model: another kernel than auto by default",
        "modeling_lion/attention/implementation_names.py",
        '        return "auto"\n',
        '        return "chunk"\n',
        "test_attn_implementation.py::test_every_way_to_choose",
    ),
    Mutant(
        "model: sdpa accepted for linear attention",
        "modeling_lion/attention/implementation_names.py",
        'if requested not in (*FORMS, "eager"):',
        'if requested not in (*FORMS, "eager", "sdpa"):',
        "test_attn_implementation.py::test_other_names_are_refused",
    ),
    Mutant(
        "model: the class claims transformers' attention functions",
        "modeling_lion/attention/implementation_names.py",
        "return model is not None and model.config.has_softmax_layers",
        "return model is None or model.config.has_softmax_layers",
        f"{CONFORMANCE}::test_attention_functions_of_the_library_are_for_softmax",
    ),
    Mutant(
        "model: no softmax model has transformers' attention functions",
        "modeling_lion/attention/implementation_names.py",
        "return model is not None and model.config.has_softmax_layers",
        "return False",
        "test_softmax.py",
    ),
    Mutant(
        "mixers: the CLS token decays",
        "modeling_lion/mixers/decay.py",
        "torch.cat((torch.zeros_like(first), rest), dim=-1)",
        "log_decay",
        "test_convert.py::test_images_follow_the_published_formulas",
    ),
    Mutant(
        "mixers: the bias of a gate is rounded with the hidden states",
        "modeling_lion/mixers/decay.py",
        "return logits.to(dtype) + self.bias.to(dtype)",
        "return (logits + self.bias.to(logits.dtype)).to(dtype)",
        f"{CONFORMANCE}::test_decays_are_not_rounded_with_the_hidden_states",
    ),
    Mutant(
        "mixers: Luna forgets its memory from layer to layer",
        "modeling_lion/mixers/luna.py",
        "memory = self.memory_norm(packed + memory)",
        "memory = self.memory_norm(packed)",
        "test_luna.py",
    ),
    Mutant(
        "mixers: softmax scores scaled by the hidden size",
        "modeling_lion/mixers/softmax.py",
        "self.scaling = config.head_dim**-0.5",
        "self.scaling = config.hidden_size**-0.5",
        "test_softmax.py",
    ),
    Mutant(
        "convolution: taps reach over the borders of packed sequences",
        "modeling_lion/layout/border_taps.py",
        "is_inside = (window == inside) & (sequence(inside) == sequence(tokens).unsqueeze(1))",
        "is_inside = window == inside",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: tokens between close borders count twice",
        "modeling_lion/layout/border_taps.py",
        "return sums.masked_fill(self.is_repeated, 0)",
        "return sums",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: padding is convolved",
        "modeling_lion/mixers/padding.py",
        "return x if is_real is None else x * is_real.unsqueeze(-1).to(x.dtype)",
        "return x",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: padded tokens are zeros between real ones",
        "modeling_lion/layout/without_gaps.py",
        "if is_real is None or not may_have_gaps(is_real, cu_seqlens):",
        "if True:",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: all tokens are sorted where some are padded",
        "modeling_lion/attention/packing.py",
        "return bool((begins.sum(1) > 1).any())",
        "return True",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: real tokens cross the borders of packed sequences",
        "modeling_lion/layout/text.py",
        "WithoutGaps.for_convolutions(config, is_real, cu_seqlens)",
        "WithoutGaps.for_convolutions(config, is_real, None)",
        "test_short_conv.py",
    ),
    Mutant(
        "convolution: processes give away padded tokens instead of the nearest real ones",
        "modeling_lion/layout/sequence_parallel.py",
        "real_in_front(marked)[:, :count] if self.has_gaps else marked[:, :count]",
        "marked[:, :count]",
        "test_sequence_parallel.py::test_equals_one_process",
    ),
    Mutant(
        "convolution: padding of a segment counts where others are beside it",
        "modeling_lion/layout/halo.py",
        "is_real = torch.cat((before, is_real, after), dim=1)",
        "is_real = torch.cat((before, torch.ones_like(is_real), after), dim=1)",
        "test_segments.py",
    ),
    Mutant(
        "convolution: of a short segment, what is before it is forgotten",
        "modeling_lion/layout/segments.py",
        "before = torch.cat((before, segment[:, -radius:]), dim=1)[:, -radius:]  # a copy",
        "before = segment[:, -radius:].clone()",
        "test_segments.py",
    ),
    Mutant(
        "convolution: the gradients of borrowed tokens stay in their process",
        "modeling_lion/layout/sequence_parallel.py",
        "return total[dist.get_rank(ctx.group)], None",
        "return grad[dist.get_rank(ctx.group)], None",
        "test_sequence_parallel.py",
    ),
    Mutant(
        "feature maps: SiLU is raised by less",
        "modeling_lion/mixers/feature_map.py",
        "u = F.silu(x).add_(0.5)",
        "u = F.silu(x).add_(0.4)",
        "test_feature_map.py",
    ),
    Mutant(
        "feature maps: the gradient of a norm with the wrong sign",
        "modeling_lion/mixers/feature_map.py",
        "along, value=-1)",
        "along, value=1)",
        "test_feature_map.py",
    ),
    Mutant(
        "feature maps: ELU of large numbers has no gradient",
        "modeling_lion/mixers/feature_map.py",
        "x.clamp(max=0).exp())",
        "x.exp())",
        "test_feature_map.py",
    ),
]

EMBEDDINGS = [
    Mutant(
        "embeddings: texts are of the second type",
        "modeling_lion/embeddings.py",
        "token_type_ids = torch.zeros(1, shape[1],",
        "token_type_ids = torch.ones(1, shape[1],",
        "test_softmax.py::test_equals_bert",
    ),
    Mutant(
        "embeddings: the CLS token is last",
        "modeling_lion/embeddings.py",
        "torch.cat((cls_token, embeddings), dim=1)",
        "torch.cat((embeddings, cls_token), dim=1)",
        "test_softmax.py::test_equals_vit",
    ),
    Mutant(
        "embeddings: patches that are not masked are hidden",
        "modeling_lion/embeddings.py",
        "unsqueeze(-1), self.mask_token, embeddings)",
        "unsqueeze(-1), embeddings, self.mask_token)",
        f"{MODEL}::test_masked_positions_are_all_that_reconstruction_scores",
    ),
    Mutant(
        "embeddings: corners are aligned when positions are resized",
        "modeling_lion/embeddings.py",
        "align_corners=False",
        "align_corners=True",
        f"{MODEL}::test_interpolated_positions_are_those_of_the_resized_table",
    ),
    Mutant(
        "embeddings: positions of a grid with as many patches",
        "modeling_lion/embeddings.py",
        "if grid == self.config.patch_grid:",
        "if grid[0] * grid[1] == self.config.context_length - 1:",
        f"{MODEL}::test_interpolated_positions_are_those_of_the_resized_table",
    ),
    Mutant(
        "embeddings: ids outside of the table",
        "modeling_lion/layout/input_checks.py",
        "if low < 0 or high > highest:",
        "if high > highest:",
        "test_bad_input.py::test_wrong_inputs",
    ),
]

HEADS = [
    Mutant(
        "heads: the error of a masked image is divided by all its pixels",
        "modeling_lion/modeling_lion.py",
        "loss = (error * mask).sum() / mask.sum().clamp(min=1)",
        "loss = (error * mask).mean()",
        f"{MODEL}::test_masked_positions_are_all_that_reconstruction_scores",
    ),
    Mutant(
        "heads: patches of an image column by column",
        "modeling_lion/embeddings.py",
        "patches = patches.unflatten(1, (rows, columns))",
        "patches = patches.unflatten(1, (columns, rows)).transpose(1, 2)",
        f"{MODEL}::test_masked_positions_are_all_that_reconstruction_scores",
    ),
    Mutant(
        "heads: the first token's pooled vector lacks its tanh",
        "modeling_lion/blocks.py",
        "return pooled if self.dense is None else self.dense(pooled).tanh()",
        "return pooled if self.dense is None else self.dense(pooled)",
        f"{MODEL}::test_pooled_output",
    ),
    Mutant(
        "heads: choices are scored as if each were of another question",
        "modeling_lion/modeling_lion.py",
        ".view(-1, num_choices)",
        ".view(num_choices, -1).T",
        f"{MODEL}::test_batch_equals_singles",
    ),
    Mutant(
        "heads: classifier_dropout is ignored",
        "modeling_lion/modeling_lion.py",
        "nn.Dropout(config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout)",
        "nn.Dropout(config.hidden_dropout_prob)",
        f"{MODEL}::test_a_classifier_may_have_a_dropout_of_its_own",
    ),
    Mutant(
        "heads: accumulated batches count their own labels only",
        "modeling_lion/modeling_lion.py",
        "self.loss_function(labels=labels, logits=logits, config=self.config, **kwargs)",
        "self.loss_function(labels=labels, logits=logits, config=self.config)",
        "test_trainer.py::test_gradient_accumulation_equals_the_big_batch",
    ),
]

LOADING = [
    Mutant(
        "loading: decays are rounded to half precision",
        "modeling_lion/loading.py",
        'self._keep_in_fp32_modules_strict = {part for part in parts if part.startswith("decay")}',
        "self._keep_in_fp32_modules_strict = set()",
        f"{CONFORMANCE}::test_load_in_a_dtype",
    ),
    Mutant(
        "loading: quantisers round the decays",
        "modeling_lion/loading.py",
        'f".*{part}" for part in self._keep_in_fp32_modules_strict | {"window_gate"} & parts',
        "part for part in ()",
        "test_adapters.py",
    ),
    Mutant(
        "loading: weights of another mixer are taken",
        "modeling_lion/loading.py",
        "    if others:\n        raise",
        "    if False:\n        raise",
        "test_bad_input.py::test_weights_of_another_mixer",
    ),
    Mutant(
        "loading: damaged weights are not explained",
        "modeling_lion/loading.py",
        "except (SafetensorError, JSONDecodeError, UnicodeDecodeError) as error:",
        "except JSONDecodeError as error:",
        "test_bad_input.py",
    ),
    Mutant(
        "loading: the encoder of a head has a mask token left over",
        "modeling_lion/modeling_lion.py",
        '        r"mask_token$",',
        "",
        f"{CONFORMANCE}::test_encoder_of_every_head",
    ),
    Mutant(
        "loading: decoder and embeddings are two",
        "modeling_lion/modeling_lion.py",
        '_tied_weights_keys = {"lm_head.decoder.weight": "lion.embeddings.word_embeddings.weight"}',
        "_tied_weights_keys = {}",
        f"{CONFORMANCE}::test_tied_weights",
    ),
    Mutant(
        "loading: weights of a mixer's own are empty memory",
        "modeling_lion/mixers/mixer.py",
        "        module.init_own_weights(config)",
        "        pass",
        f"{CONFORMANCE}::test_weights_are_initialised",
    ),
    Mutant(
        "loading: the CLS token is not initialised",
        "modeling_lion/embeddings.py",
        "(self.cls_token, self.position_embeddings)",
        "(self.position_embeddings,)",
        f"{CONFORMANCE}::test_weights_are_initialised",
    ),
    Mutant(
        "loading: half-lives to the base of e",
        "modeling_lion/mixers/decay.py",
        "decay = torch.exp2(-1 / half_life)",
        "decay = torch.exp(-1 / half_life)",
        f"{CONFORMANCE}::test_half_lives_spread_from_half_a_token_to_the_context",
    ),
    Mutant(
        "loading: pickles by their code",
        "modeling_lion/loading.py",
        "    except UnpicklingError as error:",
        "    except ZeroDivisionError as error:",
        "test_reliability.py::test_hostile_files_are_never_executed",
    ),
]

CONFIGURATION = [
    Mutant(
        "configuration: folders without the field have LayerNorm before the blocks of text, after those of images",
        "modeling_lion/configuration_lion.py",
        '"norm_position": "post" if is_text else "pre"',
        '"norm_position": "pre" if is_text else "post"',
        "test_configuration_lion.py",
    ),
    Mutant(
        "configuration: texts whose tokens do not decay have no positions",
        "modeling_lion/configuration_lion.py",
        '"none" if is_text and has_order else "absolute"',
        '"none" if is_text else "absolute"',
        "test_configuration_lion.py",
    ),
    Mutant(
        "configuration: heads of unequal sizes",
        "modeling_lion/config_checks.py",
        "if self.num_attention_heads > 0 and self.hidden_size % self.num_attention_heads:",
        "if False:",
        "test_configuration_lion.py",
    ),
    Mutant(
        "configuration: images of incomplete patches",
        "modeling_lion/config_checks.py",
        "            if image % patch:\n",
        "            if False:\n",
        "test_configuration_lion.py",
    ),
    Mutant(
        "configuration: what does not decay is scanned twice",
        "modeling_lion/configuration_lion.py",
        'return 2 if self.patch_order != "raster" and sees_order else 1',
        'return 2 if self.patch_order != "raster" else 1',
        "test_configuration_lion.py",
    ),
    Mutant(
        "configuration: heads of two scans are split among processes",
        "modeling_lion/layout/process_plans.py",
        "if self.attention_layer_norm or self.num_scans > 1:",
        "if self.attention_layer_norm:",
        "test_distributed.py::test_tensor_parallel_leaves_attention_whole_where_it_is_not_heads_side_by_side",
    ),
    Mutant(
        "configuration: a class of the user's own is forgotten",
        "modeling_lion/loading.py",
        'self.auto_map = ours | {k: v for k, v in given.items() if v.split("--")[-1] != ours.get(k)}',
        "self.auto_map = ours",
        "test_configuration_lion.py test_bundle.py",
    ),
    Mutant(
        "configuration: texts end where there is no table of positions",
        "modeling_lion/configuration_lion.py",
        "            self.max_position_embeddings = NO_LIMIT\n",
        "            self.max_position_embeddings = self.initial_context_length\n",
        "test_sentence_embeddings.py test_configuration_lion.py",
    ),
]

HUB = [
    Mutant(
        "hub: logits of published gates keep their sign",
        "hub_upload/convert/original.py",
        "return -torch.cat(tensors)",
        "return torch.cat(tensors)",
        "test_convert.py",
    ),
    Mutant(
        "hub: queries and keys of published images in each other's place",
        "hub_upload/convert/original.py",
        '"qkv".index(',
        '"kqv".index(',
        "test_convert.py",
    ),
    Mutant(
        "hub: a published decoder of its own is left out",
        "hub_upload/convert/original.py",
        'if name == "lm_head.decoder.weight" and DECODER not in state_dict:',
        'if name == "lm_head.decoder.weight":',
        "test_convert.py",
    ),
    Mutant(
        "hub: weights that are left over are dropped in silence",
        "hub_upload/convert/original.py",
        '"unexpected": sorted(state_dict.keys() - needed - unused)',
        '"unexpected": []',
        "test_convert.py",
    ),
    Mutant(
        "convert: a table of positions that is read again still limits texts",
        "modeling_lion/in_transformers/model_inputs.py",
        "if config.lion_position_table is None or config.lion_positions is not None:",
        "if config.lion_position_table is None:",
        "test_convert_encoder.py",
    ),
    Mutant(
        "convert: rows of a table before the first position count",
        "modeling_lion/in_transformers/model_inputs.py",
        "get_submodule(name).num_embeddings - first",
        "get_submodule(name).num_embeddings",
        "test_convert_encoder.py::test_the_longest_text_is_that_of_a_table_of_positions",
    ),
    Mutant(
        "convert: sentence-transformers goes on cutting texts",
        "hub_upload/convert/in_place.py",
        "VERY_LARGE_INTEGER if limit is None",
        "20 if limit is None",
        "test_convert_encoder.py::test_an_encoder_of_sentence_transformers",
    ),
    Mutant(
        "configuration: a stored field that is gone is taken for its default",
        "modeling_lion/config_checks.py",
        "not in (None, usual):",
        "not in (None, usual, value):",
        "test_configuration_lion.py",
    ),
    Mutant(
        "hub: weights of an earlier upload stay",
        "hub_upload/publish/upload.py",
        "if is_weights(name) and name not in files]",
        "if False]",
        "test_upload.py::test_weights_of_an_earlier_upload_go",
    ),
    Mutant(
        "hub: what arrived is not compared by content",
        "hub_upload/publish/upload.py",
        "wrong = differences(api, repo_id, arrived_at, folder)",
        "wrong = []",
        "test_upload.py::test_damage_on_the_way_is_found",
    ),
    Mutant(
        "loading: an encoder without a pooler gets a random one",
        "modeling_lion/loading.py",
        "if was_encoder and of_pooler and of_pooler <= loading_info.missing_keys:",
        "if False:",
        "test_verify.py",
    ),
    Mutant(
        "export: the errors of graphs with narrow numbers are only shown",
        "hub_upload/export/compare_with_torch.py",
        "if not row.error <= row.tolerance:",
        'if dtype == "float32" and not row.error <= row.tolerance:',
        "test_export.py::test_a_graph_that_is_off_by_more_than_rounding_is_refused",
    ),
    Mutant(
        "verify: mistakes are taken for rounding",
        "hub_upload/verify.py",
        'rounding = {dtype: measured[traits.reference, dtype, "none"] for dtype in unit}',
        "rounding = {d: max(error for key, error in measured.items() if key[1] == d) for d in unit}",
        "test_verify.py",
    ),
    Mutant(
        "hub: NaN passes the verification",
        "hub_upload/verify.py",
        "return self.error <= self.tolerance",
        "return not self.error > self.tolerance",
        "test_verify.py::test_an_error_that_is_no_number_does_not_pass",
    ),
    Mutant(
        "hub: pickles are known by their names only",
        "hub_upload/publish/refusals.py",
        "return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5",
        "return False",
        "test_bundle.py test_upload.py",
    ),
    Mutant(
        "hub: modules of sentence-transformers stay behind",
        "hub_upload/publish/bundle.py",
        "for part in modules:",
        "for part in ():",
        "test_sentence_modules.py::test_a_bundle_holds_the_encoder",
    ),
    Mutant(
        "hub: other embeddings pass",
        "hub_upload/sentence_modules.py",
        "not torch.allclose(before, after, rtol=1e-5, atol=1e-6)",
        "False",
        "test_sentence_modules.py::test_other_embeddings_are_noticed",
    ),
    Mutant(
        "hub: weights with NaN are published",
        "hub_upload/publish/refusals.py",
        "and not torch.isfinite(tensor).all()",
        "and False",
        "test_bundle.py",
    ),
]

TOKENIZATION = [
    Mutant(
        "tokenization: vocab_file is ignored",
        "tokenization/tokenization_lion.py",
        "            vocab = vocab_file  #",
        "            pass  #",
        "test_tokenization_lion.py",
    ),
    Mutant(
        "tokenization: the first batch of texts is not trained on",
        "tokenization/tokenization_lion.py",
        "            yield first\n",
        "",
        "test_tokenization_lion.py",
    ),
    Mutant(
        "images: luminance with red and blue in each other's place",
        "tokenization/image_processing_grayscale.py",
        "0.299 * red + 0.587 * green + 0.114 * blue",
        "0.114 * red + 0.587 * green + 0.299 * blue",
        "test_image_processing_lion.py",
    ),
    Mutant(
        "images: height and width in each other's place",
        "tokenization/image_processing_lion.py",
        '"size": {"height": height, "width": width}',
        '"size": {"height": width, "width": height}',
        "test_image_processing_lion.py",
    ),
]

DATA = [
    Mutant(
        "data: numbers of classes with gaps are places",
        "examples/data_files.py",
        " and not any(map(WHOLE.fullmatch, names))",
        "",
        "test_data_files.py::test_numbers_of_labels",
    ),
    Mutant(
        "data: the class of an image is the last folder",
        "examples/data_files.py",
        "os.fsencode(part[0])",
        "os.fsencode(part[-2])",
        "test_bad_data.py::test_classes_are_the_first_folders",
    ),
    Mutant(
        "data: images of 16 bits are cut off at 255",
        "examples/data_files.py",
        'image.mode.startswith("I;16")',
        "False",
        "test_bad_data.py::test_images_have_8_bits",
    ),
    Mutant(
        "data: no class in ClassLabel is the last one",
        "examples/data_files.py",
        "names is not None and not 0 <= label < len(names)",
        "False",
        "test_bad_data.py::test_tables_that_are_refused",
    ),
    Mutant(
        "data: labels go by their places in config.json",
        "examples/common.py",
        "dict(sorted(config.id2label.items()))",
        "dict(enumerate(config.id2label.values()))",
        "test_bad_data.py::test_labels_go_by_their_numbers_and_not_by_their_places",
    ),
    Mutant(
        "data: an evaluation orders rows as the training does",
        "examples/common.py",
        '= "random", False',
        "= self.args.train_sampling_strategy, self.args.dataloader_drop_last",
        "test_bad_data.py::test_rows_stay_in_order",
    ),
]

TRAINING = [
    Mutant(
        "training: the epochs of a resumed run are counted from 1",
        "examples/common.py",
        "self.epoch.fill_(done - 1)",
        "self.epoch.fill_(-1)",
        "test_examples.py",
    ),
    Mutant(
        "training: goes on from the oldest checkpoint",
        "examples/common.py",
        "for checkpoint in reversed(sort_checkpoints(str(folder))):",
        "for checkpoint in sort_checkpoints(str(folder)):",
        "test_examples.py test_trainer.py",
    ),
    Mutant(
        "training: goes on from a checkpoint that was cut short",
        "examples/common.py",
        "except (FileNotFoundError, json.JSONDecodeError):",
        "except FileNotFoundError:",
        "test_trainer.py::test_a_run_killed_while_it_writes_a_checkpoint_resumes_to_the_same_weights",
    ),
    Mutant(
        "training: goes on from the checkpoint of another model",
        "examples/common.py",
        "    if different := [name",
        "    if different := [][:0] and [name",
        "test_examples.py",
    ),
    Mutant(
        "training: a recipe goes before the command line",
        "examples/common.py",
        "args = words + args[1:]",
        "args = args[1:] + words",
        "test_examples.py::test_recipe_for_mlm",
    ),
    Mutant(
        "training: starts anew instead of going on",
        "examples/common.py",
        "trainer.train(resume_from_checkpoint=checkpoint)",
        "trainer.train()",
        "test_examples.py",
    ),
]

NO_MUTANT = Mutant("no mutant at all, which has to survive", "LICENSE", "Version 2.0,", "Version 2.0,", "")
IMAGE_HEADS, TRANSFORMS = "test_image_heads.py", "test_transforms.py"

OTHER_PATHS = [
    Mutant(
        "backbone: feature maps keep the CLS token and lose the last patch",
        "modeling_lion/modeling_lion.py",
        "tokens[:, config.num_prefix_tokens :].transpose(1, 2)",
        "tokens[:, :-1].transpose(1, 2)",
        IMAGE_HEADS,
    ),
    Mutant(
        "segmentation: pixels that do not count are divided by",
        "modeling_lion/modeling_lion.py",
        "return total / counts.sum().clamp(min=1)",
        "return total / counts.numel()",
        IMAGE_HEADS,
    ),
    Mutant(
        "losses: many labels and regression are not divided when gradients accumulate",
        "modeling_lion/modeling_lion.py",
        "return loss * labels.numel() / num_items_in_batch",
        "return loss",
        f"{MODEL}::test_losses_of_parts_of_a_batch_add_up",
    ),
    Mutant(
        "vmap: values are asked for",
        "modeling_lion/private_apis.py",
        "if functorch.is_batchedtensor(x):",
        "if False:",
        TRANSFORMS,
    ),
    Mutant(
        "grad: packed sequences are not seen",
        "modeling_lion/private_apis.py",
        "if functorch.is_batchedtensor(x):",
        "if True:",
        TRANSFORMS,
    ),
    Mutant(
        "hooks: the decays of LION-D have no rows",
        "modeling_lion/mixers/decay.py",
        "if not (has_backward_hooks(self) or is_torch_func_active()):",
        "if True:",
        TRANSFORMS,
    ),
    Mutant(
        "forward mode: kernels hide the derivative",
        "modeling_lion/private_apis.py",
        " or forward_ad._current_level >= 0",
        "",
        TRANSFORMS,
    ),
]

TRITON = [
    Mutant(
        "triton: the factor from the start counts the token itself",
        "modeling_lion/triton/decay.py",
        "tl.exp2(tl.cumsum(before * LOG2_E, 1))",
        "tl.exp2(tl.cumsum(at * LOG2_E, 1))",
        INTERPRETED,
    ),
    Mutant(
        "triton: the gradient of a query without decay knows no denominator",
        "modeling_lion/triton/lit.py",
        "gradient -= tl.load(delta + at, mask=tokens < length, other=0.0)[:, None] * z[None, :]",
        "gradient -= 0.0 * z[None, :]",
        INTERPRETED,
    ),
]

MUTANTS = [
    *(
        MASK
        + FORWARD
        + GRADIENTS
        + DIRECTIONS
        + SEGMENTS
        + TILES
        + ROTARY
        + WINDOWS
        + TRANSFORMERS_WINDOWS
        + SCANS
        + PADDINGS
        + PACKING
        + MODELS
        + EMBEDDINGS
        + HEADS
    ),
    *(OTHER_PATHS + LOADING + CONFIGURATION + HUB + TOKENIZATION + DATA + TRAINING + TRITON),
]


def copy_repository(folder: Path) -> Path:
    """The files of the repository in `folder`, and links by which its packages are imported."""
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
    """A test file by its name, or a test in it, as pytest wants it: with its folder."""
    name, *rest = test.split("::")
    (path,) = Path("tests").rglob(name)
    return "::".join([str(path), *rest])


def restore(mutant: Mutant, folder: Path, source: str) -> None:
    (folder / "repository" / mutant.file).write_text(source, encoding="utf-8")


def plant(mutant: Mutant, folder: Path) -> str:
    """Write the mutant into the copy; returns the file as it was."""
    path = folder / "repository" / mutant.file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    if source.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.name!r}: its old text is {source.count(mutant.old)} times in {mutant.file}, and must be there "
            f"once:\n{mutant.old}"
        )
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    return source


def verdict(folder: Path, status: int) -> str:
    """What a finished run of the tests says of its mutant, and the test that caught it."""
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
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        idle = [copy_repository(Path(temporary, str(n))) for n in range(args.jobs)]
        for mutant in mutants:  # before anything runs: all must fit
            restore(mutant, idle[0], plant(mutant, idle[0]))
            if args.list:
                print(mutant.name)
        if args.list:
            return 0
        waiting = [NO_MUTANT._replace(tests=" ".join(mutant.tests for mutant in mutants)), *mutants]
        running = {}
        while waiting or running:
            if waiting and idle:
                mutant, folder = waiting.pop(0), idle.pop()
                source = plant(mutant, folder)
                running[start_tests(folder, mutant.tests, args.quick)] = (mutant, folder, source)
                continue
            pid, status = os.wait()
            mutant, folder, source = running.pop(pid)
            restore(mutant, folder, source)
            idle.append(folder)
            said = verdict(folder, status)
            print(f"{mutant.name}: {said}", flush=True)
            if mutant.old != mutant.new:
                verdicts.append(said.startswith("caught"))
            elif said != "SURVIVED":
                print("The tests fail without a mutant, and so tell nothing.")
                return 1
    print(f"{sum(verdicts)} of {len(verdicts)} caught")
    return int(not all(verdicts))


if __name__ == "__main__":
    sys.exit(main())
