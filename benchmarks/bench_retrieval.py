# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Long documents: does an encoder that reads them as a whole find them better than one that reads pieces?

    pip install ".[distill]"                          # the teacher
    python benchmarks/bench_retrieval.py              # an hour of a CPU core
    python benchmarks/bench_retrieval.py --quick      # a few documents
    pip install ".[distill,train,embeddings]"         # to train encoders for it:
    python benchmarks/bench_retrieval.py --encoders "LION trained on whole documents" "LION trained on pieces" \
        "teacher trained on pieces"                   # an hour or two

A query is the first paragraph of a module's docstring. Its document is all other documentation of the module, with the
names of classes and functions, 1,024 to 32,768 tokens long; paragraphs of nearly the same words as the query are left
out. Documents are modules of a few large packages, so that most of the others are about similar things, and guides of
packages on PyPI, whose query is the first paragraph, too. Rows go to retrieval.csv, one for each model, method and
range of lengths:

- `whole`: the document in one pass;
- `first N`: cut off after N tokens;
- `256, mean`: cut into pieces of 256 tokens, whose embeddings are averaged;
- `256, best`: the same pieces, of which the most similar one counts;
- `256, best three`: the mean of the three most similar ones.

"LION by softmax" is LION's checkpoint with its own softmax attention at every length, so all else is the same:

    python benchmarks/bench_retrieval.py --encoders "LION by softmax" LION --guides --documents 50 30 10 0 0

The encoders that are "trained" have seen queries and documents of other packages before, by train_embeddings.py: as a
whole, up to 1,024 tokens, or as often a piece at random.
"""

import hashlib
import json
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from documents import guides_of_packages
from measure import CHECKPOINT, append_rows, in_new_process, is_measured, make_parser, peak_memory
from report import write_pages
from retrieval_lion.docstrings import docstrings, module_name, split_paragraphs
from retrieval_lion.documents import files_of_package
from retrieval_lion.sources import check_source
from torch import Tensor
from torch.nn import functional as F
from training_lion.distillation import find_teacher, pooled
from training_lion.scripts.docstrings import is_prose
from training_lion.scripts.ranking import mean_and_error
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

import modeling_lion  # noqa: F401 (the Auto classes know LION from here on)


PACKAGES = ("torch", "transformers", "scipy", "sympy")
# Packages on PyPI, whose source distributions have guides that no checkpoint has seen.
GUIDES = (
    *("alembic", "black", "buildbot", "celery", "cherrypy", "coverage", "dask", "distributed", "django", "docutils"),
    *("fabric", "flask", "gunicorn", "invoke", "kombu", "mako", "nox", "paramiko", "peewee", "pylint", "pymongo"),
    *("pyramid", "scrapy", "sphinx", "twisted", "urllib3", "waitress", "wtforms", "zope.interface"),
)
GUIDES_OF_A_PACKAGE = 12
GUIDE_CHARACTERS = 3_000, 150_000
FIRST_PARAGRAPHS = 6  # of a guide, one of which is the query
RANGES = ((1024, 2048), (2048, 4096), (4096, 8192), (8192, 16384), (16384, 32768))  # tokens, the last one excluded
PIECE = 256
# What encoders are trained on: packages that the tests have installed, and Python's own.
TRAINING_PACKAGES = [
    *("asyncio", "datasets", "email", "gradio", "huggingface_hub", "IPython", "jinja2", "joblib", "json", "logging"),
    *("matplotlib", "mpmath", "networkx", "numpy", "pandas", "pydantic", "selenium", "sklearn", "tornado"),
]
TRAINING_LENGTHS = (256, 32768)  # of the documents
TRAINING_TOKENS = 1024  # of a document, that count
TRAINING_EPOCHS = 2
SOURCES_DIR = Path(__file__).parents[1] / "outputs" / "passages" / "sources"
TRAINED_DIR = Path(__file__).parents[1] / "outputs" / "retrieval"
TRAINING_ARGUMENTS = [
    *("--num_train_epochs=1", "--per_device_train_batch_size=32", "--mini_batch_size=4", "--learning_rate=3e-5"),
    *("--warmup_steps=5", "--lr_scheduler_type=cosine", "--batch_sampler=no_duplicates", "--bf16", "--use_cpu"),
    *("--save_strategy=no", "--logging_steps=5", "--report_to=none", "--dataloader_pin_memory=False"),
]
BATCH_TOKENS = 4096
MIN_QUERY_WORDS = 6
LEGAL = re.compile("copyright|licen[cs]e", re.IGNORECASE)
NEAR = 0.6  # share of the words of two paragraphs that makes them nearly the same


class DocumentWithQuery(NamedTuple):
    module: str
    query: str
    text: str


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def is_near(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two sets of words are nearly the same, or one of at least four is nearly all in the other."""
    smaller = min(len(first), len(second))
    return smaller >= 4 and len(first & second) >= NEAR * smaller


