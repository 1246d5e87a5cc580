# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What transformers promises of every model, for every class of LION: saving, initialising, capturing, resizing, …"""

import copy
import pickle
import re

import peft
import pytest
import torch
import transformers
from conftest import CASES, OTHERS_MIXERS, WITH_WEIGHTS
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from modeling_lion import LionConfig, LionForMaskedLM, LionModel
from modeling_lion.mixers.decay import initial_decay_logits


# transformers 5.23 renamed the methods that 5.17 has and that PEFT calls.
pytestmark = pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning")


def same_weights(model, other) -> bool:
    state, other_state = model.state_dict(), other.state_dict()
    return state.keys() == other_state.keys() and all(torch.equal(state[name], other_state[name]) for name in state)


def auto_class(case):
    suffix = case.class_name.removeprefix("Lion")
    return getattr(transformers, "AutoModel" if suffix == "Model" else f"AutoModel{suffix}")


# Saving and loading


def test_save_and_load(case, mixer, tmp_path, equal):
    model = case.model(mixer)
    inputs = case.inputs(model.config)
    expected = model(**inputs).to_tuple()[0]
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.safetensors")} == {"model.safetensors"}
    assert not list(tmp_path.glob("*.bin"))
    for loader in (case.model_class, auto_class(case)):
        loaded, info = loader.from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
        assert type(loaded) is case.model_class and not loaded.training
        assert not any(info.values()), info
        assert same_weights(model, loaded)
        equal(loaded(**inputs).to_tuple()[0], expected)


@pytest.mark.axes(case=CASES[:3])
def test_save_in_shards(case, tmp_path):
    model = case.model()
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert same_weights(model, case.model_class.from_pretrained(tmp_path, dtype=torch.float64))


def test_encoder_of_every_head(head, tmp_path):
    """AutoModel on the checkpoint of a head: nothing unexpected, and only a pooler that was never there missing."""
    model = head.model()
    model.save_pretrained(tmp_path)
    encoder, info = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    had_pooler = model.lion.pooler is not None
    assert had_pooler or all(name.startswith("pooler.dense") for name in info["missing_keys"])
    assert not (had_pooler or head.modality == "image") or not info["missing_keys"]
    state = model.lion.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in encoder.state_dict().items() if name in state)


def test_head_on_an_encoder(head, log, tmp_path):
    """The new head is told of, the encoder is the saved one, and so is what is saved again."""
    encoder = LionModel(head.config())
    encoder.save_pretrained(tmp_path)
    model, info = head.model_class.from_pretrained(tmp_path, output_loading_info=True)
    fresh = ("classifier", "qa_outputs", "lm_head", "decoder", "decode_head", "lion.embeddings.mask_token")
    assert info["missing_keys"] and all(name.startswith(fresh) for name in info["missing_keys"])
    assert any("MISSING" in message for message in log)
    state = encoder.state_dict()
    for name, weight in model.lion.state_dict().items():
        assert name == "embeddings.mask_token" or torch.equal(weight, state[name])


def test_mismatched_sizes(find_case, log, tmp_path):
    case = find_case("LionForSequenceClassification")
    case.model().save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        case.model_class.from_pretrained(tmp_path, num_labels=7)
    model = case.model_class.from_pretrained(tmp_path, num_labels=7, ignore_mismatched_sizes=True)
    assert model.classifier.weight.shape == (7, 16) and model.classifier.weight.isfinite().all()
    assert any("classifier.weight" in message and "MISMATCH" in message for message in log)


@pytest.mark.axes(dtype=[torch.bfloat16, torch.float16, torch.float32])
def test_load_in_a_dtype(case, mixer, kernel, dtype, tmp_path):
    case.model_class(case.config(mixer)).save_pretrained(tmp_path)
    model = case.model_class.from_pretrained(tmp_path, dtype=dtype, attn_implementation=kernel)
    is_half = dtype in (torch.bfloat16, torch.float16)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if is_half and "decay" in name else dtype), name  # SPEC §5
    output = model(**case.inputs(model.config, dtype)).to_tuple()[0]
    assert output.dtype == dtype and output.isfinite().all()


@pytest.mark.axes(dtype=[torch.bfloat16, torch.float16])
def test_half_precision_is_close(encoder, mixer, kernel, dtype):
    """As close to float64 as the same model in half precision is with the reference, within a factor of 2."""
    exact = encoder.model(mixer, "eager")
    half = copy.deepcopy(exact).to(dtype)
    exact.load_state_dict(half.state_dict())
    inputs = encoder.inputs(exact.config)
    expected = exact(**inputs).last_hidden_state
    inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
    error = {}
    for name in ("eager", kernel):
        half.set_attn_implementation(name)
        error[name] = (half(**inputs).last_hidden_state.double() - expected).abs().max()
    assert error[kernel] <= 2 * error["eager"]


