# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a saved LION for text classification with LoRA: only low-rank additions to its matrices are trained.

    pip install ".[train,adapters]"
    python examples/finetune_lora.py --model my-lion --train_file reviews.csv --output_dir my-lora --num_train_epochs 3

The file (.csv, .json, .jsonl or .parquet) has the columns "text" and "label". `--quantize nf4` holds frozen weights in
4 bits. Any argument of transformers.TrainingArguments works. Writes the adapter, and the merged model in merged/.
"""

from dataclasses import dataclass, field

import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from peft import LoraConfig, PeftModel, get_peft_model
from training_lion.scripts.arguments import parse_arguments
from training_lion.scripts.checkpoints import asked_checkpoint_or_free, check_same_model
from training_lion.scripts.class_names import check_several, has_fractions, in_order, label_names
from training_lion.scripts.data_files import TEXT_FILES_HELP, load_texts, tokenize
from training_lion.scripts.models import load_tokenizer, text_length
from training_lion.scripts.training import average_losses
from transformers import (
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


# New in a model for classification: trained in full and not quantised.
NEW_MODULES = ["classifier", "pooler.dense"]
QUANTIZATION = {
    "int8": {"load_in_8bit": True, "llm_int8_skip_modules": NEW_MODULES},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "llm_int8_skip_modules": NEW_MODULES},
}


@dataclass
class LoraArguments:
    model: str = field(metadata={"help": "Folder or Hub name of a saved LION for text."})
    train_file: str = field(metadata={"help": 'A table (.csv, .json, .jsonl, .parquet) with "text" and "label".'})
    text_files: str | None = field(default=None, metadata={"help": TEXT_FILES_HELP})
    quantize: str | None = field(
        default=None, metadata={"help": "Precision of the frozen weights.", "choices": list(QUANTIZATION)}
    )
    rank: int = field(default=8, metadata={"help": "Rank of the LoRA matrices."})
    max_seq_length: int | None = field(
        default=None, metadata={"help": "Tokens per text; the rest is cut off. Not given: as many as the model reads."}
    )


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line."""
    lora_args, training_args = parse_arguments((LoraArguments, TrainingArguments), args)
    checkpoint = asked_checkpoint_or_free(training_args)
    set_seed(training_args.seed)
    dataset = load_texts(lora_args.train_file, ("text",), ("label",), lora_args.text_files)
    what = f"--train_file {lora_args.train_file}"
    labels = label_names(dataset, "label", what)
    if has_fractions(dataset, "label") or isinstance(labels[0], list):
        raise ValueError(f"{what} has the label {dataset[0]['label']!r}: give each text a class, a name or a number.")
    names = in_order({*labels})
    check_several(names, what)
    tokenizer = load_tokenizer(lora_args.model)

    def load_model(**options) -> AutoModelForSequenceClassification:
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        labels |= {"problem_type": "single_label_classification"}
        set_seed(training_args.seed)  # the classifier is new: the same again when the adapter is merged
        return AutoModelForSequenceClassification.from_pretrained(lora_args.model, **labels, **options)

    options = {}
    if lora_args.quantize is not None:
        options = {"quantization_config": BitsAndBytesConfig(**QUANTIZATION[lora_args.quantize]), "device_map": "auto"}
        if training_args.use_cpu:
            options["device_map"] = "cpu"
    base = load_model(**options)
    length = text_length(base, tokenizer, lora_args.max_seq_length)
    dataset = tokenize(dataset, tokenizer, ["text"], length, what)
    dataset = dataset.add_column("labels", [names.index(label) for label in labels])
    # All matrices: queries, keys, values, outputs, decays of LION-S, MLP. Decays of LION-D are trained as they are.
    decays = ["decay"] if getattr(base.config, "mixer_type", None) == "decay" else []
    config = LoraConfig(
        task_type="SEQ_CLS",
        target_modules="all-linear",
        exclude_modules=NEW_MODULES,
        modules_to_save=NEW_MODULES + decays,
        r=lora_args.rank,
        lora_alpha=2 * lora_args.rank,
    )
    model = get_peft_model(base, config)
    model.print_trainable_parameters()
    if checkpoint is not None:
        check_same_model(checkpoint, model)
    trainer = Trainer(model, training_args, train_dataset=dataset, processing_class=tokenizer)
    average_losses(trainer)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()

    if trainer.is_world_process_zero():  # which wrote the adapter
        merged = PeftModel.from_pretrained(load_model(), training_args.output_dir).merge_and_unload()
        merged.save_pretrained(f"{training_args.output_dir}/merged")
        tokenizer.save_pretrained(f"{training_args.output_dir}/merged")
    return trainer


if __name__ == "__main__":
    main()
