# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the branches of a distilled encoder do: softmax in its window and the linear sum beyond it, together and each
alone, beside the same encoder with its own attention.

    pip install ".[distill]"
    python benchmarks/bench_branches.py                    # an hour of a CPU core
    python benchmarks/bench_branches.py --lengths 128 512  # minutes
    python benchmarks/bench_branches.py --quick            # a few texts, to see that it runs

All rows are computed linearly, whatever `lion_exact_length` is. Texts have just so many tokens and are of another
kind than docstrings, which the encoder was trained on: the documentation of Perl. Longer ones than 512 tokens read the
table of positions again, in the teacher, too. Columns of branches.csv:

- `cosine`, `neighbour_overlap` and `spearman`: how similar embeddings are to the teacher's (examples/distill.py);
- `names_found`: a text whose first sentence says what it is about, by one of `NAMES`, and whose last tokens are
  embedded. The share of these vectors, less their mean, that are nearest to that of the teacher with the same name.
"""

from collections.abc import Iterable
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from bench_retrieval import weights_hash
from documents import documents_of_pod, without_repeats
from measure import append_rows, is_measured, make_parser
from torch import Tensor
from torch.nn.functional import normalize
from training_lion import distillation
from training_lion.distillation_data import of_length
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

import modeling_lion  # noqa: F401


ROOT = Path(__file__).parents[1]


POD = Path("/usr/share/perl")
LENGTHS = {128: 100, 512: 100, 2048: 30, 8192: 12, 16_384: 6}  # tokens, and how many texts
NAMES = ("music", "medicine", "football", "cooking", "war", "birds", "law", "physics")
NAMED_TEXTS = {512: 2}  # with each name; 1 of other lengths
BRANCHES = ("both", "window", "linear")
READ = 64  # tokens at the end of a text


def texts_of_pod(folder: Path) -> list[str]:
    """Return the documents of a folder of Perl's documentation, without empty lines."""
    return [x.text.replace("\n\n", " ") for x in without_repeats(documents_of_pod(folder), (400, 10**7))]


@torch.no_grad()
def named_vectors(model: PreTrainedModel, tokenizer, ids: Tensor, count: int) -> Tensor:
    """Mean vectors of the last tokens of a text that begins with each name, centred, `(names, hidden_size)`."""
    vectors = []
    for name in NAMES[:count]:
        start = tokenizer(f"This document is about {name}.", add_special_tokens=False, return_tensors="pt")[
            "input_ids"
        ]
        row = torch.cat((ids[:, :1], start, ids[:, 1 : ids.shape[1] - start.shape[1]]), 1)
        vectors.append(model.base_model(input_ids=row).last_hidden_state[0, -READ:].mean(0))
    vectors = torch.stack(vectors)
    return normalize(vectors - vectors.mean(0), dim=-1)


def names_found(
    model: PreTrainedModel,
    tokenizer,
    texts: list[dict[str, Tensor]],
    count: int,
    branches: Iterable[str] = BRANCHES,
) -> dict[str, float]:
    """Share of the names that are found, by branches."""
    found = {name: [] for name in branches}
    for text in texts:
        with distillation.attention_of(model, "sdpa"):
            teacher = named_vectors(model, tokenizer, text["input_ids"], count)
        for name, shares in found.items():
            with distillation.attention_of(model, "lion"), distillation.only(model, name):
                student = named_vectors(model, tokenizer, text["input_ids"], count)
            shares.append(float(((student @ teacher.T).argmax(1) == torch.arange(count)).float().mean()))
    return {name: sum(shares) / len(shares) for name, shares in found.items()}


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "a few texts")
    parser.add_argument("--model", default=str(ROOT / "checkpoints" / "lion-minilm-l6"), help="folder of the encoder")
    parser.add_argument("--lengths", type=int, nargs="*", choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--pod", type=Path, default=POD, help="folder with documentation of Perl")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    model = AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    documents = texts_of_pod(args.pod)
    path = args.output_dir / "branches.csv"
    about = {"encoder": Path(args.model).name, "weights": weights_hash(args.model)}
    about |= {"window": model.config.lion_window}
    for length in args.lengths:
        count = 3 if args.quick else LENGTHS[length]
        case = about | {"length": length, "texts": count}
        if is_measured(path, [case]) and not args.again:
            continue
        texts = of_length(documents, tokenizer, length, count)
        found = distillation.evaluate(model, texts, "mean", BRANCHES)
        named, names = (1, 2) if args.quick else (NAMED_TEXTS.get(length, 1), len(NAMES))
        names = names_found(model, tokenizer, texts[:named], names)
        rows = [case | {"branches": x} | found[x] | {"names_found": names[x]} for x in BRANCHES]
        append_rows(path, rows)
        for row in rows:
            print(*(f"{x:.4g}" if isinstance(x, float) else x for x in row.values()), flush=True)


if __name__ == "__main__":
    main()
