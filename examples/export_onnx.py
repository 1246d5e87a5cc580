# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Export a saved model to ONNX and check it in ONNX Runtime: any batch, any length, padding included.

    pip install ".[export]"
    python examples/export_onnx.py --model my-lion --output_dir my-lion-onnx

Writes model.onnx with its weights beside it. `--attn_implementation parallel` exports the full form, for short inputs.
"""

import argparse

import torch
from transformers import AutoConfig, PreTrainedConfig
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import modeling_lion


def sample_inputs(config: PreTrainedConfig, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Random texts, each row but the last one padded, or images."""
    if config.modality == "image":
        return {"pixel_values": torch.randn(batch, config.num_channels, *config.image_shape)}
    is_real = torch.arange(length) < torch.linspace(1, length, batch).round().unsqueeze(1)
    return {"input_ids": torch.randint(config.vocab_size, (batch, length)), "attention_mask": is_real.long()}


def dynamic_shapes(config: PreTrainedConfig) -> dict[str, dict[int, torch.export.Dim]]:
    """Which dimensions of the inputs stay free; a table of positions limits the length."""
    batch = torch.export.Dim("batch")
    if config.modality == "image":
        return {"pixel_values": {0: batch}}
    limit = config.max_position_embeddings if config.position_embedding_type == "absolute" else None
    length = torch.export.Dim("length", max=limit)
    return {name: {0: batch, 1: length} for name in ("input_ids", "attention_mask")}


@torch.no_grad()
def main(args: list[str] | None = None) -> float:
    """Run with these arguments, or those of the command line; returns the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or Hub name of a saved model")
    parser.add_argument("--output_dir", required=True, help="folder for model.onnx")
    parser.add_argument("--attn_implementation", default="chunk", choices=("chunk", "parallel"))
    options = parser.parse_args(args)

    config = AutoConfig.from_pretrained(options.model)
    if config.mixer_type not in ("lit", "decay", "selective"):
        parser.error(
            f"{options.model} has mixer_type {config.mixer_type!r}; lit, decay and selective can be exported."
        )
    model_class = getattr(modeling_lion, config.architectures[0])
    model = model_class.from_pretrained(
        options.model, attn_implementation=options.attn_implementation, dtype=torch.float32
    ).eval()
    export_config = OnnxConfig(dynamic_shapes=dynamic_shapes(config))
    exported = OnnxExporter().export(model, sample_inputs(config, batch=2, length=16), config=export_config)
    exported.save_pretrained(options.output_dir)

    worst = 0.0
    for batch, length in ((1, 1), (3, 16), (2, 500)):
        if config.modality == "text" and config.position_embedding_type == "absolute":
            length = min(length, config.max_position_embeddings)
        inputs = sample_inputs(config, batch, length)
        expected, computed = model(**inputs), exported(**inputs)  # this one in ONNX Runtime
        for name, values in expected.items():
            difference = float((torch.as_tensor(computed[name]) - values).abs().max())
            worst = max(worst, difference)
            size = " x ".join(map(str, next(iter(inputs.values())).shape))
            print(f"{size}: {name} up to {float(values.abs().max()):.3g}, differs by {difference:.1e}")
    print(f"Wrote {options.output_dir}/model.onnx; largest difference {worst:.1e}.")
    return worst


if __name__ == "__main__":
    main()
