# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Models where tensors have no values or no batch: the meta device, torch.func, forward mode, gradients by hooks."""

import copy

import pytest
import torch
from accelerate.big_modeling import attach_layerwise_casting_hooks
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.utils.flop_counter import FlopCounterMode

from modeling_lion.attention.tracing import is_readable


# The forward mode of torch uses what torch calls deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing when gradients are computed:UserWarning"),
    # Attention goes row by row.
    pytest.mark.filterwarnings("ignore:There is a performance drop.*scaled_dot_product:UserWarning"),
]


def fields(case, mixer: str) -> dict:
    """Whatever a mixer has beside its attention."""
    if mixer in ("softmax", "luna"):
        return {}
    is_image = case.modality == "image"
    return {"conv_kernel": 3} | ({"patch_order": "snake"} if is_image else {"rope_parameters": {"rope_theta": 1e4}})


def inputs_of(case, config) -> dict[str, torch.Tensor]:
    """Inputs of every kind, with labels; texts have padding."""
    inputs = case.inputs(config) | ({} if case.class_name == "LionModel" else case.labels(config))
    if case.modality == "text":
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][0, ..., :4] = 0
    return inputs


def loss_of(output) -> torch.Tensor:
    """Some sum of what is not the loss, which transformers computes in float32."""
    return weighted_sum(next(x for x in output.to_tuple() if x.dim() > 0))


def weighted_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.arange(x.numel(), device=x.device).view_as(x).sin()).sum()


def test_weights_whose_hooks_cast_them(encoder, mixer):
    """Stored in bfloat16, computed with in float32: accelerate's hooks cast the weights of a module when it runs."""
    model = encoder.model(mixer, **fields(encoder, mixer)).float()
    inputs = {name: x.float() if x.is_floating_point() else x for name, x in encoder.inputs(model.config).items()}
    rounded = copy.deepcopy(model)
    attach_layerwise_casting_hooks(model, storage_dtype=torch.bfloat16, compute_dtype=torch.float32)
    assert any(x.dtype == torch.bfloat16 for x in model.parameters())
    rounded.load_state_dict({name: x.float() for name, x in model.state_dict().items()})
    actual, expected = (m(**inputs).last_hidden_state for m in (model, rounded))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("pads", [False, True])
@pytest.mark.parametrize(
    "window", [{}, {"layer_types": ["linear_attention", "sliding_attention"], "sliding_window": 2}], ids=bool
)
def test_what_backward_reads_are_tensors(window, pads, find_case):
    """torchviz draws each of them, and knows no `None`; here there are no decays and borders, nor always padding."""
    model = find_case("LionModel").model("lit", position_embedding_type="none", **window)
    mask = torch.ones(2, 400)  # torch computes the windows of short texts
    mask[0, :3] = 1 - pads
    functions = [model(torch.randint(1, 40, (2, 400)), attention_mask=mask).last_hidden_state.grad_fn]
    seen = set(functions)
    while functions:
        function = functions.pop()
        saved = getattr(function, "saved_tensors", ())  # of functions in Python only
        assert all(isinstance(x, torch.Tensor) for x in saved), function
        found = {x for x, _ in function.next_functions if x is not None} - seen
        functions += found
        seen |= found
    names = {function.name() for function in seen if getattr(function, "saved_tensors", ())}
    assert any("lion" in name for name in names) and bool(window) == any("window" in name for name in names)


def test_no_module_has_an_empty_output(encoder, mixer):
    """Hooks that measure outputs, as those of torchinfo, fail at an empty dictionary."""
    model = encoder.model(mixer)
    empty = []
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda m, args, output, name=name: empty.append(name) if isinstance(output, dict) and not output else None
        )
    model(**encoder.inputs(model.config))
    assert empty == []


def test_meta_device_has_the_shapes_and_counts_flops(case, mixer):
    model = case.model(mixer, **fields(case, mixer))
    inputs = inputs_of(case, model.config)
    expected = [x.shape for x in model(**inputs).to_tuple() if isinstance(x, torch.Tensor)]
    if "input_ids" in inputs:
        inputs["position_ids"] = torch.arange(inputs["input_ids"].shape[-1]).expand_as(inputs["input_ids"])
    model, inputs = model.to("meta"), {name: x.to("meta") for name, x in inputs.items()}
    with FlopCounterMode(display=False) as counter:
        output = model(**inputs)
        loss_of(output).backward()
    assert [x.shape for x in output.to_tuple() if isinstance(x, torch.Tensor)] == expected
    products = {str(name) for name in counter.get_flop_counts()["Global"]}
    assert (
        counter.get_total_flops() > 0
        and products & {"aten.mm", "aten.addmm"}
        and "aten.bmm" in products
        or (mixer in ("softmax", "luna"))
    )


def test_gradients_of_each_example_by_vmap(case, mixer, equal):
    model = case.model(mixer, **fields(case, mixer))
    inputs = inputs_of(case, model.config)

    def loss(parameters, example):
        return loss_of(functional_call(model, parameters, (), {name: x[None] for name, x in example.items()}))

    parameters = dict(model.named_parameters())
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, inputs)
    for row in range(3):
        model.zero_grad()
        loss(parameters, {name: x[row] for name, x in inputs.items()}).backward()
        for name, parameter in parameters.items():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            equal(found[name][row], expected, name)


