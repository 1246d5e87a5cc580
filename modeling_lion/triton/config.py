# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tables of tile sizes, warps and pipeline stages of the Triton kernels for each GPU architecture. Users tune nothing.

`benchmarks/tune_triton.py` measures on a GPU and rewrites the tables; with `--compile` it checks them without a GPU.
"""

# The GPU on which a whole entry of CONFIGS was measured; a tuning on such a GPU leaves it as it is. Of sm_90, 16 bits
# and heads of 64, all but `whole_output` was once measured on an H200, with few candidates and earlier kernels. All
# other options were chosen from their machine code, without a GPU.
MEASURED = {}

# The number of tokens up to which the parallel form is faster than the chunk form.
PARALLEL_UP_TO = {"sm_80": 512, "sm_90": 512}

# The columns of TABLE, for each kernel:
#   num_warps, num_stages
#   head_tile, value_tile: the largest tiles of the head and the value dimension
#   keys, queries: the number that is multiplied with a tile in one step
#   inner: the elements that a product with a state sums in one step; for the output, 0 means whole rows
#   block: the elements of a state that one program carries along the chunks
# The output of a sequence that is one chunk has options of its own, `whole_output`, and computes all columns.
# The first group is for all kernels: tokens of a tile, of a chunk (a multiple of it), of a tile without decays.
COLUMNS = {
    "sizes": ("tile", "chunk", "lit_tile"),
    "output": ("keys", "value_tile", "num_warps", "num_stages", "inner"),
    "whole_output": ("keys", "num_warps", "num_stages"),
    "states": ("head_tile", "value_tile", "num_warps", "num_stages"),
    "walk": ("block", "num_warps", "num_stages"),
    "query_gradient": ("keys", "num_warps", "num_stages", "inner"),
    "key_gradient": ("queries", "num_warps", "num_stages", "inner"),
    "lit_states": ("head_tile", "value_tile", "num_warps", "num_stages"),
    "lit_output": ("value_tile", "num_warps", "num_stages"),
    "lit_gradient": ("head_tile", "value_tile", "num_warps", "num_stages"),
}

# Each row has an architecture, the bits of the values, and the larger of head and value dimension, padded to a power
# of two. "sm_80" needs at most 99 KB of shared memory, for all GPUs that have no more; "sm_90" needs up to 227 KB.
TABLE = """\
sm_80 16  32| 64 256 64|64  32 4 2 32|64 4 2|32 32 8 3|1024 4 3|32 4 2 32|16 4 2 16|32 64 4 3| 32 4 2| 32  32 2 2
sm_80 16  64|128 256 64|32  64 8 2 64|32 8 2|32 64 8 1|1024 4 3|32 8 2 32|16 8 1 16|64 64 4 3| 64 4 2| 64  64 4 2
sm_80 16 128| 32 256 64|16 128 4 1 64|16 4 1|64 64 4 3|1024 4 3|32 4 2 64|16 8 2 64|64 64 4 3|128 4 2|128 128 4 2
sm_80 16 256| 16 256 32|16 256 8 2 64|16 8 2|64 64 4 3|1024 4 3|16 4 2 16|16 8 2 64|64 64 4 3| 64 8 2| 64  64 8 2
sm_80 32  32| 32 256 64|32  32 4 2 32|32 4 2|32 64 4 3|1024 4 3|16 4 2 32|32 4 2 16|32 64 4 3| 32 4 2| 32  32 8 2
sm_80 32  64| 32 256 64|32  64 4 2 32|32 4 2|64 32 8 3|1024 4 3|32 8 1 64|32 8 1 32|32 64 4 3| 64 8 2| 64  64 4 1
sm_80 32 128| 32 256 32|16 128 4 1 16|16 4 1|64 32 8 3|1024 4 3|32 8 2 32|32 8 2 16|64 64 4 3| 64 4 2| 64  64 8 2
sm_80 32 256| 16 256 16|16 256 8 2 16|16 8 2|64 64 4 3|1024 4 3|16 8 2 16|16 8 1 16|64 64 4 3| 32 8 2| 32  32 8 2
sm_90 16  32| 64 256 64|64  32 4 2 32|64 4 2|32 32 8 2|1024 4 3|32 4 2 32|16 4 2 32|32 64 4 3| 32 4 2| 32  32 4 2
sm_90 16  64| 64 256 64|32  64 4 1 64|64 4 1|64 64 8 1|1024 4 3|64 4 1 64|32 4 2 64|64 64 4 3| 64 4 2| 64  64 4 2
sm_90 16 128| 32 256 64|16 128 4 1 64|16 4 1|64 64 4 3|1024 4 3|32 8 2 64|16 8 2 64|64 64 4 3|128 4 2|128 128 4 2
sm_90 16 256| 32 256 32|32 256 8 2 64|32 8 2|64 64 4 3|1024 4 3|32 8 2 64|16 8 2 16|64 64 4 3|128 8 2|128 128 8 2
sm_90 32  32| 32 256 64|32  32 4 2 32|32 4 2|32 64 4 3|1024 4 3|32 4 2 32|32 4 2 32|32 32 8 2| 32 4 2| 32  32 4 2
sm_90 32  64| 32 256 64|32  64 4 2 32|32 4 1|64 64 4 3|1024 4 3|32 4 2 32|32 4 1 32|64 64 4 2| 64 4 2| 64  64 4 2
sm_90 32 128| 32 256 32|16 128 4 2 16|16 4 2|64 64 4 3|1024 4 3|32 8 2 32|32 8 1 32|64 64 4 3|128 8 3|128 128 8 2
sm_90 32 256| 16 256 16|16 256 8 2 16|16 8 2|64 64 4 3|1024 4 3|16 8 2 16|16 8 1 16|64 64 4 3| 64 8 2| 64  64 8 2
"""


def read_table(table: str) -> dict[tuple[str, int, int], dict]:
    """For each architecture, bits and dimension: the sizes, and the options of each kernel by name."""
    configs = {}
    for line in table.splitlines():
        key, *groups = (group.split() for group in line.split("|"))
        by_kernel = {
            kernel: dict(zip(names, map(int, numbers), strict=True))
            for (kernel, names), numbers in zip(COLUMNS.items(), groups, strict=True)
        }
        configs[key[0], int(key[1]), int(key[2])] = by_kernel.pop("sizes") | by_kernel
    return configs


CONFIGS = read_table(TABLE)
