# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train a sentence encoder to find passages that are read in one pass over their document, with the text around them.

    python examples/documents.py --folder ~/notes --output_file documents.jsonl
    python examples/train_passages.py --model_name_or_path checkpoints/lion-minilm-l6 --train_file documents.jsonl \
        --do_train --learning_rate 5e-5 --max_steps 500 --output_dir outputs/passages

A step reads some documents, each in one pass. The vector of a passage is the mean of its tokens. The first sentence of
--query_share of the passages is removed and becomes a query, half of them with the document's name in front. Documents
may have queries of their own instead: {"name": …, "passages": […], "queries": [{"passage": 0, "text": …}, …]}. Three
losses are added:

1. contrastive over all passages of the step, most of which are of the same document;
2. contrastive over the documents of the step, whose vector is the mean of all tokens (--document_weight);
3. one minus the cosine to a teacher's embedding of "name: passage" (--teacher_weight, with --teacher_name_or_path).

--reading says how documents are read, in training and evaluation; "pieces" are passages by themselves. Steps of any
length fit into memory, which holds --mini_batch_tokens at a time; tokens of longer steps are read twice. The output
folder loads with SentenceTransformer. --do_eval measures nDCG@10 on a --validation_file.

--lora_rank trains only low-rank additions to the matrices (pip install ".[adapters]"). The output folder then has a
PEFT adapter of some MB, which names its encoder.
"""

import json
import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from hub_upload_lion.sentence_modules import MODEL, MODULES, copy_modules, encoder_folder, read_modules
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset
from training_lion.scripts.arguments import NOTHING_TO_DO, check_paths, parse_arguments
from training_lion.scripts.checkpoints import find_checkpoint
from training_lion.scripts.passages import (
    READINGS,
    Row,
    SplitDocument,
    batches_of,
    encode_rows,
    in_order,
    longest_row,
    make_rows,
    owners_of,
    read_documents,
    score_queries,
    take_queries,
    text_rows,
    vectors_of_rows,
)
from training_lion.scripts.ranking import mean_and_error
from training_lion.scripts.training import EpochCallback, save_metrics, train
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase, Trainer, TrainingArguments, set_seed

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


MOST_QUERIES = 8  # per document, in an evaluation


@dataclass
class PassageArguments:
    model_name_or_path: str = field(
        metadata={"help": "Folder or Hub name of a sentence encoder with mean pooling: its model is trained."}
    )
    train_file: str | None = field(default=None, metadata={"help": "JSONL with `name` and `text` (see documents.py)."})
    validation_file: str | None = field(default=None, metadata={"help": "Documents to evaluate on, likewise."})
    reading: str = field(default="one pass", metadata={"help": "How documents are read.", "choices": list(READINGS)})
    document_tokens: int = field(
        default=2048,
        metadata={
            "help": "Tokens of a document to read in a step, from a random passage on. A model with a table of "
            "positions reads them in rows of its length."
        },
    )
    query_share: float = field(
        default=0.5, metadata={"help": "Share of passages that give a query, in documents without their own."}
    )
    named_share: float = field(default=0.5, metadata={"help": "Share of queries with the document's name in front."})
    temperature: float = field(default=0.05, metadata={"help": "Temperature of the contrastive losses."})
    document_weight: float = field(default=0.2, metadata={"help": "Weight of the loss over documents."})
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "A sentence encoder with mean pooling, for the third loss."}
    )
    teacher_weight: float = field(default=1.0, metadata={"help": "Weight of the third loss."})
    lora_rank: int | None = field(
        default=None, metadata={"help": "Rank of the low-rank additions to train. Not given: train all weights."}
    )
    mini_batch_tokens: int = field(default=32768, metadata={"help": "Tokens in memory at a time."})


@dataclass
class PassageTrainingArguments(TrainingArguments):
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Documents per step."})
    label_names: list[str] | None = field(default_factory=list)
    remove_unused_columns: bool = False


class Documents(Dataset):
    """Documents by number: up to `tokens` tokens of each, from a passage that the seed and the epoch choose."""

    def __init__(self, documents: list[SplitDocument], tokenizer: PreTrainedTokenizerBase, tokens: int, seed: int):
        self.documents, self.tokens, self.seed = documents, tokens, seed
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()
        self.lengths = [
            [len(ids) for ids in tokenizer(x.passages, add_special_tokens=False, verbose=False)["input_ids"]]
            for x in documents
        ]

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> tuple[SplitDocument, int]:
        passages = self.documents[number].passages
        generator = random.Random(f"{self.seed} {int(self.epoch)} {number}")
        lengths = self.lengths[number]
        starts = [n for n in range(len(passages)) if n == 0 or sum(lengths[n:]) >= self.tokens // 2]
        first = end = generator.choice(starts)
        count = 0
        while end < len(passages) and (end == first or count + lengths[end] <= self.tokens):
            count += lengths[end]
            end += 1
        return self.documents[number].part(first, end), generator.getrandbits(32)


class PassageTrainer(Trainer):
    """A Trainer with the losses that the docstring of this file describes."""

    def __init__(self, *args, options: PassageArguments, teacher: nn.Module | None, **kwargs):
        super().__init__(*args, **kwargs)
        self.options, self.teacher = options, teacher
        self.parts: dict[str, list[float]] = {}

    def vectors(self, model: nn.Module, rows: list[Row]) -> Tensor:
        """Return the vectors of rows, with gradients. More than `mini_batch_tokens` are computed batch by batch."""
        batches = list(batches_of(rows, self.options.mini_batch_tokens))
        read = partial(vectors_of_rows, model, pad_token_id=self.processing_class.pad_token_id)
        if sum(len(row.input_ids) for row in rows) > self.options.mini_batch_tokens:
            read = partial(checkpoint, read, use_reentrant=False)  # reads a batch again for its gradients
        return in_order([read(batch) for batch in batches], batches)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        options, tokenizer = self.options, self.processing_class
        originals = [document for document, _ in inputs["documents"]]
        generator = random.Random(inputs["documents"][0][1])
        documents, queries = take_queries(originals, generator, options.query_share)
        longest = longest_row(self.model, 2 * options.document_tokens)  # with names
        rows = make_rows(tokenizer, documents, options.reading, longest)
        vectors = self.vectors(model, rows)
        num_passages = sum(len(document.passages) for document in documents)
        passages, wholes = vectors[:num_passages], vectors[num_passages:]
        losses = {}
        if queries:
            texts = [query.words(generator.random() < options.named_share) for query in queries]
            found = self.vectors(model, text_rows(tokenizer, texts, longest_row(self.model, 256)))
            answers = torch.tensor([query.passage for query in queries], device=found.device)
            losses["passages"] = F.cross_entropy(found @ passages.T / options.temperature, answers)
            if len(wholes) > 1 and options.document_weight:
                answers = owners_of(documents).to(answers.device)[answers]
                loss = F.cross_entropy(found @ wholes.T / options.temperature, answers)
                losses["documents"] = options.document_weight * loss
        if self.teacher is not None:
            rows = make_rows(tokenizer, originals, "pieces with names", longest_row(self.teacher, 512))
            with torch.autocast(self.args.device.type, torch.bfloat16, self.args.bf16):
                targets = encode_rows(self.teacher, rows, tokenizer.pad_token_id)
            losses["teacher"] = options.teacher_weight * (1 - (passages * targets).sum(-1)).mean()
        for name, loss in losses.items():
            self.parts.setdefault(name, []).append(loss.item())
        loss = sum(losses.values(), start=0 * passages.sum())
        return (loss, None) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if "loss" in logs:
            logs |= {f"loss_{name}": sum(values) / len(values) for name, values in self.parts.items()}
            self.parts = {}
        super().log(logs, *args, **kwargs)


def evaluate(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, documents: list[SplitDocument], reading: str
) -> dict[str, float]:
    """Return the means and standard errors of `score_queries`, for up to `MOST_QUERIES` queries of a document."""
    documents, queries = take_queries(documents, random.Random(0), 0.5, at_most=MOST_QUERIES)
    if not queries:
        raise ValueError(
            "--validation_file gives no queries: no document has `queries`, and no passage begins with a sentence and "
            "has more behind it."
        )
    owners = owners_of(documents)
    of_queries = owners[[query.passage for query in queries]]
    metrics = {"queries": len(queries), "candidates": len(owners)}
    for name, values in score_queries(model.eval(), tokenizer, documents, queries, reading).items():
        metrics[name], metrics[f"{name}_error"] = mean_and_error(values, of_queries)
    return metrics


def check_encoder(option: str, name: str) -> None:
    """
    Raise a ValueError if a sentence encoder has another pooling than the mean, or prompts: the training uses neither,
    and the encoder that is saved would.
    """
    with encoder_folder(name) as folder:
        if folder is None:
            return
        for module in read_modules(folder / MODULES):
            if module["type"].rpartition(".")[2] == "Pooling":
                from sentence_transformers.sentence_transformer.modules import Pooling

                pooling = Pooling.load_config(str(folder / module["path"])).get("pooling_mode", "mean")
                if pooling not in ("mean", ["mean"]):
                    raise ValueError(
                        f"--{option} {name} has the pooling {pooling}: give an encoder whose `pooling_mode` is mean."
                    )
        settings = folder / MODEL
        prompts = json.loads(settings.read_text(encoding="utf-8")).get("prompts") if settings.is_file() else None
        if found := {kind: prompt for kind, prompt in (prompts or {}).items() if prompt}:
            raise ValueError(
                f"--{option} {name} has prompts {found}, which this script does not put in front of texts: give an "
                f"encoder without prompts, or delete them in a copy of its {MODEL}."
            )


def with_adapter(model: nn.Module, rank: int) -> nn.Module:
    """Add low-rank matrices to those of a model, and freeze all other weights."""
    import peft

    kinds = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    # Not the pooler, which sentence-transformers loads and does not use.
    chosen = rf"(?!pooler\.).*\.({'|'.join(sorted(kinds))})"
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=chosen, r=rank, lora_alpha=2 * rank)
    model = peft.get_peft_model(model, config)
    model.print_trainable_parameters()
    return model


def main(args: list[str] | None = None) -> dict[str, float]:
    """Run with these arguments, or those of the command line; returns the metrics of the evaluation."""
    options, training_args = parse_arguments((PassageArguments, PassageTrainingArguments), args)
    if not (training_args.do_train or training_args.do_eval):
        raise ValueError(NOTHING_TO_DO)
    if training_args.world_size > 1:  # steps read different numbers of batches, for which processes would wait
        raise ValueError(f"train_passages.py was started in {training_args.world_size} processes: start one.")
    check_paths(train_file=options.train_file, validation_file=options.validation_file)
    for name, work, is_done in (
        ("train_file", "--do_train", training_args.do_train),
        ("validation_file", "--do_eval", training_args.do_eval),
    ):
        if is_done and getattr(options, name) is None:
            raise ValueError(f"{work} needs --{name}.")
    for name in ("model_name_or_path", "teacher_name_or_path"):
        if (encoder := getattr(options, name)) is not None:
            check_encoder(name, encoder)
    set_seed(training_args.seed)
    resumed = find_checkpoint(training_args)
    model = AutoModel.from_pretrained(options.model_name_or_path, add_pooling_layer=False)
    tokenizer = AutoTokenizer.from_pretrained(options.model_name_or_path)
    if Path(options.model_name_or_path, "adapter_config.json").is_file():
        raise ValueError(
            f"--model_name_or_path {options.model_name_or_path} is an adapter: give the model that it changes, with "
            "--lora_rank, or merge it and save that."
        )
    if options.lora_rank is not None:
        model = with_adapter(model, options.lora_rank)
    teacher = None
    if options.teacher_name_or_path is not None:
        teacher = AutoModel.from_pretrained(options.teacher_name_or_path).eval().requires_grad_(False)
        teacher.to(training_args.device)
        if AutoTokenizer.from_pretrained(options.teacher_name_or_path).get_vocab() != tokenizer.get_vocab():
            raise ValueError("--teacher_name_or_path has another vocabulary than the model: give one with the same.")
        if teacher.config.hidden_size != model.config.hidden_size:
            raise ValueError(
                f"--teacher_name_or_path has vectors of {teacher.config.hidden_size} numbers, and the model "
                f"{model.config.hidden_size}: give one with as many."
            )
    dataset = None
    if training_args.do_train:
        documents = [x for x in read_documents(options.train_file) if x.passages]
        dataset = Documents(documents, tokenizer, options.document_tokens, training_args.seed)
    trainer = PassageTrainer(
        model=model,
        args=training_args,
        data_collator=lambda documents: {"documents": documents},
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[] if dataset is None else [EpochCallback(dataset.epoch)],
        options=options,
        teacher=teacher,
    )
    if training_args.do_train:
        train(trainer, resumed)
        with encoder_folder(options.model_name_or_path) as source:
            if source is not None and trainer.is_world_process_zero():
                copy_modules(source, Path(training_args.output_dir))
    if training_args.do_eval:
        found = evaluate(model, tokenizer, read_documents(options.validation_file), options.reading)
        metrics = {f"eval_{name}": value for name, value in found.items()}
        save_metrics(trainer, "eval", metrics)
        return metrics
    return {}


if __name__ == "__main__":
    main()
