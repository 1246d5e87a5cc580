# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What prepares a model's inputs, and must come with its weights: the tokenizer of text, the processor of images."""

from pathlib import Path

from transformers import AutoTokenizer, BaseImageProcessor, PreTrainedTokenizerBase

# transformers 5.17 without torchvision exports a placeholder under the short name; the class itself needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.utils import cached_file


NAMES = {"text": "tokenizer", "image": "image processor"}
FILES = {
    "text": ("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    "image": ("preprocessor_config.json", "processor_config.json"),
}


def find_preprocessor(
    modality: str, *sources: str | Path, **hub
) -> PreTrainedTokenizerBase | BaseImageProcessor | None:
    """
    The tokenizer or image processor of a checkpoint, or `None`. Never runs code of the checkpoint.

    Args:
        modality: `"text"` or `"image"`.
        sources: folders or Hub repositories; the first that has one counts.
        hub: `revision` and `token`, for a repository.

    Raises:
        ValueError: if a tokenizer has no vocabulary.
        OSError: if its files are damaged.
    """
    for source in sources:
        # The files are looked for first: without any, AutoTokenizer makes a tokenizer that knows no words.
        if any(
            cached_file(source, file, _raise_exceptions_for_missing_entries=False, **hub) for file in FILES[modality]
        ):
            auto_class = AutoTokenizer if modality == "text" else AutoImageProcessor
            preprocessor = auto_class.from_pretrained(source, trust_remote_code=False, **hub)
            if modality == "text" and set(preprocessor.get_vocab()) <= set(preprocessor.all_special_tokens):
                raise ValueError(
                    f"The tokenizer in {source} knows no words, as if its tokenizer.json had been lost: save it again "
                    "with tokenizer.save_pretrained(...)."
                )
            return preprocessor
    return None


def load_preprocessor(modality: str, *sources: str | Path, **hub) -> PreTrainedTokenizerBase | BaseImageProcessor:
    """`find_preprocessor`, with a ValueError if there is none."""
    preprocessor = find_preprocessor(modality, *sources, **hub)
    if preprocessor is None:
        name = NAMES[modality]
        raise ValueError(
            f"There is no {name} in {sources[0]}: save it beside the model ({name.split()[-1]}.save_pretrained(...)), "
            "or nobody else can use the weights."
        )
    return preprocessor
