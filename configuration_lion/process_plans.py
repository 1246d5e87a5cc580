# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The plans by which transformers distributes a model over processes. It reads them from the configuration when it loads
a model with `tp_plan` or FSDP2.
"""

from .checks import ConfigPart
from .registry import find_feature_map, find_mixer


class ProcessPlans(ConfigPart):
    @property
    def base_model_tp_plan(self) -> dict[str, str]:
        """
        The tensor-parallel plan of a layer. It splits the MLP by intermediate features, and attention by heads, with
        the decays of each head. Attention is split only if its heads are independent: without a LayerNorm over all
        heads, a second scan, softmax layers, a learnt feature map or shared keys. A short convolution also prevents
        it: transformers can split the last two dimensions of a weight, and those of a convolution are the first.
        """
        plan = {"layers.*.mlp.up_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"}
        if self.use_gated_mlp:
            plan["layers.*.mlp.gate_proj"] = "colwise"
        if self.attention_layer_norm or self.num_scans > 1 or self.conv_kernel > 0 or self.has_softmax_layers:
            return plan
        own_parts = find_mixer(self.mixer_type).tensor_parallel_plan
        if own_parts is None or find_feature_map(self.feature_map).is_learnt or self.key_dim != self.head_dim:
            return plan
        mixer = "layers.*.attention.mixer"
        plan |= {f"{mixer}.{name}_proj": "colwise" for name in ("q", "k", "v")}
        plan["layers.*.attention.o_proj"] = "rowwise"
        return plan | {f"{mixer}.{name}": how for name, how in own_parts.items()}

    @base_model_tp_plan.setter
    def base_model_tp_plan(self, plan: dict[str, str]):
        # transformers 5.17 calls this to add a rule for `embed_tokens`, which LION does not have. Users override the
        # plan by DistributedConfig(tp_plan=...).
        pass

    @property
    def base_model_fsdp_plan(self) -> dict[str, str]:
        """The modules that transformers' FSDP2 gathers one at a time."""
        plan = {"layers.*": "free_full_weight"}
        if self.modality == "text":
            plan["embeddings.word_embeddings"] = "free_full_weight"
        if self.norm_position == "pre":
            plan["norm"] = "keep_full_weight"
        return plan