def document_of(file: str, module: str) -> DocumentWithQuery | None:
    """
    The query and the document of a module; `None` if its docstring does not begin with a sentence.
    """
    found = sorted(docstrings(file, module), key=lambda docstring: docstring.line)
    if not found or found[0].name != module:
        return None
    query, *rest = split_paragraphs(re.sub(r"([-=~*#^])\1{2,}", "", found[0].text))  # without lines under headings
    is_sentence = len(query.split()) >= MIN_QUERY_WORDS and not LEGAL.search(query)
    if not is_sentence:
        return None
    parts = [(None, rest)] + [(x.name.removeprefix(f"{module}."), split_paragraphs(x.text)) for x in found[1:]]
    lines = []
    for name, paragraphs in parts:
        kept = without(query, paragraphs)
        lines += [name, *kept] if name and kept else kept
    return DocumentWithQuery(module, query, "\n".join(lines))


def without(query: str, paragraphs: list[str]) -> list[str]:
    """The paragraphs that have other words than the query."""
    of_query = words(query)
    return [text for text in paragraphs if not is_near(words(text), of_query)]


def document_of_guide(name: str, text: str) -> DocumentWithQuery | None:
    """The query and the document of a guide; `None` if none of its first paragraphs is prose."""
    paragraphs = split_paragraphs(text)
    found = (x for x in paragraphs[:FIRST_PARAGRAPHS] if is_prose(x) and not LEGAL.search(x))
    query = next(found, None)
    return None if query is None else DocumentWithQuery(name, query, "\n".join(without(query, paragraphs)))


def find_documents(packages: Iterable[str], guides: Iterable[str], sources_dir: Path) -> Iterator[DocumentWithQuery]:
    """Documents from modules of installed packages and from guides of packages on PyPI, mixed."""
    makers: list[Callable[[], DocumentWithQuery | None]] = []
    for package in packages:
        files, folder = files_of_package(package)
        makers += [partial(document_of, file, module_name(file, folder)) for file in files]
    of_packages = guides_of_packages(guides, sources_dir, GUIDES_OF_A_PACKAGE, GUIDE_CHARACTERS)
    makers += [partial(document_of_guide, *guide) for guide in of_packages]
    random.Random(0).shuffle(makers)
    yield from filter(None, (make() for make in makers))


def collect(
    documents: Iterable[DocumentWithQuery], tokenizer: PreTrainedTokenizerBase, wanted: dict[tuple[int, int], int]
) -> dict[tuple[int, int], list[tuple[DocumentWithQuery, list[int]]]]:
    """
    The wanted number of documents for each range of lengths, with their token ids, without special tokens. If two
    share most of their paragraphs, or have the same query, only the first is taken.
    """
    shortest = min(low for low, _ in wanted)
    queries, seen, chosen = [], [], {limits: [] for limits in wanted}
    for document in documents:
        if len(document.text) < 2 * shortest:  # no tokenizer makes so many of so little
            continue
        paragraphs, of_query = set(document.text.split("\n")), words(document.query)
        if of_query in queries or any(2 * len(paragraphs & x) > min(len(paragraphs), len(x)) for x in seen):
            continue
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        limits = next((limits for limits in wanted if limits[0] <= len(ids) + 2 < limits[1]), None)
        if limits is None or len(chosen[limits]) == wanted[limits]:
            continue
        chosen[limits].append((document, ids))
        queries.append(of_query)
        seen.append(paragraphs)
        if all(len(chosen[limits]) == count for limits, count in wanted.items()):
            break
    return chosen


def pieces(ids: list[int], limit: int | None) -> list[list[int]]:
    """Token ids in pieces of at most so many tokens, with two special ones each."""
    size = limit - 2 if limit else len(ids)
    return [ids[n : n + size] for n in range(0, len(ids), size)]


