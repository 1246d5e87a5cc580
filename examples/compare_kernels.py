# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Load a saved model once per kernel and compare what the kernels compute on real input.

    python examples/compare_kernels.py --model outputs/mlm --text_file validation.txt
    python examples/compare_kernels.py --model outputs/photos --image_dir photos/validation

The reference is the same model in float64. The kernel "eager" (the definition) in float32 shows the rounding error of
float32. If another kernel differs by more than twice as much, the program ends with an error.
"""

import argparse
import itertools
import json
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoTokenizer,
)
from transformers.image_utils import load_image

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


KERNELS = ("parallel", "chunk", "rnn")
IMAGE_TYPES = {".png", ".jpg", ".jpeg"}


def load_inputs(model: str, text_file: str | None, image_dir: str | None, count: int) -> dict[str, torch.Tensor]:
    """Make a batch of real input for the model in this folder: padded lines of text, or images."""
    if AutoConfig.from_pretrained(model).modality == "text":
        if text_file is None:
            raise ValueError(f"{model} reads text: give --text_file.")
        with open(text_file, encoding="utf-8") as file:
            lines = list(itertools.islice((line.strip() for line in file if line.strip()), count))
        tokenizer = AutoTokenizer.from_pretrained(model)
        return dict(tokenizer(lines, padding=True, truncation=True, return_tensors="pt"))
    if image_dir is None:
        raise ValueError(f"{model} reads images: give --image_dir.")
    files = sorted(path for path in Path(image_dir).rglob("*") if path.suffix.lower() in IMAGE_TYPES)
    images = [load_image(str(file)) for file in files[:: max(1, len(files) // count)][:count]]
    return dict(AutoImageProcessor.from_pretrained(model)(images, return_tensors="pt"))


@torch.no_grad()
def logits(model: str, kernel: str, inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Compute the logits of real tokens, or of images. Returns float64."""
    config = AutoConfig.from_pretrained(model)
    auto_class = AutoModelForMaskedLM if config.modality == "text" else AutoModelForImageClassification
    loaded = auto_class.from_pretrained(model, attn_implementation=kernel, dtype=torch.float32).to(dtype).eval()
    output = loaded(**{name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}).logits
    if "attention_mask" in inputs:
        output = output[inputs["attention_mask"].bool()]
    return output.double()


def compare_kernels(model: str, text_file: str | None = None, image_dir: str | None = None, count: int = 16) -> dict:
    """
    Compare the kernels. Returns a dict of `input` (shape), `scale` (the largest logit), `bound` (the largest allowed
    error), `errors` (by kernel, against float64) and `differences` (by pair of kernels), all of absolute values.
    """
    inputs = load_inputs(model, text_file, image_dir, count)
    exact = logits(model, "eager", inputs, torch.float64)
    naive_error = float((logits(model, "eager", inputs, torch.float32) - exact).abs().max())
    results = {kernel: logits(model, kernel, inputs, torch.float32) for kernel in KERNELS}
    return {
        "input": list(next(iter(inputs.values())).shape),
        "scale": float(exact.abs().max()),
        "bound": 2 * naive_error,
        "errors": {kernel: float((result - exact).abs().max()) for kernel, result in results.items()},
        "differences": {
            f"{a} - {b}": float((results[a] - results[b]).abs().max()) for a, b in itertools.combinations(KERNELS, 2)
        },
    }


def format_table(model: str, report: dict) -> str:
    lines = [
        f"{model}: logits of input {'x'.join(map(str, report['input']))}, largest {report['scale']:.1f}",
        f"  {'largest difference of':24}{'':10}",
    ]
    lines += [f"    {pair:24}{value:10.1e}" for pair, value in report["differences"].items()]
    lines += [f"    {kernel + ' - float64':24}{value:10.1e}" for kernel, value in report["errors"].items()]
    return "\n".join(lines + [f"  {'bound (2 x naive float32)':26}{report['bound']:10.1e}"])


def main(args: list[str] | None = None) -> dict[str, dict]:
    """Print a table per model. Raises SystemExit if a kernel is off by more than float32 explains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="folder of a saved model; may come twice")
    parser.add_argument("--text_file", help="text, one example per line")
    parser.add_argument("--image_dir", help="folder with images, sub-folders included")
    parser.add_argument("--num_examples", type=int, default=16)
    parser.add_argument("--output_file", help="where to write the numbers as JSON")
    arguments = parser.parse_args(args)
    reports = {}
    for model in arguments.model:
        report = compare_kernels(model, arguments.text_file, arguments.image_dir, arguments.num_examples)
        reports[model] = report
        print(format_table(model, report), flush=True)
    if arguments.output_file:
        Path(arguments.output_file).write_text(json.dumps(reports, indent=2) + "\n")
    failed = [f"{k} of {m}" for m, r in reports.items() for k, error in r["errors"].items() if error > r["bound"]]
    if failed:
        raise SystemExit(f"Off by more than the rounding of float32 explains: {', '.join(failed)}.")
    return reports


if __name__ == "__main__":
    main()