def test_packed_sequences_are_seen_in_grad(find_case, equal):
    """The values of tensors that torch.func.grad wraps can be asked for."""
    case = find_case("LionModel", "text")
    model = case.model()
    parameters = dict(model.named_parameters())
    inputs = {"input_ids": torch.arange(1, 10)[None], "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])}
    expected = model(**inputs).pooler_output
    assert expected.shape[0] == 2
    loss = lambda parameters, inputs: functional_call(model, parameters, (), inputs).pooler_output.sum()
    found = grad(loss)(parameters, inputs)
    for name, gradient in zip(parameters, torch.autograd.grad(expected.sum(), parameters.values()), strict=True):
        equal(found[name], gradient, name)


def test_what_can_be_read():
    answers = []
    ask = lambda x: answers.append(is_readable(x)) or x.sum()
    for run in (ask, grad(ask), vmap(ask), vmap(grad(ask)), grad(lambda x: vmap(ask)(x).sum())):
        run(torch.ones(2))
    ask(torch.ones(2, device="meta"))
    assert answers == [True, True, False, False, False, False]


@pytest.mark.axes(mode=["forward_ad", "jvp"])
def test_forward_mode(encoder, mixer, kernel, mode):
    """Against the difference of two forward passes. transformers' "sdpa" has no forward mode."""
    kernel = "eager" if kernel == "sdpa" else kernel
    model = encoder.model(mixer, kernel, **fields(encoder, mixer))
    inputs = encoder.inputs(model.config)
    x = inputs.pop("pixel_values", None)
    name = "pixel_values"
    if x is None:
        name, x = "inputs_embeds", model.embeddings.word_embeddings(inputs.pop("input_ids")).detach()
        inputs["attention_mask"] = torch.arange(9) < torch.tensor([[9], [6], [1]])
    run = lambda x: model(**{name: x}, **inputs).last_hidden_state
    tangent = torch.randn_like(x)
    if mode == "jvp":
        found = jvp(run, (x,), (tangent,))[1]
    else:
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(run(forward_ad.make_dual(x, tangent))).tangent
    with torch.no_grad():
        expected = (run(x + 1e-5 * tangent) - run(x - 1e-5 * tangent)) / 2e-5
    assert (found - expected).abs().max() < 1e-6 * expected.abs().max()


class GradientHooks:
    """
    Gradients of each example as opacus takes them: hooks keep the input of each module that has parameters and the
    gradient of its output, and `vmap` repeats the module, one example at a time.
    """

    def __init__(self, model: nn.Module):
        self.gradients = {}
        for name, module in self.hooked(model):
            alone = functional_form(module)
            module.register_forward_hook(self.keep_input)
            module.register_full_backward_hook(self.collect(name, alone))

    def hooked(self, module: nn.Module, prefix: str = ""):
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
            yield prefix, module
            return
        for name, child in module.named_children():
            yield from self.hooked(child, f"{prefix}{name}.")

    @staticmethod
    def keep_input(module, inputs, output):
        module.kept = [x.detach() for x in inputs]  # tensors, every one of them

    def collect(self, prefix, alone):
        def hook(module, grad_inputs, grad_outputs):
            parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
            found = vmap(alone, in_dims=(None, 0, 0))(parameters, module.kept[0], grad_outputs[0])
            self.gradients |= {prefix + name: gradient for name, gradient in found.items()}

        return hook


def functional_form(module: nn.Module):
    """The gradient of a module's parameters for one example, from its input and the gradient of its output."""
    module = copy.deepcopy(module)

    def product(parameters, x, grad_output):
        return (functional_call(module, parameters, (x[None],)) * grad_output[None]).sum()

    return grad(product)


@pytest.mark.axes(mixer=["lit", "decay", "selective", "softmax", "luna"])
def test_gradients_of_each_example_by_hooks(encoder, mixer, equal):
    options = {"conv_kernel": 0} if encoder.modality == "image" else {}  # it has borders there
    model = encoder.model(mixer, **options).train()
    if mixer == "luna":  # one memory for all examples, which no module gives out by examples
        model.layers[0].attention.mixer.memory.requires_grad_(False)
    inputs = inputs_of(encoder, model.config)
    if encoder.modality == "text":  # else one row of each serves all
        inputs["position_ids"] = torch.arange(9).expand(3, -1)
    examples = []
    for row in range(3):
        model.zero_grad()
        loss_of(model(**{name: x[row : row + 1] for name, x in inputs.items()})).backward()
        examples.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    model.zero_grad()
    hooks = GradientHooks(model)
    states = model(**inputs).last_hidden_state
    sum(weighted_sum(x) for x in states.split(1)).backward()
    for name in examples[0]:
        equal(hooks.gradients[name], torch.stack([example[name] for example in examples]), name)


def test_hooks_on_a_convolution_with_borders_are_refused(find_case):
    case = find_case("LionModel", "image")
    model = case.model(conv_kernel=3).train()
    GradientHooks(model)
    with pytest.raises(ValueError, match="`conv_kernel=0`"):
        model(**case.inputs(model.config))
