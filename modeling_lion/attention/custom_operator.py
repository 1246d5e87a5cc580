# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Registers a hand-written forward and backward, for the CPU or in Triton, with autograd and torch.compile, as the
operator `lion::<name>`:

    operator(query, key, value, forward, backward, chunk_size, division, head_directions)
        -> (output, denominator, *saved)

The log decays come from `finite_log_decay` with `masks_directions=False`; each operator supports one of their shapes.
With `head_directions` "alternate", it ignores the log decays of a direction that a head does not read, and their
gradients are 0 (`mask_directions`). `division` determines the output:

    "sum"      y = numerator / denominator, in the dtype of the values
    "none"     y = numerator · head_dim^-1/2, in the dtype of the values; the denominators are left unwritten
    "deferred" the numerators, in the accumulation dtype; the denominators are differentiable

The first two are values of `normalization` in `lion_attention`, the third is its `returns_sums`. The denominators are
`(batch, heads, length)`, in the accumulation dtype. Only gradients use those of "sum", and Triton stores their
inverses. `saved` holds other tensors for the gradients. Its first entry is the output before it is rounded, if the
kernel computes in the accumulation dtype and returns a narrower one: from an output rounded to bfloat16, the gradients
of the decays would lose most of their digits. Otherwise the entry is empty, `(0,)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import torch
from torch import Tensor

from ..private_apis import num_dispatch_modes
from .numerics import accumulation_dtype, save_for_backward, saved_for_backward, without_autocast


# Namespace of the operators. Code that was loaded from beside weights needs its own: if it defined an operator again,
# torch would take it from the models that use it.
NAMESPACE = "lion" if __name__.startswith("modeling_lion.") else f"lion_{crc32(__name__.encode()):08x}"
INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? forward, Tensor? backward"
OPTIONS = "int chunk_size, str division, str head_directions"


def attention_operator(
    name: str,
    compute: Callable,
    compute_gradients: Callable,
    plain: Callable,
    allocate_saved: Callable,
    num_saved: int,
    empty_like: Callable = torch.empty_like,
    is_direct: bool = False,
    more_inputs: tuple[str, ...] = (),
) -> "Operator":
    """
    The operator `lion::<name>`, described above.

    Args:
        compute: the forward, from the arguments of the operator to its results.
        compute_gradients: the backward, from `(grad, grad_denominator, query, key, value, forward, backward, output,
            denominator, saved, chunk_size, division, head_directions, needs_decay)` to the five gradients; those of
            log decays are empty if not needed. `output` is the one in the accumulation dtype, if that was saved;
            `saved` holds the other entries. `grad_denominator` is `None` except for "deferred".
        plain: computes output and denominators in torch operations that can be differentiated twice.
        allocate_saved: allocates `saved`, `num_saved` tensors, from the arguments of `compute`.
        empty_like: allocates the output and the gradients of queries, keys and values.
        is_direct: whether `compute` and `compute_gradients` may be called without the dispatcher, which takes as long
            as a short text. They then take a `plan` by name.
        more_inputs: names of tensors that the operator takes after the log decays; they have gradients, too.
    """
    inputs_schema = ", ".join((INPUTS, *(f"Tensor {name}" for name in more_inputs)))
    schema = f"({inputs_schema}, {OPTIONS}) -> ({', '.join(['Tensor'] * (2 + num_saved))})"
    operator = torch.library.custom_op(f"{NAMESPACE}::{name}", compute, mutates_args=(), schema=schema)

    @operator.register_fake
    def _(query, key, value, *others):
        dtype = accumulation_dtype(query.dtype)
        output = empty_like(value)
        if others[-2] == "deferred":
            output = output.to(dtype)
        saved = allocate_saved(query, key, value, *others)
        return output, query.new_empty(query.shape[:3], dtype=dtype), *saved

    num_inputs = 5 + len(more_inputs)
    backward_schema = (
        f"(Tensor grad, Tensor? grad_denominator, {inputs_schema}, Tensor output, Tensor denominator, Tensor[] saved, "
        f"{OPTIONS}, bool needs_decay) -> ({', '.join(['Tensor'] * num_inputs)})"
    )
    backward_operator = torch.library.custom_op(
        f"{NAMESPACE}::{name}_backward", compute_gradients, mutates_args=(), schema=backward_schema
    )

    @backward_operator.register_fake
    def _(grad, grad_denominator, query, key, value, forward, backward, *others):
        decays = (x if x is not None and others[-1] else None for x in (forward, backward))
        decays = (grad.new_empty(0) if x is None else x.new_empty(x.shape) for x in decays)
        more = (x.new_empty(x.shape) for x in others[: len(more_inputs)])
        return empty_like(query), empty_like(key), empty_like(value), *decays, *more

    differentiable = Differentiable(backward_operator, compute_gradients if is_direct else None, plain, num_inputs)
    operator.register_autograd(differentiable.backward, setup_context=differentiable.setup_context)
    return (
        Operator(operator, compute, differentiable.direct_function(name, compute)) if is_direct else Operator(operator)
    )


@dataclass(eq=False)
class Differentiable:
    """
    What autograd calls for an operator.

    Attributes:
        backward_operator: computes the gradients of the `num_inputs` tensors that the operator takes.
        compute_gradients: does so without the dispatcher; `None` if it must not be called directly.
        plain: as `attention_operator` takes it.
    """

    backward_operator: Callable
    compute_gradients: Callable | None
    plain: Callable
    num_inputs: int

    def setup_context(self, ctx, inputs, output) -> None:
        *tensors, ctx.chunk_size, ctx.division, ctx.head_directions = inputs
        output, denominator, *saved = output
        if saved and saved[0].dim() > 1:  # a wider output, not `(0,)`
            output = saved[0]
        save_for_backward(ctx, *tensors, output, denominator, *saved[1:])
        ctx.set_materialize_grads(False)

    def backward(self, ctx, grad, grad_denominator, *_):
        saved = saved_for_backward(ctx)
        inputs, results = saved[: self.num_inputs], saved[self.num_inputs :]
        needs = ctx.needs_input_grad[: self.num_inputs]
        has_sums = ctx.division == "deferred"
        if not has_sums:
            grad_denominator = None
        if grad is None and grad_denominator is None:
            return (None,) * (self.num_inputs + 3)
        # create_graph=True: the gradient itself will be differentiated.
        if torch.is_grad_enabled():
            arguments = ctx.chunk_size, ctx.division, ctx.head_directions
            grads = (grad, grad_denominator) if has_sums else (grad,)
            return *gradients_of_plain(self.plain, inputs, needs, grads, *arguments), None, None, None
        output, denominator, *saved = results
        grad = torch.zeros_like(output) if grad is None else grad
        if has_sums and grad_denominator is None:
            grad_denominator = torch.zeros_like(denominator)
        compute_them = self.backward_operator
        if self.compute_gradients is not None and not is_intercepted(grad):
            compute_them = partial(self.compute_gradients, plan=getattr(ctx, "plan", None))
        with without_autocast(grad):
            grads = compute_them(
                grad, grad_denominator, *inputs, output, denominator, saved, ctx.chunk_size, ctx.division,
                ctx.head_directions, any(needs[3:5]),
            )  # fmt: skip
        return *[g if needed else None for g, needed in zip(grads, needs, strict=True)], None, None, None

    def direct_function(self, name: str, compute: Callable) -> type[torch.autograd.Function]:
        """
        Make the function that is called in place of the operator. It has no `setup_context`, with which torch would
        inspect the signature of `forward` in every call.
        """

        def keep_and_compute(ctx, *inputs):
            *inputs, ctx.plan = inputs
            output = compute(*inputs, ctx.plan)
            self.setup_context(ctx, inputs, output)
            return output

        def backward(ctx, *grads):
            return *self.backward(ctx, *grads), None

        # Tools that draw graphs show the names of such classes.
        methods = {"forward": staticmethod(keep_and_compute), "backward": staticmethod(backward)}
        return type(f"lion_{name}", (torch.autograd.Function,), methods)


@dataclass(eq=False)
class Operator:
    """An operator. If `is_direct`, it can also be called without torch's dispatcher, as `compute` or `function`."""

    operator: Callable
    compute: Callable | None = None
    function: type[torch.autograd.Function] | None = None

    def __call__(self, *inputs):
        return self.operator(*inputs)

    def without_dispatcher(self, x: Tensor) -> Callable | None:
        """The function to call for inputs like `x` in this grad mode; `None` if they need the dispatcher."""
        if self.compute is None or is_intercepted(x):
            return None
        return self.function.apply if torch.is_grad_enabled() else self.compute


def is_intercepted(x: Tensor) -> bool:
    """Whether a tensor subclass, a compiler or a dispatch mode intercepts operators."""
    return type(x) is not Tensor or torch.compiler.is_compiling() or num_dispatch_modes() > 0


def gradients_of_plain(
    plain: Callable,
    inputs: Sequence[Tensor | None],
    needs: Sequence[bool],
    grads: Sequence[Tensor | None],
    *arguments,
) -> list[Tensor | None]:
    """
    Gradients of an operator that can be differentiated again, by autograd through `plain`, which computes the same,
    for those inputs that `needs` says. `grads` are the gradient of the output and, optionally, of the denominators.
    """
    # Both log decays may be one tensor; as separate tensors, each gets its own part of the gradient.
    inputs = [None if x is None else x.view_as(x) for x in inputs]
    wanted = [x for x, needed in zip(inputs, needs, strict=True) if needed]
    results = plain(*inputs, *arguments)[: len(grads)]
    grads = [torch.zeros_like(x) if d is None else d for x, d in zip(results, grads, strict=True)]
    computed = iter(torch.autograd.grad(results, wanted, grads, create_graph=True, allow_unused=True))
    return [next(computed) if needed else None for needed in needs]