def batches(rows: list[list[int]]) -> Iterator[list[list[int]]]:
    """In their order, as many as have `BATCH_TOKENS` together."""
    count = max(1, BATCH_TOKENS // max(map(len, rows)))
    for n in range(0, len(rows), count):
        yield rows[n : n + count]


@torch.no_grad()
def encode(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, rows: list[list[int]]) -> Tensor:
    """Unit vectors of token ids, to which special tokens are added: the means over tokens, in float32."""
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    inputs = tokenizer.pad([{"input_ids": [special[0], *ids, special[1]]} for ids in rows], return_tensors="pt")
    hidden_states = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    return pooled(hidden_states.float(), inputs["attention_mask"], "mean")


def load_encoder(folder: str, attention: str | None = None) -> Callable[[list[list[int]]], Tensor]:
    """`encode` by the model in a folder of sentence-transformers, with another attention if its name is given."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if attention is not None:
        model.set_attn_implementation(attention)
    return partial(encode, model, AutoTokenizer.from_pretrained(folder))


def encode_documents(
    folder: str, attention: str | None, documents: list[list[int]], limit: int | None, all_pieces: bool
) -> tuple[list[tuple[Tensor, float]], int]:
    """
    The vectors of each document's pieces, or of the first piece, with the seconds of CPU time they took; and the bytes
    by which the peak memory of this process has grown.
    """
    encode_rows = load_encoder(folder, attention)
    encode_rows([[]])  # what is made once
    before = peak_memory()
    found = []
    for ids in documents:
        rows = pieces(ids, limit)
        rows = rows if all_pieces else rows[:1]
        start = time.process_time()
        vectors = torch.cat([encode_rows(batch) for batch in batches(rows)])
        found.append((vectors, time.process_time() - start))
    return found, peak_memory() - before


def mean_of_pieces(query: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack([F.normalize(x.mean(0), dim=0) for x in vectors]) @ query


def best_piece(query: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    return best_pieces(query, vectors, 1)


def best_pieces(query: Tensor, vectors: Sequence[Tensor], count: int) -> Tensor:
    """The mean of the scores of each document's best pieces, of all if it has fewer."""
    return torch.stack([(x @ query).topk(min(count, len(x))).values.mean() for x in vectors])


def ndcg(scores: Tensor, relevant: int) -> float:
    """nDCG@10 of a query with one relevant document; others with the same score stand before it."""
    rank = int((scores >= scores[relevant]).sum())
    return 1 / math.log2(1 + rank) if rank <= 10 else 0.0


Score = Callable[[Tensor, Sequence[Tensor]], Tensor]
# How documents are read, (tokens of a piece, whether all pieces), and what is made of that; by model.
PIECES: dict[tuple[int | None, bool], dict[str, Score]] = {
    (PIECE, True): {
        f"{PIECE}, mean": mean_of_pieces,
        f"{PIECE}, best": best_piece,
        f"{PIECE}, best three": partial(best_pieces, count=3),
    },
    (PIECE, False): {f"first {PIECE}": mean_of_pieces},
}
WHOLE: dict[tuple[int | None, bool], dict[str, Score]] = {(None, False): {"whole": mean_of_pieces}}
CUT_OFF: dict[tuple[int | None, bool], dict[str, Score]] = {
    (limit, False): {f"first {limit}": mean_of_pieces} for limit in (512, 1024, 2048, 4096)
}
BY_SOFTMAX = "LION by softmax"
READINGS = {
    "teacher": PIECES,
    "LION": PIECES | WHOLE | CUT_OFF,
    BY_SOFTMAX: WHOLE,
    "teacher trained on pieces": PIECES,
    "LION trained on pieces": PIECES | WHOLE,
    "LION trained on whole documents": PIECES | WHOLE,
}
# What encoders that are trained begin as, and how many tokens of a document they are trained on.
TRAINED = {
    "teacher trained on pieces": ("teacher", PIECE),
    "LION trained on pieces": ("LION", PIECE),
    "LION trained on whole documents": ("LION", TRAINING_TOKENS),
}


def train(folder: str, output_dir: str, tokens: int) -> None:
    """
    Train an encoder to find the documents of `TRAINING_PACKAGES` by their queries: in each of `TRAINING_EPOCHS` by
    a piece of so many tokens at random, or by the whole document if it is not longer or `TRAINING_TOKENS` count.
    """
    from train_embeddings import main as train_embeddings  # needs sentence-transformers, as nothing else here does

    tokenizer = AutoTokenizer.from_pretrained(folder)
    documents = find_documents(TRAINING_PACKAGES, (), Path())
    (found,) = collect(documents, tokenizer, {TRAINING_LENGTHS: sys.maxsize}).values()
    whole, generator = tokens == TRAINING_TOKENS, random.Random(0)
    pairs = Path(f"{output_dir}-pairs.jsonl")
    pairs.parent.mkdir(parents=True, exist_ok=True)
    with pairs.open("w", encoding="utf-8") as file:
        for _ in range(TRAINING_EPOCHS):
            for document, ids in found:
                text = document.text if whole else tokenizer.decode(generator.choice(pieces(ids, tokens)))
                file.write(json.dumps({"anchor": document.query, "positive": text}) + "\n")
    print(f"training on {len(found)} documents", flush=True)
    args = ["--model", folder, "--train_file", str(pairs), "--output_dir", output_dir, "--max_seq_length", str(tokens)]
    train_embeddings(args + TRAINING_ARGUMENTS)


def weights_hash(folder: str) -> str:
    """Says which weights of a folder were measured, or trained further: those of a model or of an adapter."""
    files = (Path(folder, name) for name in ("adapter_model.safetensors", "model.safetensors"))
    return hashlib.sha256(next(x for x in files if x.is_file()).read_bytes()).hexdigest()[:12]


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "a few documents of up to 4,096 tokens")
    parser.add_argument("--model", default=str(CHECKPOINT), help="folder of the LION")
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument(
        "--encoders", nargs="+", choices=list(READINGS), default=[x for x in READINGS if x not in TRAINED]
    )
    parser.add_argument(
        "--documents", type=int, nargs=len(RANGES), default=[150, 110, 50, 20, 10], help="documents per range"
    )
    parser.add_argument(
        "--packages", nargs="*", default=PACKAGES, help="import names; not given: " + ", ".join(PACKAGES)
    )
    parser.add_argument("--guides", nargs="*", default=GUIDES, help="names on PyPI; not given: " + ", ".join(GUIDES))
    parser.add_argument("--sources_dir", type=Path, default=SOURCES_DIR, help="of guides")
    parser.add_argument(
        "--trained_dir", type=Path, default=TRAINED_DIR, help="folder of the encoders that are trained here"
    )
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.documents, args.guides = [6, 4, 0, 0, 0], args.guides[:2]
    starts = {name: TRAINED.get(name, (name, None))[0] for name in args.encoders}
    starts |= {BY_SOFTMAX: "LION"} if BY_SOFTMAX in starts else {}
    folders = {"LION": args.model}
    for name, folder in folders.items():
        if name in starts.values():
            check_source(folder)
    folders["teacher"] = find_teacher(args.teacher) if "teacher" in starts.values() else ""

    tokenizer = AutoTokenizer.from_pretrained(folders[starts[args.encoders[0]]])  # all have the same
    candidates = find_documents(args.packages, args.guides, args.sources_dir)
    found = collect(candidates, tokenizer, dict(zip(RANGES, args.documents, strict=True)))
    chosen = {limits: x for limits, x in found.items() if x}
    documents = [document for found in chosen.values() for document in found]
    token_ids = [ids for _, ids in documents]
    limits_of = [limits for limits, found in chosen.items() for _ in found]
    print(f"{len(documents)} documents, {sum(map(len, token_ids)):,} tokens", flush=True)

    path = args.output_dir / "retrieval.csv"
    for name in args.encoders:
        folder, attention = folders[starts[name]], "sdpa" if name == BY_SOFTMAX else None
        about = {"encoder": name, "weights": weights_hash(folder), "candidates": len(documents)}
        queries, whole = None, {}
        for (limit, all_pieces), methods in READINGS[name].items():
            cases = [
                about | {"method": method, "min_tokens": low, "max_tokens": high, "documents": len(chosen[low, high])}
                for method in methods
                for low, high in chosen
            ]
            if is_measured(path, cases) and not args.again:
                continue
            if queries is None:
                if name in TRAINED:
                    output = args.trained_dir / f"{name.replace(' ', '-')}-{about['weights']}"
                    if not (output / "model.safetensors").exists():
                        in_new_process(train, folder, str(output), TRAINED[name][1])
                    folder = str(output)
                encode_rows = load_encoder(folder, attention)
                ids = tokenizer([document.query for document, _ in documents], add_special_tokens=False)["input_ids"]
                queries = torch.cat([encode_rows([row[: PIECE - 2]]) for row in ids])
            # A document that is not cut has been read as a whole.
            fits = [n for n, ids in enumerate(token_ids) if limit and not all_pieces and len(ids) <= limit - 2]
            known = {n: whole[n] for n in fits if n in whole}
            rest = [n for n in range(len(token_ids)) if n not in known]
            reading = [token_ids[n] for n in rest], limit, all_pieces
            found, memory = in_new_process(encode_documents, folder, attention, *reading)
            read = known | dict(zip(rest, found, strict=True))
            whole = read if limit is None else whole
            vectors, seconds = zip(*(read[n] for n in range(len(token_ids))), strict=True)
            rows = []
            for case in cases:
                of_range = [n for n, x in enumerate(limits_of) if x == (case["min_tokens"], case["max_tokens"])]
                gains = torch.tensor([ndcg(methods[case["method"]](queries[n], vectors), n) for n in of_range])
                mean, error = mean_and_error(gains, torch.arange(len(gains)))
                measured = {
                    "ndcg": mean,
                    "ndcg_error": error,
                    "seconds": sum(seconds[n] for n in of_range),
                    "memory_bytes": memory,
                }
                rows.append(case | measured)
            append_rows(path, rows)
            for method in methods:
                of_method = [f"{row['ndcg']:.3f}" for row in rows if row["method"] == method]
                print(f"{name}, {method}: nDCG@10 {', '.join(of_method)}; {sum(seconds):.0f} s", flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
