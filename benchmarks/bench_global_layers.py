# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a ModernBERT keeps when its global layers become linear: masked language modeling and a task that needs far
tokens, beside the same model trained as long with its exact layers, and beside windows alone.

    python benchmarks/bench_global_layers.py            # a quarter of an hour of a CPU core
    python benchmarks/bench_global_layers.py --steps 2000 --more_steps 600
    python benchmarks/bench_global_layers.py --quick    # a few steps, to see that it runs

A small ModernBERT is trained from random weights on the docstrings of this Python installation, file after file, so
that far text is of the same package. Every text also has one mark of each kind among its first tokens and asks for all
of them at its end: `KINDS` kinds of `VALUES` values each, farther apart than all windows together reach. In training
it asks in between, too, and the first steps have short texts. Then `LION` (`linearize(..., layers="global",
exact_length=0)`) and `windows alone` (the global layers see a window, too) are trained on, and so is the
ModernBERT itself: all with the same texts, steps and rate. Rows go to global_layers.csv.
"""

import argparse
import copy
import math
import random

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from measure import append_rows, make_parser
from report import write_pages
from tokenization_lion import LionTokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from training_lion.scripts.docstrings import collect_docstrings, python_folders
from transformers import AutoModelForMaskedLM, ModernBertConfig, ModernBertForMaskedLM, PreTrainedModel

from modeling_lion import linearize


KINDS, VALUES = 8, 8
MARKED = 64  # tokens at the beginning of a text, where the marks are
ASKED = 1 / 16  # of the tokens of a text in training; its last tokens ask for every kind
SHAPE = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
# ModernBERT's is .02, of more hidden units: with so small weights, attention does not begin to learn here.
INITIALIZER_RANGE = 0.06
WINDOW = 32  # tokens on each side
LENGTHS = (512, 2048, 8192)
# Lengths of texts, step by step; the first steps from random weights have short texts, where marks are near.
STEPS = (512, 512, 512, 2048) * 3 + (512, 512, 2048, 8192)
SHORT, SHORT_SHARE = 128, 0.25
MASKED = 0.3  # as ModernBERT's


class Texts:
    """
    Tokens of docstrings, one file after the other, by split; and the texts made of them.

    Attributes:
        first_mark: the id of the first mark; those of kind k are the VALUES from `first_mark + k * VALUES` on, and
            the questions follow.
    """

    def __init__(self, max_bytes: int, vocab_size: int):
        splits = collect_docstrings(python_folders(), max_bytes=max_bytes)
        lines = [[text for file in sorted(split) for text in split[file]] for split in splits]
        self.tokenizer = LionTokenizer().train_new_from_iterator(lines[0], vocab_size)
        encode = lambda split: self.tokenizer(" ".join(split), add_special_tokens=False, verbose=False)["input_ids"]
        self.train, self.validation = (torch.tensor(encode(split)) for split in lines)
        self.first_mark = len(self.tokenizer)
        self.vocab_size = self.first_mark + KINDS * VALUES + KINDS

    def batch(self, tokens: Tensor, length: int, size: int, seed: int, extra: int = 0) -> tuple[Tensor, Tensor]:
        """
        `size` texts of so many tokens, from anywhere, and what is to be said: -100 where nothing is. `extra` questions
        are anywhere behind the marks.
        """
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(tokens) - length, (size, 1), generator=generator)
        ids = tokens[starts + torch.arange(length)]
        labels = torch.full_like(ids, -100)
        is_masked = torch.rand(ids.shape, generator=generator) < MASKED
        labels[is_masked] = ids[is_masked]
        ids[is_masked] = self.tokenizer.mask_token_id
        values = torch.randint(VALUES, (size, KINDS), generator=generator)
        marks = self.first_mark + VALUES * torch.arange(KINDS) + values
        places = torch.rand(size, MARKED, generator=generator).argsort(1)[:, :KINDS]
        ids.scatter_(1, places, marks)
        labels.scatter_(1, places, -100)
        places = MARKED + torch.rand(size, length - MARKED - KINDS, generator=generator).argsort(1)[:, :extra]
        places = torch.cat((places, torch.arange(length - KINDS, length).expand(size, -1)), 1)
        kinds = torch.randint(KINDS, places.shape, generator=generator)
        kinds[:, extra:] = torch.arange(KINDS)
        ids.scatter_(1, places, self.first_mark + KINDS * VALUES + kinds)
        labels.scatter_(1, places, marks.gather(1, kinds))
        return ids, labels


def make_model(vocab_size: int, **fields) -> ModernBertForMaskedLM:
    torch.manual_seed(0)
    special = {f"{name}_token_id": n for n, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}
    options = {"vocab_size": vocab_size, "local_attention": 2 * WINDOW, "max_position_embeddings": max(LENGTHS)}
    options["initializer_range"] = INITIALIZER_RANGE
    config = ModernBertConfig(**SHAPE, **options, **special, **fields)
    return AutoModelForMaskedLM.from_config(config, attn_implementation="lion_local")


def windows_alone(model: ModernBertForMaskedLM) -> ModernBertForMaskedLM:
    """The same weights, with a window in every layer."""
    layer_types = ["sliding_attention"] * model.config.num_hidden_layers
    found = make_model(model.config.vocab_size, layer_types=layer_types)
    found.load_state_dict(model.state_dict())
    return found


def logits_of(model: PreTrainedModel, ids: Tensor, where: Tensor) -> Tensor:
    """Logits of some tokens, `(tokens, vocab_size)`."""
    states = model.base_model(ids).last_hidden_state[where]
    return model.decoder(model.head(states))


def losses(model: PreTrainedModel, texts: Texts, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss of masked tokens, loss of marks, and which marks were right: marks of a kind are told from each other."""
    where = labels != -100
    logits, wanted = logits_of(model, ids, where), labels[where]
    is_mark = wanted >= texts.first_mark
    text = cross_entropy(logits[~is_mark], wanted[~is_mark])
    marks = logits[is_mark][:, texts.first_mark : texts.first_mark + KINDS * VALUES]
    wanted = wanted[is_mark] - texts.first_mark
    return text, cross_entropy(marks, wanted), marks.argmax(-1) == wanted


