# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Luna against SPEC §9 written out for one head, and how its memory travels through the layers."""

import pytest
import torch


ACTIVATIONS = {
    "softmax": torch.exp,
    "softplus": lambda x: torch.log(1 + torch.exp(x)),
    "elu": lambda x: torch.where(x > 0, x + 1, torch.exp(x)),
}


def literal_luna(mixer, hidden_states, memory, kept, activation, num_heads=2):
    """Y_X and Y_P of one sequence, `(length, hidden)` and `(luna_length, hidden)`, head after head."""
    x = hidden_states[kept]
    value_proj, pack_value_proj = mixer.v_proj or mixer.k_proj, mixer.pack_v_proj or mixer.pack_k_proj
    heads = lambda y: y.chunk(num_heads, dim=-1)

    def attention(query, key, value, weight_of):
        rows = []
        for q in query:
            weights = torch.stack([weight_of(q @ k / q.shape[-1] ** 0.5) for k in key])
            rows.append((weights[:, None] * value).sum(0) / weights.sum())
        return torch.stack(rows)

    parts = zip(heads(mixer.pack_q_proj(memory)), heads(mixer.pack_k_proj(x)), heads(pack_value_proj(x)), strict=True)
    packed = torch.cat([attention(*part, activation) for part in parts], dim=-1)
    parts = (mixer.q_proj(hidden_states), mixer.k_proj(packed), value_proj(packed))
    parts = zip(*(heads(part) for part in parts), strict=True)
    return torch.cat([attention(*part, torch.exp) for part in parts], dim=-1), packed


@pytest.mark.parametrize("choice", ["sdpa", "eager"])
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_are_those_of_the_specification(activation, is_tied, choice, find_case, equal):
    case = find_case("LionModel", "text")
    model = case.model("luna", choice, luna_activation=activation, luna_tie_kv=is_tied, num_hidden_layers=3)
    seen, memories = [], []
    for layer in model.layers:
        layer.attention.register_forward_hook(lambda module, args, output: seen.append((args[0], output[0])))
        layer.register_forward_hook(lambda module, args, output: memories.append((args[2], output[1])))
    mask = torch.arange(9) < torch.tensor([[9], [6], [1]])
    model(torch.randint(1, 40, (3, 9)), attention_mask=mask)
    memory = model.layers[0].attention.mixer.memory.expand(3, -1, -1)
    for n, ((hidden_states, output), (given, passed)) in enumerate(zip(seen, memories, strict=True)):
        attention = model.layers[n].attention
        mixer = attention.mixer
        assert (given is None) == (n == 0)
        rows = zip(hidden_states, memory, mask, strict=True)
        rows = [literal_luna(mixer, *row, ACTIVATIONS[activation]) for row in rows]
        equal(output, attention.o_proj(torch.stack([row[0] for row in rows])))
        if n < 2:
            memory = mixer.memory_norm(torch.stack([row[1] for row in rows]) + memory)
            equal(passed, memory)
    assert passed is None


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")  # 5.17 has no other
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_keeps_the_gradients_of_the_memory(use_reentrant, find_case, equal):
    """Also where layers and their layouts are copied, as accelerate does it for several devices."""
    model = find_case("LionModel", "text").model("luna", num_hidden_layers=4).train()
    ids, gradients = torch.randint(1, 40, (3, 9)), []
    for is_checkpointed in (False, True):
        if is_checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
            for layer in model.layers:
                layer.register_forward_pre_hook(lambda module, args: (args[0], args[1].to("cpu"), *args[2:]))
        model.zero_grad()
        model(ids).last_hidden_state.square().sum().backward()
        gradients.append({name: x.grad for name, x in model.named_parameters() if x.grad is not None})
    assert gradients[0]["layers.0.attention.mixer.memory"].abs().sum() > 0
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        equal(gradients[1][name], expected, name)


def test_parameters(find_case):
    case = find_case("LionModel", "text")
    names = lambda **fields: set(dict(case.model("luna", **fields).named_parameters()))
    untied, tied = names(), names(luna_tie_kv=True)
    assert untied - tied == {
        f"layers.{n}.attention.mixer.{name}.{kind}"
        for n in range(2)
        for name in ("v_proj", "pack_v_proj")
        for kind in ("weight", "bias")
    }
    # One memory, in the first layer; the last layer has no memory to pass on.
    assert {name for name in tied if "memory" in name} == {
        f"layers.0.attention.mixer.{name}" for name in ("memory", "memory_norm.weight", "memory_norm.bias")
    }


def test_work_is_linear_in_the_length(find_case):
    model = find_case("LionModel", "text").model("luna", position_embedding_type="none")
    shapes = []
    for mixer in (layer.attention.mixer for layer in model.layers):
        bound = mixer.bound

        def counted(*args, bound=bound):
            attention = bound(*args)
            return lambda q, k, v: shapes.append((q.shape[2], k.shape[2])) or attention(q, k, v)

        mixer.bound = counted
    model(torch.randint(1, 40, (1, 300)))
    assert shapes == [(5, 300), (300, 5)] * 2


def test_layers_on_several_devices_share_the_memory(find_case, tmp_path):
    case = find_case("LionModel", "text")
    model = case.model("luna")
    inputs = case.inputs(model.config)
    expected = model(**inputs).last_hidden_state
    model.save_pretrained(tmp_path / "model")
    devices = {name: "cpu" for name, _ in model.named_children()} | {"layers.0": "cpu", "layers.1": "disk"}
    del devices["layers"]
    options = {"device_map": devices, "offload_folder": str(tmp_path / "offload"), "dtype": model.dtype}
    loaded = case.model_class.from_pretrained(tmp_path / "model", **options).eval()
    assert torch.equal(loaded(**inputs).last_hidden_state, expected)
