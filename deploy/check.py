# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion check`: check that an encoder gives a text the same result alone, in batches, padded and saved. It
takes any encoder, sentence encoder or classifier of texts, and its exported graph.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from hub_upload_lion.checkpoint import is_weights, load_complete, no_progress_bars
from hub_upload_lion.verify import summary, verify_checkpoint
from retrieval_lion.encoders import NO_LIMIT, SentenceEncoder, tokens_cut
from retrieval_lion.passages import special_tokens
from sentence_transformers import SentenceTransformer
from tokenization_lion.tokenization_lion import check_words
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from modeling_lion.linearized.config import is_lion

from .export.exported import ExportedModel
from .serve.loading import Files


LONGEST = 1026  # tokens of the longest text to try, unless the model's own limit is lower
# Differences relative to the largest number of an output. Sums in another order, in float32, differ by a tenth of the
# first tolerance; the mistakes to find are tens of times larger than it.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
# Fields of configurations with a length at which the computation changes.
WINDOWS = ("sliding_window", "local_attention", "attention_window", "lion_window", "lion_exact_length", "chunk_size")
TEXT = "The lion sleeps in the tall grass, and at night the pride hunts beside the river. "


@dataclass
class Finding:
    """
    The result of a check.

    Attributes:
        check: the name of the check.
        status: "holds", "fails", or "note" for a property that is not a fault.
        error: the largest difference, relative to the largest number of an output; `None` if nothing was compared.
        smallest: the smallest input that fails.
        detail: a sentence for the user.
    """

    check: str
    status: str = "holds"
    error: float | None = None
    smallest: str | None = None
    detail: str = ""


class Subject:
    """
    A model and its tokenizer.

    Args:
        source: a folder or a name on the Hub.
        dtype: dtype of the weights.
        attn_implementation: by default the model's own.
    """

    def __init__(self, source: str, dtype: str = "float32", attn_implementation: str | None = None):
        files, options = Files(source), {"dtype": getattr(torch, dtype)}
        if attn_implementation is not None:
            options["attn_implementation"] = attn_implementation
        self.encoder: SentenceTransformer | None = None
        if files.task() != "embed":
            self.network = load_complete(AutoModelForSequenceClassification, source, **options)
            self.tokenizer = AutoTokenizer.from_pretrained(source)
        elif files.has("modules.json"):
            self.encoder = SentenceTransformer(source, device="cpu", model_kwargs=options).eval()
            if not hasattr(self.encoder[0], "model"):
                raise ValueError(
                    f"{source} begins with {type(self.encoder[0]).__name__}, which is no transformer: there is no "
                    "attention to check."
                )
            self.network, self.tokenizer = self.encoder[0].model, self.encoder.tokenizer
        else:
            self.network = load_complete(AutoModel, source, **options)
            self.tokenizer = AutoTokenizer.from_pretrained(source)
        check_words(self.tokenizer, source)
        self.config = self.network.config

    @property
    def limit(self) -> int:
        """The most tokens that the tokenizer keeps; `NO_LIMIT` if it keeps all."""
        return min(self.tokenizer.model_max_length or NO_LIMIT, NO_LIMIT)

    def rows(self, lengths: Sequence[int]) -> list[list[int]]:
        """Make token ids of a text of each length, with special tokens. Equal lengths give equal texts."""
        prefix, suffix = special_tokens(self.tokenizer)
        words = self.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        found = []
        for length in lengths:
            generator = torch.Generator().manual_seed(length)
            size = max(1, length - len(prefix) - len(suffix))
            chosen = torch.randint(len(words), (size,), generator=generator)
            found.append([*prefix, *(words[n] for n in chosen.tolist()), *suffix])
        return found

    def features(self, rows: Sequence[list[int]], side: str) -> dict[str, Tensor]:
        """Make the inputs of a batch, padded on `side`."""
        inputs = {"input_ids": list(rows), "attention_mask": [[1] * len(row) for row in rows]}
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = [[0] * len(row) for row in rows]
        return dict(self.tokenizer.pad(inputs, padding_side=side, return_tensors="pt", verbose=False))

    def outputs(self, rows: Sequence[list[int]], side: str = "right", network: Callable | None = None) -> list[Tensor]:
        """Return for each text its vector, logits or hidden states, float32; of `network` instead, if given."""
        inputs = self.features(rows, side)
        with torch.inference_mode():
            if self.encoder is not None and network is None:
                return list(self.encoder(dict(inputs))["sentence_embedding"].float())
            (found, *_) = (network or self.network)(**inputs).to_tuple()
        if found.dim() < 3:
            return list(found.float())
        return [states[mask.bool()].float() for states, mask in zip(found, inputs["attention_mask"], strict=True)]

    def save(self, folder: Path) -> None:
        if self.encoder is not None:
            self.encoder.save(str(folder))
            return
        self.network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def difference(found: Tensor, expected: Tensor, scale: float) -> float:
    """
    Return the largest difference relative to the largest number (at least `scale`); inf for other shapes, or numbers
    that are not finite in either.
    """
    if found.shape != expected.shape or not (found.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=scale))