@pytest.mark.axes(mixer=["decay", "selective", "delta"])
def test_decays_are_not_rounded_with_the_hidden_states(encoder, mixer):
    """SPEC §5: near 1, the rounding of a logit to bfloat16 changes a decay by percents."""
    mixer = encoder.model_class(encoder.config(mixer)).get_submodule("layers.0.attention.mixer")
    nothing = torch.zeros(1, 3, 16)
    for name in mixer.needs:
        assert torch.equal(getattr(mixer, name)(nothing.bfloat16()), getattr(mixer, name)(nothing))


@pytest.mark.axes(case=CASES[:3])
def test_device_map_and_disk_offload(case, tmp_path):
    model = case.model_class(case.config()).eval()
    inputs = case.inputs(model.config, torch.float32)
    expected = model(**inputs).to_tuple()[0]
    model.save_pretrained(tmp_path / "model", max_shard_size="8KB")
    parts = {re.match(r"(lion\.)?(layers\.\d|\w+)", name)[0] for name, _ in model.named_parameters()}
    split = {name: "disk" if "layers.1" in name else "cpu" for name in parts}
    for device_map in ("cpu", "auto", split):
        loaded = case.model_class.from_pretrained(
            tmp_path / "model", device_map=device_map, offload_folder=str(tmp_path / "offload")
        )
        torch.testing.assert_close(loaded(**inputs).to_tuple()[0], expected, rtol=0, atol=0)


def test_copies(case, mixer, kernels_of):
    kernel = kernels_of(mixer)[1]
    model = case.model(mixer, kernel)
    inputs = case.inputs(model.config)
    expected = model(**inputs).to_tuple()[0]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same_weights(model, other) and other.config._attn_implementation == kernel
        assert torch.equal(other(**inputs).to_tuple()[0], expected)


# Initialisation


