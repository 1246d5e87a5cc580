# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a LION model computes: the same in every kernel, with any padding, packed or not, compiled or not."""

import pytest
import torch
from conftest import OTHERS_MIXERS
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from modeling_lion import LionConfig
from modeling_lion.blocks import LionMLP, mean_of_real
from modeling_lion.modeling_lion import LionAttention


def tensors(outputs) -> dict[str, torch.Tensor]:
    """The fields of a model output that are tensors, layers and all, by name."""
    named = {}
    for name, value in outputs.items():
        if isinstance(value, tuple):
            named |= {f"{name}.{i}": x for i, x in enumerate(value)}
        else:
            named[name] = value
    return named


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def as_loss(outputs) -> torch.Tensor:
    """A number to which everything in a model's output contributes."""
    return sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in outputs.values())


# The three kernels

VARIANTS = {
    "default": {},
    "other": {
        "feature_map": "identity",
        "normalization": "none",
        "attention_layer_norm": True,
        "position_embedding_type": "absolute",
    },
    "elu": {"feature_map": "elu", "norm_position": "pre", "pooling": "mean", "head_directions": "alternate"},
}


@pytest.mark.axes(reads=["text", "raster", "snake"], variant=VARIANTS)
def test_kernels_are_equal(reads, mixer, variant, find_case, kernels_of, equal):
    case = find_case("LionModel", "text" if reads == "text" else "image")
    order = case.patch_order(mixer) if reads == "snake" else "raster"
    model = case.model(mixer, patch_order=order, **VARIANTS[variant]).train()
    inputs = case.inputs(model.config)
    if reads == "text":
        inputs["attention_mask"] = torch.arange(9) < torch.tensor([[9], [6], [1]])
    reference, *kernels = kernels_of(mixer)
    model.set_attn_implementation(reference)
    outputs = model(**inputs)
    expected = tensors(outputs) | gradients(model, as_loss(outputs))
    for kernel in kernels:
        model.set_attn_implementation(kernel)
        outputs = model(**inputs)
        actual = tensors(outputs) | gradients(model, as_loss(outputs))
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            equal(actual[name], value, f"{kernel}: {name}")


def test_gradients_reach_the_decays(encoder, mixer, kernel):
    model = encoder.model(mixer, kernel, patch_order=encoder.patch_order(mixer))
    grads = gradients(model, as_loss(model(**encoder.inputs(model.config))))
    decays = {name.partition("mixer.")[2]: grad for name, grad in grads.items() if "decay" in name}
    names = {"decay": {"decay.bias"}, "selective": {"decay_proj.weight", "decay_proj.bias"}}
    names["hybrid"] = names["selective"]
    names["delta"] = {*names["selective"], "decay_beta.weight", "decay_beta.bias"}
    if mixer not in OTHERS_MIXERS:
        assert decays.keys() == names.get(mixer, set())
    for name, grad in decays.items():
        assert grad.any() if mixer in OTHERS_MIXERS else (grad != 0).all(), name


