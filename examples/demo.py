# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Try LION on real input, offline, on a CPU, in minutes: search with a trained encoder, train, save, compare the kernels,
and draw.

    python examples/demo.py --output_dir outputs/demo

Text: the docstrings of this Python installation. Images: scikit-learn's digits. Each run starts from nothing.
"""

import argparse
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import datasets
import demo_pictures
import numpy as np
import psutil
import run_image_classification
import run_mlm
import torch
import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from hub_upload_lion.verify import print_table, verification_table, verify_checkpoint
from PIL import Image
from retrieval_lion.search.command import lines_of
from retrieval_lion.search.searcher import Searcher
from retrieval_lion.sources import STANDARD_LIBRARY, check_source, default_model, place_of_package
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from training_lion.scripts.docstrings import write_docstrings
from transformers import Trainer, pipeline


MARKER = ".made-by-lion-demo"
TRAINING = ["--do_train", "--do_eval", "--lr_scheduler_type", "cosine", "--weight_decay", "0.01"]
TRAINING += ["--eval_strategy", "steps", "--save_strategy", "no", "--dataloader_pin_memory", "False", "--use_cpu"]
MLM_CONFIG = (
    "hidden_size=128,num_hidden_layers=4,num_attention_heads=4,intermediate_size=344,max_position_embeddings=128,"
    "chunk_size=32"
)
QUERIES = (
    "how do I read a zip file",
    "wait for several tasks to finish",
    "turn a date into a string",
    "find out how long a piece of code takes",
    "delete a folder with everything in it",
)


class Effort(NamedTuple):
    """How much is trained."""

    text_steps: int
    digits_epochs: int
    max_bytes: int  # of docstrings
    longest: int  # tokens of the longest window that the text model is tried on


SHORT, FULL = Effort(80, 3, 1_500_000, 1024), Effort(800, 20, 8_000_000, 4096)
SENTENCE = "Return the {} of the file, or None if it is not found."  # of common words; to draw
DIGITS_CONFIG = (
    "image_size=8,patch_size=2,hidden_size=96,num_hidden_layers=4,num_attention_heads=4,intermediate_size=128,"
    "initializer_range=0.05,patch_order=snake,chunk_size=8"
)


def use_idle_threads() -> None:
    """
    Use as many threads as cores are idle now: two threads on one core wait for each other, and a step takes ten times
    as long as with one. If OMP_NUM_THREADS is set, nothing changes.
    """
    threads, cores = torch.get_num_threads(), psutil.cpu_count()
    if "OMP_NUM_THREADS" not in os.environ:
        busy = cores * psutil.cpu_percent(interval=1) / 100
        idle = max(1, min(threads, round(cores - busy)))
        print(f"Other programs use {busy:.1f} of {cores} cores: computing with {idle} of {threads} threads.")
        torch.set_num_threads(idle)


def heading(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def empty_folder(path: Path) -> None:
    """Make `path` an empty folder. Exits if it has files and was not made by the demo."""
    if path.exists():
        if not path.is_dir() or (any(path.iterdir()) and not (path / MARKER).exists()):
            raise SystemExit(f"{path} is there already and was not made by the demo: give another --output_dir.")
        shutil.rmtree(path)
    path.mkdir(parents=True)
    (path / MARKER).touch()


def unigram_baseline(trainer: Trainer) -> dict[str, float]:
    """Return loss and accuracy, on the masked held-out tokens, of the best guess that ignores the text around them."""
    special = trainer.processing_class.all_special_ids
    counts = np.zeros(len(trainer.processing_class))
    for batch in trainer.train_dataset.iter(batch_size=1000):
        counts += np.bincount(np.concatenate(batch["input_ids"]), minlength=len(counts))
    counts += 1  # so that a token never seen in training has a finite loss
    counts[special] = 0  # special tokens are never masked
    log_probability = torch.from_numpy(counts / counts.sum()).log()
    labels = torch.cat([batch["labels"].flatten() for batch in trainer.get_eval_dataloader()]).cpu()
    labels = labels[labels != -100]
    return {
        "masked_tokens": len(labels),
        "unigram_loss": float(-log_probability[labels].mean()),
        "unigram_accuracy": float((labels == log_probability.argmax()).float().mean()),
    }


@torch.no_grad()
def losses_by_length(trainer: Trainer, longest: int, max_tokens: int) -> dict[int, float]:
    """
    Return the loss on the same masked held-out tokens, read in windows of the training length, twice that, four times
    that, and so on. The text runs on from window to window, so longer windows have more context.
    """
    batches = list(trainer.get_eval_dataloader())
    input_ids, labels = (torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    length = input_ids.shape[1]
    longest = min(longest, length * 2 ** int(np.log2(len(labels))))
    rows = min(max_tokens, labels.numel()) // longest * longest // length
    model = trainer.model.eval()
    losses = {}
    while length <= longest:
        pairs = zip(*(x[:rows].reshape(-1, 1, length).to(model.device) for x in (input_ids, labels)), strict=True)
        total = sum(model(window, labels=answer).loss * (answer != -100).sum() for window, answer in pairs)
        losses[length] = float(total / (labels[:rows] != -100).sum())
        length *= 2
    return losses


def held_out_sentences(file: str, count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Draw sentences of a file, with one word replaced by [MASK], and that word."""
    generator = np.random.default_rng(seed)
    sentences = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    sentences = [s for s in sentences if re.fullmatch(r"[A-Z][a-z]+( [a-z]+,?)+\.", s) and 9 <= len(s.split()) <= 15]
    chosen = []
    for index in generator.permutation(len(sentences)):
        words = sentences[index].split()
        candidates = [i for i, word in enumerate(words[1:-1], start=1) if word.isalpha()]
        position = int(generator.choice(candidates))
        truth, words[position] = words[position], "[MASK]"
        chosen.append((" ".join(words), truth))
        if len(chosen) == count:
            break
    return chosen