def lengths_of(config, longest: int, fewest: int) -> list[int]:
    """Return the lengths to try: around windows, powers of two and limits, from `fewest` to `longest`."""
    borders = [2**n for n in range(2, 11)] + [longest]
    for part in (config, getattr(config, "text_config", None)):
        values = (getattr(part, name, None) for name in WINDOWS)
        for value in (x for x in values if isinstance(x, int) and x > 0):
            borders += [value // 2, value, 2 * value]
    found = {border + step for border in borders for step in (-1, 0, 1)} | {fewest}
    return sorted(length for length in found if fewest <= length <= longest)


class Checks:
    """
    The checks of a model.

    Args:
        source: as `Subject` takes it.
        graph: folder of the model's graph, to compare with the model.
        seconds: time after which no longer texts are tried.
    """

    def __init__(self, source: str, graph: str | None, seconds: float, attn_implementation: str | None = None):
        self.source, self.graph, self.attn_implementation = source, graph, attn_implementation
        self.stop, self.seconds = time.monotonic() + seconds, seconds
        self.subject = Subject(source, attn_implementation=attn_implementation)
        prefix, suffix = special_tokens(self.subject.tokenizer)
        self.longest = min(self.subject.limit, LONGEST)
        fewest = len(prefix) + len(suffix) + 1
        if self.longest < fewest:
            raise ValueError(
                f"{source} reads at most {self.longest} tokens, and a text of one word has {fewest}: raise "
                "`model_max_length` of its tokenizer."
            )
        self.lengths = lengths_of(self.subject.config, self.longest, fewest)
        self.alone: dict[int, Tensor] = {}
        self.scale = 1e-6  # the largest number of all outputs

    def expected(self, length: int) -> Tensor:
        """Return the output for the text of this length, computed alone."""
        if length not in self.alone:
            (self.alone[length],) = self.subject.outputs(self.subject.rows([length]))
            self.scale = max(self.scale, float(self.alone[length].abs().max()))
        return self.alone[length]

    def compare(self, name: str, pairs: Iterator[tuple[str, Tensor, Tensor]], tolerance: float) -> Finding:
        """Compare outputs. `pairs` has the name of an input, what is found and what is expected, smallest first."""
        finding = Finding(name, error=0.0)
        try:
            for about, found, expected in pairs:
                error = difference(found, expected, self.scale)
                finding.error = max(finding.error, error)
                if error > tolerance and finding.smallest is None:
                    finding.status, finding.smallest = "fails", about
        except Exception as error:  # the model may be anybody's code: what it raises is the finding
            finding.status, finding.error = "fails", None
            finding.smallest = finding.smallest or getattr(self, "at", None)
            finding.detail = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return finding

    def share(self, part: float) -> Iterator[int]:
        """Yield the lengths, shortest first, until a part of the remaining time is over."""
        stop = time.monotonic() + part * max(1.0, self.stop - time.monotonic())
        for length in self.lengths:
            if time.monotonic() > stop and length > 64:
                return
            self.at = f"{length} tokens"
            yield length

    def beside(self, side: str, network: Callable | None = None) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield outputs for each text beside a longer one, padded on `side`, and alone."""
        for length in self.share(0.3):
            other = min(self.longest, length + max(5, length // 3))
            if other > length:
                found, _ = self.subject.outputs(self.subject.rows([length, other]), side, network)
                yield f"{length} tokens beside {other}", found, self.truth(length, network)

    def truth(self, length: int, network: Callable | None) -> Tensor:
        """Return torch's output for a text alone; without the modules behind the network if `network` is compared."""
        if network is None or self.subject.encoder is None:
            return self.expected(length)
        return self.subject.outputs(self.subject.rows([length]), network=self.subject.network)[0]

    def padding(self, side: str) -> Finding:
        finding = self.compare(f"padded {side}", self.beside(side), TOLERANCES["float32"])
        if finding.status == "fails" and side != self.subject.tokenizer.padding_side:
            finding.status = "note"
            finding.detail = (
                f"its tokenizer pads {self.subject.tokenizer.padding_side}; leave that so. {finding.detail}"
            )
        return finding

    def order(self) -> Finding:
        def pairs():
            lengths = self.lengths[:5]
            rows = self.subject.rows(lengths)
            first, last = self.subject.outputs(rows), self.subject.outputs(rows[::-1])[::-1]
            for length, expected, found in zip(lengths, first, last, strict=True):
                yield f"{length} tokens among {lengths}", found, expected

        return self.compare("another order", pairs(), TOLERANCES["float32"])

    def another(self, name: str, make: Callable[[], Subject], tolerance: float, part: float = 0.2) -> Finding:
        """Compare the model with a copy that is loaded in another way."""

        def pairs():
            self.at = None
            other = make()
            for length in self.share(part):
                yield f"{length} tokens", other.outputs(self.subject.rows([length]))[0], self.expected(length)

        return self.compare(name, pairs(), tolerance)

    def eager(self) -> Finding | None:
        used = self.subject.config._attn_implementation
        if used == "eager" or is_lion(self.subject.config):  # "eager" is one of the kernels of a LION
            return None
        finding = self.another(
            f"{used} as eager attention",
            lambda: Subject(self.source, attn_implementation="eager"),
            TOLERANCES["float32"],
        )
        return finding

    def saved(self) -> Finding:
        with tempfile.TemporaryDirectory() as folder:

            def make() -> Subject:
                self.subject.save(Path(folder))
                return Subject(folder, attn_implementation=self.attn_implementation)

            finding = self.another("after saving", make, TOLERANCES["float32"], part=0.1)
            if finding.status == "holds" and Subject(folder).limit != self.subject.limit:
                finding.status = "note"
                finding.detail = f"then cut at {Subject(folder).limit:,} tokens, and at {self.subject.limit:,} before."
        return finding

    def prompts(self) -> Finding | None:
        encoder = self.subject.encoder
        if encoder is None or not any((encoder.prompts or {}).values()):
            return None

        def pairs():
            text, searching = TEXT, SentenceEncoder(encoder)
            options = {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
            yield "a query", searching.encode_queries([text])[0], encoder.encode_query(text, **options).float()
            yield "a document", searching.encode_texts([text])[0], encoder.encode_document(text, **options).float()
            if all(getattr(module, "include_prompt", True) for module in encoder):
                for name, prompt in encoder.prompts.items():
                    named = encoder.encode(text, prompt_name=name, **options)
                    yield f"prompt {name!r}", named, encoder.encode(prompt + text, prompt="", **options)

        return self.compare("prompts", pairs(), TOLERANCES["float32"])

    def cut(self) -> Finding:
        limit, tokenizer = self.subject.limit, self.subject.tokenizer
        if limit >= NO_LIMIT:
            self.at = f"{LONGEST} tokens"
            finding = self.compare("long texts", ((self.at, x, x) for x in map(self.expected, [LONGEST])), 1.0)
            return Finding("long texts", finding.status, None, finding.smallest, finding.detail or "read to the end.")
        text = TEXT * (2 * limit // 10 + 2)
        rows = tokenizer([text], truncation=True, max_length=limit, verbose=False)["input_ids"]
        self.at = f"{len(rows[0])} tokens"
        read = lambda row: self.subject.outputs([row])[0]
        finding = self.compare("long texts", ((self.at, x, x) for x in map(read, rows)), 1.0)
        if finding.status == "holds":
            finding.status, finding.error = "note", None
            finding.detail = f"cut at {limit:,} tokens without a warning."
            if self.subject.encoder is not None:
                lost = int(tokens_cut(self.subject.encoder, [text])[0])
                finding.detail += f" A text of {limit + lost:,} loses {lost:,}."
        return finding

    def dtypes(self) -> Iterator[Finding]:
        """Compare other dtypes with float32. For a LION, compare all kernels in each dtype, as `lion verify` does."""
        if not is_lion(self.subject.config):
            for dtype in ("bfloat16", "float16"):
                yield self.another(dtype, lambda dtype=dtype: Subject(self.source, dtype), TOLERANCES[dtype], part=0.1)
            return
        finding = Finding("kernels and dtypes")
        try:
            found = verify_checkpoint(self.subject.network.name_or_path or self.source, dtypes=tuple(TOLERANCES))
            finding.detail = " ".join(summary(found))
            finding.error = max((e.error / found.scale for e in found.errors), default=None)
            finding.status = "holds" if found.passed else "fails"
            if failed := next((e for e in found.errors if not e.passed), None):
                finding.smallest = f"{failed.kernel} in {failed.dtype}, padding {failed.padding}"
        except Exception as error:  # as in `compare`
            finding.status, finding.detail = "fails", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        yield finding

    def of_graph(self) -> Iterator[Finding]:
        if self.graph is None:
            return
        graph, tolerance = ExportedModel(self.graph), 10 * TOLERANCES["float32"]

        def alone():
            for length in self.share(0.4):
                found = self.subject.outputs(self.subject.rows([length]), network=graph)[0]
                yield f"{length} tokens", found, self.truth(length, graph)

        yield self.compare("the graph as torch", alone(), tolerance)
        side = self.subject.tokenizer.padding_side
        yield self.compare(f"the graph, padded {side}", self.beside(side, graph), tolerance)

    def run(self) -> Iterator[Finding]:
        """Run all checks, and yield each finding as it is made."""
        yield self.padding("right")
        yield self.padding("left")
        yield self.order()
        yield from filter(None, (self.eager(), self.prompts()))
        yield self.cut()
        yield self.saved()
        yield from self.dtypes()
        yield from self.of_graph()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="folder or Hub repository of an encoder, a sentence encoder or a classifier")
    parser.add_argument("--graph", help="folder of its graph (`lion export`) to compare (default: the model's folder)")
    parser.add_argument("--attn_implementation", metavar="NAME", help="such as lion_local (default: the model's own)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=100,
        help="seconds after which no longer texts are tried (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 1 if a check fails, else 0."""
    if args.seconds <= 0:
        raise ValueError(f"--seconds is {args.seconds:g}: give more than 0.")
    if args.graph and not Files(args.graph).is_exported:
        raise ValueError(f"--graph {args.graph} is no folder with a graph: make it with `lion export`.")
    graph, findings = args.graph, []
    if graph is None and Files(args.model).is_exported:
        if not any(is_weights(x.name) for x in Path(args.model).iterdir()):
            raise ValueError(f"{args.model} is a graph alone: give the folder of its model, and --graph {args.model}.")
        graph = args.model
    with no_progress_bars():
        checks = Checks(args.model, graph, args.seconds, args.attn_implementation)
        lengths = checks.lengths
        if not args.json:
            print(f"{args.model}: texts of {lengths[0]} to {lengths[-1]} tokens, {len(lengths)} lengths", flush=True)
        for finding in checks.run():
            findings.append(finding)
            if not args.json:
                print(line_of(finding), flush=True)
    failed = [finding for finding in findings if finding.status == "fails"]
    if args.json:
        about = {"model": args.model, "graph": graph, "lengths": lengths, "holds": not failed}
        print(json.dumps(about | {"checks": list(map(fields_of, findings))}, allow_nan=False))
    else:
        print(f"{len(failed)} of {len(findings)} checks fail." if failed else "All checks hold.")
    return 1 if failed else 0


def fields_of(finding: Finding) -> dict:
    """Return the fields of a finding for JSON, which has no infinity and no NaN: `error` is then null."""
    error = finding.error
    return asdict(finding) | {"error": error if error is not None and math.isfinite(error) else None}


def line_of(finding: Finding) -> str:
    error = "" if finding.error is None else f"{finding.error:.0e}"
    smallest = "" if finding.smallest is None else f"smallest: {finding.smallest}. "
    return f"  {finding.check:26} {finding.status:6} {error:6} {smallest}{finding.detail}".rstrip()