def test_dropout_drops_and_evaluation_does_not(encoder, mixer):
    model = encoder.model(mixer, attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.5)
    inputs = encoder.inputs(model.config)
    first, second = (model(**inputs).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    first, second = (model(**inputs).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)


def test_attention_dropout_is_the_same_in_every_kernel(encoder, mixer, kernels_of, equal):
    model = encoder.model(mixer, attention_probs_dropout_prob=0.5).train()
    inputs = encoder.inputs(model.config)
    results = []
    for kernel in kernels_of(mixer):
        model.set_attn_implementation(kernel)
        torch.manual_seed(1)
        results.append(model(**inputs).last_hidden_state)
    for result in results[1:]:
        equal(result, results[0])
    assert not torch.allclose(results[0], model.eval()(**inputs).last_hidden_state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mixer", "kernel", "fields"),
    [
        ("lit", "chunk", {"head_directions": "alternate"}),
        ("decay", "parallel", {"rope_parameters": {}, "conv_kernel": 3}),
        ("selective", "chunk", {}),
        ("softmax", "sdpa", {"rope_parameters": {}, "position_embedding_type": "absolute"}),
        ("luna", "eager", {}),
    ],
)
def test_compiles_as_one_graph_for_every_length(mixer, kernel, fields, find_case, equal):
    case = find_case("LionForMaskedLM")
    model = case.model(mixer, kernel, num_hidden_layers=1, **fields).train()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (5, 14):
        input_ids = torch.randint(1, 40, (2, length))
        mask = torch.ones_like(input_ids)
        mask[0, : length // 2] = 0
        inputs = {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids}
        expected = model(**inputs)
        expected_gradients = gradients(model, expected.loss)
        actual = compiled(**inputs)
        equal(actual.logits, expected.logits)
        for name, grad in gradients(model, actual.loss).items():
            equal(grad, expected_gradients[name], name)
    torch.compiler.reset()


@pytest.mark.slow
def test_image_model_compiles_as_one_graph(find_case, equal):
    case = find_case("LionForImageClassification")
    model = case.model("selective", "chunk", num_hidden_layers=1, patch_order="snake", conv_kernel=3)
    inputs = case.inputs(model.config)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    equal(compiled(**inputs).logits, model(**inputs).logits)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
@pytest.mark.parametrize(("compiled_layers", "training"), [((0, 1, 2), True), ((1,), False)], ids=["all", "one"])
def test_layers_compile_one_by_one(compiled_layers, training, find_case, equal):
    """As FSDP2 and regional compilation do: the plan of a call comes from outside of the graph."""
    case = find_case("LionModel")
    model = case.model("selective", num_hidden_layers=3, conv_kernel=3).train(training)
    inputs = case.inputs(model.config)
    with torch.set_grad_enabled(training):
        expected = model(**inputs).last_hidden_state
        torch.compiler.reset()
        for n in compiled_layers:
            model.layers[n].compile(backend="eager", fullgraph=True)
        equal(model(**inputs).last_hidden_state, expected)
    torch.compiler.reset()


# Batches, padding, packing (SPEC §4)


def test_batch_equals_singles(case, mixer, kernel, equal):
    model = case.model(mixer, kernel)
    inputs = case.inputs(model.config)
    outputs = tensors(model(**inputs, output_hidden_states=True))
    for i in range(3):
        single = tensors(model(**{name: x[i : i + 1] for name, x in inputs.items()}, output_hidden_states=True))
        for name, value in single.items():
            size = len(value)  # more than 1 where choices are rows
            equal(value, outputs[name][i * size : (i + 1) * size], name)


PADDINGS = {
    "left": "000011111",
    "right": "111110000",
    "interior": "110001011",
    "all around": "011011010",
}


@pytest.mark.axes(pooling=["cls", "mean"], positions=["none", "absolute"])
def test_padding_changes_nothing(text_case, mixer, kernel, pooling, positions, equal):
    model = text_case.model(mixer, kernel, pooling=pooling, position_embedding_type=positions)
    short = {name: x[..., :5] for name, x in text_case.inputs(model.config).items()}
    wanted = {"output_hidden_states": True, "output_attentions": kernel == "parallel"}
    expected = tensors(model(**short, **wanted))

    def padded(patterns):
        """The inputs with their tokens where the pattern of the row has a 1, and noise that must not matter."""
        mask = torch.tensor([[int(c) for c in PADDINGS[p]] for p in patterns])
        noise = text_case.inputs(model.config)
        inputs = {"attention_mask": mask}
        for name, tokens in short.items():
            tokens, padding = tokens[: len(mask)], noise[name][: len(mask)].clone()
            real = mask.bool() if tokens.dim() == 2 else mask.bool()[:, None].expand(padding.shape)
            padding[real] = tokens.flatten()
            inputs[name], inputs["attention_mask"] = padding, real.long()
        return inputs

    for patterns in [[name] for name in PADDINGS] + [["left", "right", "interior"]]:
        inputs = padded(patterns)
        rows = inputs["attention_mask"].flatten(0, -2).bool()
        for name, value in tensors(model(**inputs, **wanted)).items():
            reference = expected[name][: len(value)]
            if "attentions" in name:
                value = torch.stack([x[:, row][..., row] for x, row in zip(value, rows, strict=True)])
            elif value.shape != reference.shape:  # one value per token
                value = torch.stack([x[row] for x, row in zip(value, rows, strict=True)])
            equal(value, reference, f"{patterns} {name}")


@pytest.mark.axes(pooling=["cls", "mean"])
def test_nothing_but_padding_gives_zeros_not_nan(encoder, mixer, kernel, pooling):
    model = encoder.model(mixer, kernel, pooling=pooling).train()
    mixed = []
    for module in model.modules():
        if isinstance(module, LionAttention):
            module.dropout.register_forward_hook(lambda module, args, output: mixed.append(args[0]))
    inputs = encoder.inputs(model.config)
    length = 9 if encoder.modality == "text" else model.config.context_length
    inputs["attention_mask"] = torch.ones(3, length)
    inputs["attention_mask"][1] = 0
    outputs = model(**inputs)
    assert all(x.isfinite().all() for x in outputs.values())
    assert len(mixed) == 2
    for output in mixed:
        # What Luna unpacks is a memory, which is there without tokens, too.
        assert mixer == "luna" or (output[1] == 0).all()
        assert (output[[0, 2]] != 0).all()
    assert all(grad.isfinite().all() for grad in gradients(model, as_loss(outputs)).values())


@pytest.mark.axes(mixer=["selective", "softmax"])
def test_mask_of_ones_is_no_mask(encoder, mixer):
    model = encoder.model(mixer)
    inputs = encoder.inputs(model.config)
    expected = model(**inputs).last_hidden_state
    for dtype in (torch.long, torch.bool, torch.float32):
        mask = torch.ones(expected.shape[:2], dtype=dtype)
        assert torch.equal(model(**inputs, attention_mask=mask).last_hidden_state, expected)


def test_packed_choices_belong_to_their_questions(find_case, equal):
    model = find_case("LionForMultipleChoice").model()
    input_ids = torch.randint(1, 40, (2, 3, 12))
    expected = torch.stack([model(input_ids[..., :5]).logits, model(input_ids[..., 5:]).logits], dim=1).flatten(0, 1)
    equal(model(input_ids, cu_seq_lens_q=torch.tensor([0, 5, 12])).logits, expected)
    numbers = torch.tensor([0] * 5 + [1] * 7).expand(2, 3, -1)
    equal(model(input_ids, seq_idx=numbers).logits, expected)


def test_padding_beside_a_full_sequence_needs_no_more_positions(find_case, equal):
    model = find_case("LionModel", "text").model(position_embedding_type="absolute", max_position_embeddings=8)
    input_ids, mask = torch.randint(1, 40, (1, 12)), torch.ones(1, 12)
    mask[0, 8:10] = 0
    packed = model(input_ids, attention_mask=mask, cu_seq_lens_q=torch.tensor([0, 10, 12])).last_hidden_state
    equal(packed[:, :8], model(input_ids[:, :8]).last_hidden_state)
    equal(packed[:, 10:], model(input_ids[:, 10:]).last_hidden_state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("told_by", ["seq_idx", "position_ids"])
def test_graphs_ignore_no_packing(told_by, find_case):
    model = find_case("LionModel", "text").model()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    input_ids = torch.randint(1, 40, (1, 12))
    whole, numbers = torch.arange(12)[None], torch.tensor([[0] * 5 + [1] * 7])
    graph(input_ids, position_ids=whole)
    given = {"seq_idx": numbers, "position_ids": torch.where(numbers == 0, whole, whole - 5)}[told_by]
    with pytest.raises(Exception, match="cu_seq_lens_q"):
        graph(input_ids, **{told_by: given})


@pytest.mark.axes(mixer=["lit", "decay", "selective", "delta"])
def test_another_default_device_changes_nothing(mixer, kernel, find_case, equal):
    """As that of a GPU, while a model is on the CPU."""
    model = find_case("LionModel", "text").model(mixer, kernel)
    input_ids = torch.randint(1, 40, (2, 9))
    expected = model(input_ids).last_hidden_state
    with torch.device("meta"):
        equal(model(input_ids).last_hidden_state, expected)


@pytest.mark.axes(told_by=["cu_seq_lens_q", "position_ids"], positions=["none", "absolute"])
def test_packed_sequences_equal_single_ones(mixer, kernel, told_by, positions, find_case, equal):
    case = find_case("LionModel", "text")
    model = case.model(mixer, kernel, position_embedding_type=positions)
    lengths = [4, 1, 7, 2]
    sequences = [torch.randint(1, 40, (1, n)) for n in lengths]
    if told_by == "cu_seq_lens_q":
        borders = torch.tensor([0, 4, 5, 12, 14])
    else:
        borders = torch.cat([torch.arange(n) for n in lengths])[None]
    packed = model(torch.cat(sequences, dim=1), **{told_by: borders}).last_hidden_state
    singles = [model(sequence).last_hidden_state for sequence in sequences]
    equal(packed, torch.cat(singles, dim=1))


def test_positions_of_padding_start_no_sequence(mixer, find_case, equal):
    model = find_case("LionModel", "text").model(mixer)
    input_ids = torch.randint(1, 40, (2, 9))
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0, 0]])
    expected = model(input_ids, attention_mask=mask).last_hidden_state[mask.bool()]
    position_ids = (mask.cumsum(1) - 1) * mask  # 0 for padding, as libraries make them
    actual = model(input_ids, attention_mask=mask, position_ids=position_ids).last_hidden_state
    equal(actual[mask.bool()], expected)