def search_part(output: Path, model: str | Path) -> dict:
    heading("0  Search the docstrings of the standard library with a trained LION")
    request = {"folder": None, "package": place_of_package(STANDARD_LIBRARY), "top": 3, "seconds": None}
    request |= {"cache_dir": str(output / "search")}
    searcher, found = Searcher(str(model)), {}
    for query in QUERIES:
        *_, last = searcher.answers(request | {"query": query})
        print("\n".join(["", *lines_of(query, last["answers"])]))
        found[query] = last["answers"]
    print("\nyour own queries: lion search --package stdlib")
    return {"texts": last["passages"], "answers": found}


def text_part(output: Path, effort: Effort) -> tuple[dict, Trainer]:
    heading("1  Docstrings of this Python: collect, train a tokenizer, pre-train LION")
    steps = effort.text_steps
    data = write_docstrings(output / "text", max_bytes=effort.max_bytes)
    for split in ("train", "validation"):
        size, files = data[f"{split}_bytes"] / 1e6, data[f"{split}_source_files"]
        print(f"{split:10} {size:5.1f} MB, {data[f'{split}_paragraphs']} paragraphs of {files} files")
    model_dir = output / "mlm"
    trainer = run_mlm.main(
        ["--config_name", "lion-text-base", "--config_overrides", MLM_CONFIG, "--vocab_size", "4000"]
        + ["--train_file", data["train_file"], "--validation_file", data["validation_file"], *TRAINING]
        + ["--output_dir", str(model_dir), "--cache_dir", str(output / "cache")]
        + ["--max_steps", str(steps), "--warmup_steps", str(min(100, steps // 4))]
        + ["--learning_rate", "3e-3", "--adam_beta2", "0.98"]
        + ["--per_device_train_batch_size", "16", "--per_device_eval_batch_size", "50"]
        + ["--logging_steps", str(max(1, steps // 30)), "--eval_steps", str(max(1, steps // 2))]
    )
    metrics = json.loads((model_dir / "eval_results.json").read_text())
    baseline = unigram_baseline(trainer)
    print(f"held-out loss     {metrics['eval_loss']:.3f}   unigram {baseline['unigram_loss']:.3f}")
    print(f"held-out accuracy {metrics['eval_accuracy']:.1%}   unigram {baseline['unigram_accuracy']:.1%}")

    by_length = losses_by_length(trainer, effort.longest, max_tokens=16 * effort.longest)
    print("held-out loss in windows of " + ", ".join(f"{n}: {loss:.3f}" for n, loss in by_length.items()))

    fill_mask = pipeline("fill-mask", model=str(model_dir))
    sentences = held_out_sentences(data["validation_file"], count=8)
    answers = []
    for (sentence, truth), guesses in zip(sentences, fill_mask([s for s, _ in sentences], top_k=5), strict=True):
        top = [(guess["token_str"], round(guess["score"], 3)) for guess in guesses]
        answers.append({"sentence": sentence, "truth": truth, "answers": top})
        print(f"\n  {sentence}\n    was: {truth};  answers: " + ", ".join(f"{w} {p:.0%}" for w, p in top))
    figures = {
        "loss": metrics["eval_loss"],
        "perplexity": metrics["perplexity"],
        "accuracy": metrics["eval_accuracy"],
        **baseline,
        "train_seconds": json.loads((model_dir / "train_results.json").read_text())["train_runtime"],
        "loss_by_length": by_length,
        "fill_mask": answers,
    }
    return {**data, **figures}, trainer


def write_digits(folder: Path) -> None:
    """Write scikit-learn's 1797 scans of handwritten digits, 8 x 8, as an image folder; a quarter is held out."""
    digits = load_digits()
    indices = np.arange(len(digits.target))
    parts = train_test_split(indices, test_size=0.25, random_state=0, stratify=digits.target)
    for split, part in zip(("train", "validation"), parts, strict=True):
        for index in part:
            path = folder / split / str(digits.target[index]) / f"{index:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.round(digits.images[index] * (255 / 16)).astype(np.uint8)).save(path)


def image_part(output: Path, epochs: int) -> dict:
    heading("2  Handwritten digits: write image files, train LION with the snake scan")
    folder, model_dir = output / "digits", output / "image-classification"
    write_digits(folder)
    run_image_classification.main(
        ["--config_name", "lion-image-small", "--config_overrides", DIGITS_CONFIG, *TRAINING]
        + ["--train_dir", str(folder / "train"), "--validation_dir", str(folder / "validation")]
        + ["--output_dir", str(model_dir), "--cache_dir", str(output / "cache"), "--num_train_epochs", str(epochs)]
        + ["--per_device_train_batch_size", "32", "--per_device_eval_batch_size", "256", "--learning_rate", "2e-3"]
        + ["--warmup_steps", str(min(80, 10 * epochs)), "--min_crop", "0.85"]
        + ["--logging_steps", "43", "--eval_steps", "172"]
    )
    metrics = json.loads((model_dir / "eval_results.json").read_text())
    files = sorted((folder / "validation").glob("*/*.png"))
    labels = [file.parent.name for file in files]
    classify = pipeline("image-classification", model=str(model_dir))
    answers = [answer[0] for answer in classify([str(file) for file in files], top_k=1, batch_size=64)]
    accuracy = float(np.mean([answer["label"] == label for answer, label in zip(answers, labels, strict=True)]))
    print(f"held-out accuracy {metrics['eval_accuracy']:.1%}, by pipeline on {len(files)} files {accuracy:.1%}")
    rows = [
        {"file": str(file), "truth": label, "answer": answer["label"], "score": round(answer["score"], 4)}
        for file, label, answer in zip(files, labels, answers, strict=True)
    ]
    for row in rows[:: len(rows) // 5][:5]:
        print(f"  {row['file']}: {row['answer']} ({row['score']:.0%}), was {row['truth']}")
    figures = {
        "accuracy": metrics["eval_accuracy"],
        "pipeline_accuracy": accuracy,
        "loss": metrics["eval_loss"],
        "train_seconds": json.loads((model_dir / "train_results.json").read_text())["train_runtime"],
        "predictions": rows,
    }
    return figures


def kernel_part(output: Path, validation_file: str) -> dict[str, float]:
    heading("3  Reload both in every kernel")
    errors = {}
    for name, folder, file in (("text", "mlm", validation_file), ("digits", "image-classification", None)):
        found = verify_checkpoint(output / folder, file=file, dtypes=("float32",))
        print_table(verification_table(found))
        if not found.passed:
            raise SystemExit(f"The kernels of {output / folder} do not agree: `lion verify` shows more.")
        errors[name] = max(error.error for error in found.errors)
    return errors


def picture_part(output: Path, text: dict, mlm_trainer: Trainer) -> list[str]:
    heading("4  Pictures")
    folder, model_dir = output / "pictures", str(output / "mlm")
    folder.mkdir()
    return [
        demo_pictures.draw_losses(
            folder / "losses.png", mlm_trainer.state.log_history, text["unigram_loss"], text["loss_by_length"]
        ),
        demo_pictures.draw_decay_masks(folder / "decay_masks.png", model_dir, SENTENCE.format("name")),
        demo_pictures.draw_attention_rows(folder / "attention_rows.png", model_dir, SENTENCE.format("[MASK]")),
    ]


def main(args: list[str] | None = None) -> dict:
    """Run the demo. Returns the summary, which is also written to `summary.json` in the output folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/demo"), help="emptied first")
    parser.add_argument("--full", action="store_true", help="train longer: 800 text steps on 8 MB, 20 digit epochs")
    parser.add_argument("--search_model", default=default_model(), help="folder of the encoder that searches")
    arguments = parser.parse_args(args)
    effort = FULL if arguments.full else SHORT
    check_source(arguments.search_model)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # the one request that reading local images would make
    start = time.perf_counter()
    output = arguments.output_dir
    empty_folder(output)
    use_idle_threads()

    found = search_part(output, arguments.search_model)
    text, mlm_trainer = text_part(output, effort)
    image = image_part(output, effort.digits_epochs)
    kernels = kernel_part(output, text["validation_file"])
    files = picture_part(output, text, mlm_trainer)

    seconds = time.perf_counter() - start
    summary = {
        "seconds": seconds,
        "search": found,
        "text": text,
        "image": image,
        "kernels": kernels,
        "pictures": files,
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    heading(f"Summary ({seconds / 60:.1f} minutes)")
    print(f"{'':34}{'LION':>9}{'unigram':>10}")
    print(f"{'masked tokens, held-out loss':34}{text['loss']:9.3f}{text['unigram_loss']:10.3f}")
    print(f"{'masked tokens, held-out accuracy':34}{text['accuracy']:9.1%}{text['unigram_accuracy']:10.1%}")
    print(f"{'digits, held-out accuracy':34}{image['accuracy']:9.1%}")
    for name, error in kernels.items():
        print(f"{'largest error of a kernel, ' + name:34}{error:9.1e}")
    print("pictures: " + ", ".join(files))
    print(f"all figures: {output / 'summary.json'}")
    return summary


if __name__ == "__main__":
    main()