def check_initialised(model, config):
    """A mixer from elsewhere has values of its own, all of them set, but for the projections that `Mixer` makes."""
    projections = tuple(f"mixer.{x}_proj.weight" for x in "qkv")
    norms = {f"{name}." for name, module in model.named_modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)}
    for name, weight in model.state_dict().items():
        assert not weight.is_meta and weight.isfinite().all(), name
        if ".mixer." in name and config.mixer_type in OTHERS_MIXERS and not name.endswith(projections):
            continue
        if "mixer.decay" in name and "beta" not in name and not name.endswith("weight"):
            is_delta = config.mixer_type == "delta"
            assert torch.equal(weight, initial_decay_logits(config, single_pair_forgets=not is_delta)), name
        elif name.endswith("mixer.memory"):
            assert 0.8 < weight.std() < 1.2, name
        elif name.rpartition(".")[0] + "." in norms:
            assert (weight == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith(("bias", "mask_token")):
            assert (weight == 0).all(), name
        else:
            std = weight[weight != 0].std() / config.initializer_range
            assert 0.5 < std < 1.5, (name, std)  # at least 16 numbers each


@pytest.mark.parametrize("hidden_size", [64, 256])
def test_mixers_start_by_their_fan_in(hidden_size):
    """SPEC §12: in every width queries and keys begin as large as what they are computed from."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8, "vocab_size": 9}
    model = LionModel(LionConfig(hidden_size=hidden_size, **sizes))
    mixer = model.layers[0].attention.mixer
    for proj in (mixer.q_proj, mixer.k_proj, mixer.v_proj, model.layers[0].attention.o_proj):
        assert 0.95 < proj.weight.std() * hidden_size**0.5 < 1.05
    assert 0.018 < model.layers[0].mlp.up_proj.weight.std() < 0.022


@pytest.mark.axes(way=["new", "nothing saved", "meta"])
def test_weights_are_initialised(case, mixer, way):
    config = case.config(mixer, patch_order=case.patch_order(mixer), position_embedding_type="absolute")
    if way == "nothing saved":
        model = case.model_class.from_pretrained(None, config=config, state_dict={})
    elif way == "meta":
        with torch.device("meta"):
            model = case.model_class(config)
        assert all(weight.is_meta for weight in model.state_dict().values())
        model.to_empty(device="cpu")
        model.init_weights()
        model.tie_weights()
    else:
        model = case.model_class(config)
    check_initialised(model, config)
    if case.modality == "text":
        embeddings = model.get_input_embeddings()
        assert (embeddings.weight[config.pad_token_id] == 0).all()


@pytest.mark.axes(heads=[1, 2, 4, 12], modality=["text", "image"], mixer_type=["decay", "selective"])
def test_half_lives_spread_from_half_a_token_to_the_context(mixer_type, heads, modality):
    fields = {"modality": modality} | ({"patch_order": "snake"} if modality == "image" else {})
    config = LionConfig(mixer_type=mixer_type, num_attention_heads=heads, head_directions="both", **fields)
    logits = initial_decay_logits(config)
    assert logits.dtype == torch.float32 and logits.shape == (config.num_scans * heads,)
    logits = logits.double().view(config.num_scans, heads)
    assert (logits == logits[0]).all()
    half_lives = -1 / torch.nn.functional.logsigmoid(logits[0]) * torch.log(torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(half_lives.max().item(), float(config.context_length), rtol=1e-4, atol=0)
    if heads > 1:
        torch.testing.assert_close(half_lives.min().item(), 0.5, rtol=1e-4, atol=0)
        ratios = half_lives[:-1] / half_lives[1:]
        torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios), rtol=1e-3, atol=0)


@pytest.mark.parametrize("heads", [4, 12])
def test_both_directions_see_equally_far(heads):
    one_way = initial_decay_logits(LionConfig(num_attention_heads=heads, head_directions="alternate"))
    assert torch.equal(one_way[::2], one_way[1::2])
    both = LionConfig(num_attention_heads=heads // 2, head_directions="both")
    assert torch.equal(one_way[::2], initial_decay_logits(both))
    single = initial_decay_logits(LionConfig(num_attention_heads=2, head_directions="alternate")).double()
    torch.testing.assert_close(single.sigmoid(), torch.full_like(single, 2 ** -((512 * 0.5) ** -0.5)))
    layer = LionModel(LionConfig(num_attention_heads=2, num_hidden_layers=1, mixer_type="delta")).layers[0]
    whole = layer.attention.mixer.decay_proj.bias.detach().double()
    torch.testing.assert_close(whole.sigmoid(), torch.full_like(whole, 2 ** (-1 / 512)))


# Outputs


def test_capture_of_hidden_states_and_attentions(case, mixer, kernel):
    model = case.model(mixer, kernel)
    inputs = case.inputs(model.config)
    if mixer not in WITH_WEIGHTS:
        with pytest.raises(ValueError, match="no attention weights"):
            model(**inputs, output_attentions=True)
        assert len(model(**inputs, output_hidden_states=True).hidden_states) == 3
        return
    outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
    tokens = model.config.context_length if case.modality == "image" else 9
    rows = 12 if case.class_name == "LionForMultipleChoice" else 3
    assert [x.shape for x in outputs.hidden_states] == [(rows, tokens, 16)] * 3
    keys = model.config.luna_length if mixer == "luna" else tokens
    assert [x.shape for x in outputs.attentions] == [(rows, 2, tokens, keys)] * 2
    if "last_hidden_state" in outputs and model.norm is None:
        assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    plain = model(**inputs)
    assert "hidden_states" not in plain and "attentions" not in plain
    model.config.output_hidden_states = model.config.output_attentions = True
    from_config = model(**inputs)
    assert len(from_config.hidden_states) == 3 and len(from_config.attentions) == 2


@pytest.mark.axes(mixer=["selective", "softmax"])
def test_retained_gradients(encoder, mixer):
    order = "snake" if encoder.modality == "image" else "raster"
    model = encoder.model(mixer, "eager", patch_order=order)
    outputs = model(**encoder.inputs(model.config), output_hidden_states=True, output_attentions=True)
    kept = outputs.hidden_states[:-1] + outputs.attentions
    for x in kept:
        x.retain_grad()
    outputs.last_hidden_state.flatten()[0].backward()
    assert all(x.grad is not None and x.grad.isfinite().all() and x.grad.any() for x in kept)


def test_tuples(case):
    model = case.model()
    inputs = case.inputs(model.config) | ({} if case.class_name == "LionModel" else case.labels(model.config))
    wanted = {"output_hidden_states": True, "output_attentions": True}
    outputs = model(**inputs, **wanted)
    values = model(**inputs, **wanted, return_dict=False)
    assert type(values) is tuple and len(values) == len(outputs)
    for value, expected in zip(values, outputs.values(), strict=True):
        pairs = zip(value, expected, strict=True) if isinstance(value, tuple) else [(value, expected)]
        assert all(torch.equal(x, y) for x, y in pairs)
    model.config.return_dict = False
    assert type(model(**inputs)) is tuple


def test_inputs_embeds_equal_input_ids(text_case, mixer):
    model = text_case.model(mixer)
    inputs = text_case.inputs(model.config)
    expected = model(**inputs).to_tuple()[0]
    embeds = model.get_input_embeddings()(inputs.pop("input_ids"))
    assert torch.equal(model(**inputs, inputs_embeds=embeds).to_tuple()[0], expected)


def test_feed_forward_in_chunks(encoder, equal):
    model = encoder.model()
    inputs = encoder.inputs(model.config)
    expected = model(**inputs).last_hidden_state
    chunked = encoder.model(chunk_size_feed_forward=1)
    chunked.load_state_dict(model.state_dict())
    equal(chunked(**inputs).last_hidden_state, expected)


def test_attention_functions_of_the_library_are_for_softmax(encoder, mixer):
    """Asked of the class, as transformers' own tests do, of which only the model knows; and of the model."""
    model = encoder.model(mixer)
    for name in ("_supports_sdpa", "_supports_flash_attn", "_supports_flex_attn"):
        assert getattr(encoder.model_class, name) is False
        assert getattr(model, name) is (mixer in ("softmax", "luna", "hybrid"))


def test_main_input_and_prefix(case):
    model = case.model()
    assert model.main_input_name == ("input_ids" if case.modality == "text" else "pixel_values")
    assert model.base_model_prefix == "lion"
    assert model.base_model is (model if case.class_name == "LionModel" else model.lion)


# Embeddings


def test_tied_weights(tmp_path, find_case):
    case = find_case("LionForMaskedLM")
    model = case.model()
    assert model.lm_head.decoder.weight is model.lion.embeddings.word_embeddings.weight
    model.save_pretrained(tmp_path)
    loaded = LionForMaskedLM.from_pretrained(tmp_path)
    assert loaded.lm_head.decoder.weight is loaded.lion.embeddings.word_embeddings.weight
    untied = case.model(tie_word_embeddings=False)
    assert untied.lm_head.decoder.weight is not untied.lion.embeddings.word_embeddings.weight
    untied.save_pretrained(tmp_path / "untied")
    loaded = LionForMaskedLM.from_pretrained(tmp_path / "untied", dtype=torch.float64)
    assert same_weights(untied, loaded)


@pytest.mark.axes(size=[30, 40, 55], is_tied=[True, False])
def test_resized_vocabulary(text_case, size, is_tied, tmp_path):
    model = text_case.model(tie_word_embeddings=is_tied)
    before = copy.deepcopy(model)
    kept = min(size, 40)
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == size
    assert torch.equal(model.get_input_embeddings().weight[:kept], before.get_input_embeddings().weight[:kept])
    decoder = model.get_output_embeddings()
    assert (decoder is not None) == (text_case.class_name == "LionForMaskedLM")
    if decoder is not None:
        assert decoder.weight.shape[0] == decoder.bias.shape[0] == decoder.out_features == size
        assert torch.equal(decoder.weight[:kept], before.get_output_embeddings().weight[:kept])
        assert (decoder.weight is model.get_input_embeddings().weight) == is_tied
    shape = text_case.inputs(model.config)["input_ids"].shape
    outputs = model(torch.full(shape, size - 1))
    if decoder is not None:
        assert outputs.logits.shape[-1] == size
        assert model(torch.full(shape, 1), labels=torch.full(shape, size - 1)).loss.isfinite()
    model.save_pretrained(tmp_path)
    assert same_weights(model, text_case.model_class.from_pretrained(tmp_path, dtype=torch.float64))


# Training


def trained_gradients(model, inputs):
    model.train().zero_grad()
    torch.manual_seed(1)  # dropout
    model(**inputs).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.axes(use_reentrant=[True, False])
def test_gradient_checkpointing(head, mixer, kernel, use_reentrant, equal):
    model = head.model(mixer, kernel, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    inputs = head.inputs(model.config) | head.labels(model.config)
    expected = trained_gradients(model, inputs)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    assert len(layers) == 2 and all(layer.gradient_checkpointing for layer in layers)
    model.enable_input_require_grads()
    actual = trained_gradients(model, inputs)
    assert actual.keys() == expected.keys()
    for name in expected:
        equal(actual[name], expected[name], name)
    model.gradient_checkpointing_disable()
    assert not any(layer.gradient_checkpointing for layer in layers)


@pytest.mark.axes(use_reentrant=[True, False])
def test_lora_with_gradient_checkpointing(head, mixer, use_reentrant):
    model = head.model(mixer)
    inputs = head.inputs(model.config) | head.labels(model.config)
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj", "down_proj"]))
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    model.enable_input_require_grads()
    model.train()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora" in name for name in trained)
    optimizer = torch.optim.Adam(trained.values(), lr=0.05)
    losses = []
    for _ in range(6):
        loss = model(**inputs).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in trained.values())
        optimizer.step()
    assert losses[-1] < losses[0]