def test_position_ids_choose_the_positions(find_case, equal):
    model = find_case("LionModel", "text").model(position_embedding_type="absolute")
    input_ids = torch.randint(1, 40, (2, 9))
    expected = model(input_ids).last_hidden_state
    equal(model(input_ids, position_ids=torch.arange(9)[None].expand(2, -1)).last_hidden_state, expected)
    other = model(input_ids, position_ids=torch.arange(9).flip(0)[None].expand(2, -1)).last_hidden_state
    assert not torch.allclose(other, expected)


def test_text_without_positions_may_be_longer_than_configured(mixer, find_case):
    model = find_case("LionModel", "text").model(mixer, position_embedding_type="none")
    assert model(torch.randint(1, 40, (1, 100))).last_hidden_state.isfinite().all()


# Heads


def test_every_head_has_a_loss_that_trains_it(head, mixer):
    model = head.model(mixer).train()
    inputs = head.inputs(model.config) | head.labels(model.config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        loss = model(**inputs).loss
        assert loss.dim() == 0
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == []


PROBLEMS = {
    "regression": (1, torch.rand(3)),
    "single_label_classification": (3, torch.tensor([0, 2, 1])),
    "multi_label_classification": (3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]])),
}
LOSSES = {
    "regression": lambda logits, labels: ((logits.squeeze() - labels) ** 2).mean(),
    "single_label_classification": torch.nn.functional.cross_entropy,
    "multi_label_classification": torch.nn.functional.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("class_name", ["LionForSequenceClassification", "LionForImageClassification"])
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_problem_types(class_name, problem, is_named, find_case, equal):
    case, (num_labels, labels) = find_case(class_name), PROBLEMS[problem]
    labels = labels.double() if labels.is_floating_point() else labels
    model = case.model(num_labels=num_labels, problem_type=problem if is_named else None)
    outputs = model(**case.inputs(model.config), labels=labels)
    assert model.config.problem_type == problem
    equal(outputs.loss, LOSSES[problem](outputs.logits, labels))


@pytest.mark.parametrize("class_name", ["LionForSequenceClassification", "LionForImageClassification"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_losses_of_parts_of_a_batch_add_up(class_name, problem, find_case, equal):
    """As a Trainer that accumulates gradients wants it, which counts the labels of all parts."""
    case, (num_labels, labels) = find_case(class_name), PROBLEMS[problem]
    labels = labels.double() if labels.is_floating_point() else labels
    model = case.model(num_labels=num_labels, problem_type=problem)
    inputs = case.inputs(model.config)
    whole = model(**inputs, labels=labels).loss
    for count in (labels.numel(), torch.tensor(labels.numel())):
        parts = [
            model(**{name: x[part] for name, x in inputs.items()}, labels=labels[part], num_items_in_batch=count).loss
            for part in (slice(0, 1), slice(1, 3))
        ]
        equal(sum(parts), whole)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_answer(side, find_case, equal):
    """The loss of a question is the same in every batch."""
    model = find_case("LionForQuestionAnswering").model(num_labels=2)
    ids = torch.randint(1, model.config.vocab_size, (1, 9))
    shift = 5 if side == "left" else 0
    padded = torch.nn.functional.pad(ids, (5, 0) if side == "left" else (0, 5))
    alone = model(ids, start_positions=torch.tensor([2]), end_positions=torch.tensor([4]))
    answer = {"start_positions": torch.tensor([2 + shift]), "end_positions": torch.tensor([4 + shift])}
    outputs = model(padded, attention_mask=(padded != 0).long(), **answer)
    equal(outputs.loss, alone.loss)
    assert outputs.start_logits.isfinite().all()


@pytest.mark.parametrize("class_name", ["LionForSequenceClassification", "LionForTokenClassification"])
def test_a_classifier_may_have_a_dropout_of_its_own(class_name, find_case):
    case = find_case(class_name)
    assert case.model(hidden_dropout_prob=0.3).dropout.p == 0.3
    assert case.model(hidden_dropout_prob=0.3, classifier_dropout=0.1).dropout.p == 0.1


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("predicted", ["some", "all", "one"])
def test_sparse_prediction_has_the_same_loss_and_gradients(predicted, is_packed, find_case, equal):
    case = find_case("LionForMaskedLM")
    dense, sparse = case.model(), case.model(sparse_prediction=True)
    sparse.load_state_dict(dense.state_dict())
    inputs = {"input_ids": case.inputs(dense.config)["input_ids"]}
    if is_packed:
        input_ids = inputs["input_ids"].reshape(1, -1)
        inputs = {"input_ids": input_ids, "cu_seq_lens_q": torch.tensor([0, 2, input_ids.numel()])}
    chosen = {"some": torch.arange(inputs["input_ids"].numel()) % 3 == 1, "all": True, "one": 0}[predicted]
    labels = torch.full_like(inputs["input_ids"], -100)
    labels.view(-1)[chosen] = inputs["input_ids"].view(-1)[chosen]
    for of_loss in ({}, {"num_items_in_batch": 7}):
        outputs = [model.train()(**inputs, labels=labels, **of_loss) for model in (dense, sparse)]
        equal(outputs[1].logits, outputs[0].logits[labels != -100])
        torch.testing.assert_close(outputs[1].loss, outputs[0].loss, rtol=1e-6, atol=0)  # computed in float32
        expected = torch.autograd.grad(outputs[0].loss, dense.parameters())
        actual = torch.autograd.grad(outputs[1].loss, sparse.parameters())
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    equal(sparse.eval()(**inputs, labels=labels).logits, dense.eval()(**inputs, labels=labels).logits)
    equal(sparse.train()(**inputs).logits, dense.train()(**inputs).logits)


def test_masked_positions_are_all_that_reconstruction_scores(find_case, equal):
    case = find_case("LionForMaskedImageModeling")
    model = case.model()
    inputs = case.inputs(model.config)
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, [0, 5]] = True  # of 3 rows and 4 columns of patches: (0, 0) and (1, 1)
    outputs = model(**inputs, bool_masked_pos=mask)
    error = (outputs.reconstruction - inputs["pixel_values"]).abs()
    equal(outputs.loss, torch.cat([error[..., :2, :2], error[..., 2:4, 2:4]]).mean())
    changed = inputs["pixel_values"].clone()
    changed[..., :2, :2] = 7.0
    equal(model(changed, bool_masked_pos=mask).reconstruction, outputs.reconstruction)
    assert model(**inputs, bool_masked_pos=torch.zeros_like(mask)).loss == 0


def test_pooled_output(encoder, equal):
    for pooling in ("cls", "mean"):
        model = encoder.model(pooling=pooling)
        outputs = model(**encoder.inputs(model.config))
        hidden_states = outputs.last_hidden_state
        expected = hidden_states[:, 0] if pooling == "cls" else hidden_states.mean(1)  # SPEC §6, §7
        if encoder.modality == "text" and pooling == "cls":
            expected = torch.tanh(model.pooler.dense(expected))
        equal(outputs.pooler_output, expected)
    assert "pooler_output" not in encoder.model_class(model.config, add_pooling_layer=False).double()(
        **encoder.inputs(model.config)
    )


# Images of other sizes


@pytest.mark.axes(size=[(6, 8), (10, 4), (4, 14), (2, 2)], order=["raster", "snake"])
def test_images_of_other_sizes(order, size, find_case):
    case = find_case("LionForMaskedImageModeling")
    pixel_values = torch.randn(2, 3, *size, dtype=torch.float64)
    model = case.model(patch_order=order, position_embedding_type="absolute")
    outputs = model(pixel_values, interpolate_pos_encoding=True, output_hidden_states=True)
    assert outputs.reconstruction.shape == pixel_values.shape
    assert outputs.hidden_states[-1].shape[1] == 1 + size[0] * size[1] // 4
    model = case.model(patch_order=order, position_embedding_type="none")
    assert model(pixel_values).reconstruction.isfinite().all()


def test_interpolated_positions_are_those_of_the_resized_table(find_case, equal):
    model = find_case("LionModel", "image").model(position_embedding_type="absolute")
    table = model.embeddings.position_embeddings
    assert model.embeddings.positions((3, 4), None) is table
    assert model.embeddings.positions((3, 4), True) is table
    positions = model.embeddings.positions((6, 2), True)
    grid = table[:, 1:].view(1, 3, 4, 16).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(6, 2), mode="bicubic", align_corners=False)
    equal(positions[:, :1], table[:, :1])
    equal(positions[:, 1:], grid.permute(0, 2, 3, 1).reshape(1, 12, 16))


def test_a_gated_mlp_is_that_of_llama(equal):
    sizes = {"hidden_size": 8, "intermediate_size": 12, "hidden_act": "gelu"}
    theirs = LlamaMLP(LlamaConfig(mlp_bias=True, num_attention_heads=2, **sizes)).double()
    ours = LionMLP(LionConfig(num_attention_heads=2, **sizes)).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    equal(ours(x), theirs(x))


def test_cyclic_positions(find_case, tmp_path):
    """The table begins again behind its end, so that no text is too long."""
    fields = {"position_embedding_type": "cyclic", "max_position_embeddings": 16}
    case = find_case("LionModel", "text")
    model = case.model(**fields)
    table = model.embeddings.position_embeddings
    assert table.num_embeddings == 16 and model.config.longest_text is None
    input_ids = torch.randint(1, 40, (1, 50))
    given = model(input_ids, position_ids=torch.arange(50)[None] % 16, cu_seq_lens_q=torch.tensor([0, 50]))
    torch.testing.assert_close(model(input_ids).last_hidden_state, given.last_hidden_state)
    with pytest.raises(ValueError, match="`position_ids` holds -1, outside 0 to 15"):
        model(input_ids, position_ids=torch.full((1, 50), -1))
    absolute = case.model(**(fields | {"position_embedding_type": "absolute"}))
    absolute.load_state_dict(model.state_dict())
    short = input_ids[:, :16]
    torch.testing.assert_close(absolute(short).last_hidden_state, model(short).last_hidden_state)
    model.save_pretrained(tmp_path)
    again = case.model_class.from_pretrained(tmp_path, dtype=torch.float64).eval()
    torch.testing.assert_close(again(input_ids).last_hidden_state, model(input_ids).last_hidden_state)


# Half precision


def test_a_mean_over_real_tokens_does_not_overflow_in_float16():
    """The sum of 4,096 states of 20 is beyond float16, and so is a count of 70,000 tokens."""
    states = torch.full((2, 4096, 3), 20.0, dtype=torch.float16)
    is_real = torch.ones(2, 4096, dtype=torch.bool)
    is_real[1, 4000:] = False
    assert torch.equal(mean_of_real(states, is_real), torch.full((2, 3), 20.0, dtype=torch.float16))
    many = torch.ones(1, 70_000, 1, dtype=torch.float16)
    assert mean_of_real(many, torch.ones(1, 70_000, dtype=torch.bool)).item() == 1
