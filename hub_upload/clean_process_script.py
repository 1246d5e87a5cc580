# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The script that clean_process.py runs in another process: it loads a checkpoint as users without this package do. It
must not import anything of this package, and makes it impossible to import while it runs.

Reads a request, JSON, from standard input and writes a report, JSON, to the file that the request names.
"""

import json
import sys


def main(request):
    sys.modules.update(dict.fromkeys(request["hidden"]))  # to import one is a ModuleNotFoundError

    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    # From its own module, as pipelines do: transformers 5.17 without torchvision has a placeholder of this name.
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    torch.set_num_threads(request["num_threads"])
    source, trust = request["source"], {"trust_remote_code": True}
    inputs = load_file(request["inputs"])
    outputs = {}
    for kernel in request["kernels"]:
        model = getattr(transformers, request["auto_class"]).from_pretrained(
            source, attn_implementation=kernel, **trust
        )
        with torch.no_grad():
            for name, tensor in model.eval()(**inputs).items():
                outputs[f"{kernel}.{name}"] = tensor.contiguous()
    save_file(outputs, request["outputs"])
    transformers.AutoModel.from_pretrained(source, **trust)

    report = {
        "model_class": f"{type(model).__module__}.{type(model).__name__}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    if request["modality"] == "text":
        report["tokens"] = {}
        for allow in (True, False):
            try:
                tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=allow)
            except ValueError:
                if allow:
                    raise
            else:
                # Without permission to run code, the library may give another tokenizer and not say so.
                report["tokens"]["trusted" if allow else "untrusted"] = dict(tokenizer(*request["text_pair"]))
    else:
        AutoImageProcessor.from_pretrained(source, **trust)
    if request["pipeline"] is not None:
        pipe = transformers.pipeline(request["pipeline"], model=source, **trust)
        if request["modality"] == "text":
            example = request["text_pair"][0]
            if request["pipeline"] == "fill-mask":
                example = f"{example} {pipe.tokenizer.mask_token}"
        else:
            from PIL import Image  # here only: text needs no Pillow

            example = Image.new("RGB", (40, 30), "tan")
        report["pipeline"] = str(pipe(example))[:500]
    return report


if __name__ == "__main__":
    request = json.load(sys.stdin)
    with open(request["report"], "w", encoding="utf-8") as file:
        json.dump(main(request), file)