def train(
    model: PreTrainedModel, texts: Texts, steps: int, args: argparse.Namespace, first_seed: int, short_steps: int = 0
) -> None:
    """With AdamW, a warmup and a cosine; equal seeds give equal texts, of which the first ones may be short."""
    new = [x for name, x in model.named_parameters() if ".lion." in name]
    is_new = set(map(id, new))
    others = [x for x in model.parameters() if id(x) not in is_new]
    groups = [{"params": others}, {"params": new, "lr": args.learning_rate * args.new_weights}]
    optimizer = torch.optim.AdamW([x for x in groups if x["params"]], lr=args.learning_rate, weight_decay=0.01)
    warmup = max(1, steps // 20)
    shape = lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    model.train()
    for step in range(steps):
        length = SHORT if step < short_steps else STEPS[step % len(STEPS)]
        size, extra = max(1, args.tokens // length), int(ASKED * length)
        batch = texts.batch(texts.train, length, size, first_seed + step, extra)
        text, marks, right = losses(model, texts, *batch)
        (text + marks).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        if step % 20 == 19 or step == steps - 1:
            print(
                step + 1,
                f"{length} tokens, loss {text:.3f}, marks {marks:.3f} ({right.float().mean():.2f})",
                flush=True,
            )


@torch.no_grad()
def evaluate(model: PreTrainedModel, texts: Texts, args: argparse.Namespace) -> list[dict]:
    rows = []
    model.eval()
    for length in LENGTHS:
        size = max(1, args.tokens // length)
        count = max(1, args.eval_tokens // (size * length))
        found = [losses(model, texts, *texts.batch(texts.validation, length, size, -1 - n)) for n in range(count)]
        loss, _, right = zip(*found, strict=True)
        right = torch.cat(right).float()
        rows.append({"length": length, "loss": float(torch.stack(loss).mean()), "right": float(right.mean())})
        rows[-1] |= {"questions": len(right), "tokens": count * size * length}
    return rows


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "a few steps", goes_on=False)
    parser.add_argument("--steps", type=int, default=420, help="of the ModernBERT, from random weights")
    parser.add_argument("--more_steps", type=int, default=140, help="of every model after that")
    parser.add_argument("--tokens", type=int, default=4096, help="of a step, or one text")
    parser.add_argument("--eval_tokens", type=int, default=2**17, help="of every length")
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--new_weights", type=float, default=5.0, help="their learning rate, in multiples")
    parser.add_argument("--vocab_size", type=int, default=2048)
    parser.add_argument("--max_bytes", type=int, default=10_000_000)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.steps, args.more_steps, args.eval_tokens, args.max_bytes = 2, 1, 2**13, 2_000_000
    random.seed(0)
    texts = Texts(args.max_bytes, args.vocab_size)
    print(f"{len(texts.train):,} tokens to train, {len(texts.validation):,} held out", flush=True)
    about = SHAPE | {"steps": args.steps, "more_steps": args.more_steps, "step_tokens": args.tokens}

    def report(name: str, model: PreTrainedModel) -> None:
        rows = [about | {"model": name} | row for row in evaluate(model, texts, args)]
        append_rows(args.output_dir / "global_layers.csv", rows)
        for row in rows:
            print(name, *(f"{row[x]:.4g}" for x in ("length", "loss", "right")), flush=True)

    model = make_model(texts.vocab_size)
    train(model, texts, args.steps, args, 0, int(SHORT_SHARE * args.steps))
    lion = linearize(copy.deepcopy(model), layers="global", exact_length=0)
    report("LION, not trained on", lion)
    for name, other in (("ModernBERT", copy.deepcopy(model)), ("LION", lion), ("windows alone", windows_alone(model))):
        train(other, texts, args.more_steps, args, args.steps)
        report(name, other)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
