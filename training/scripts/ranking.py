# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""How well queries found their answers; torch alone, so that tables need no more."""

import math

import torch
from torch import Tensor


def ranks_of(scores: Tensor, answers: Tensor) -> Tensor:
    """Return ranks from scores `(queries, candidates)`; the answer ranks behind others of equal score."""
    return (scores >= scores.gather(1, answers[:, None])).sum(1)


def ndcg_of_ranks(ranks: Tensor) -> Tensor:
    """Return nDCG@10 of queries with one answer, from its rank."""
    return torch.where(ranks <= 10, 1 / torch.log2(1 + ranks.double()), 0.0)


def ndcg(scores: Tensor, answers: Tensor) -> Tensor:
    """Return nDCG@10 from scores `(queries, candidates)`; the answer ranks behind others of equal score."""
    return ndcg_of_ranks(ranks_of(scores, answers))


def mean_and_error(values: Tensor, clusters: Tensor) -> tuple[float, float]:
    """
    Return the mean and its standard error, for values that are alike in a cluster, such as queries of one document.

    With residuals :math:`r`, their sums :math:`s_g` in `G` clusters and `n` values, the error is
    :math:`\\sqrt{G / (G - 1) \\sum_g s_g^2} / n`: that of independent values where each has its own cluster.

    Args:
        values, clusters: both `(values,)`; the number of each value's cluster.
    """
    mean = values.double().mean()
    _, cluster_of = clusters.unique(return_inverse=True)
    count = int(cluster_of.max()) + 1
    sums = torch.zeros(count, dtype=torch.double).index_add(0, cluster_of, values.double() - mean)
    if count == 1:
        return mean.item(), math.nan
    return mean.item(), math.sqrt(count / (count - 1) * float(sums.square().sum())) / len(values)
