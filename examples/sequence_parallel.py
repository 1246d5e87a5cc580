# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train on sequences that several processes share: each holds its slice of the tokens, and only states cross the borders.

    torchrun --nproc_per_node 2 examples/sequence_parallel.py --train_file long.txt --length 65536

Started as `python examples/sequence_parallel.py ...`, one process does the same alone, and the losses are the same.
"""

import argparse
import os

import torch
import torch.distributed as dist
from tokenization_lion import LionTokenizer
from torch.nn.parallel import DistributedDataParallel
from transformers import DataCollatorForLanguageModeling

from modeling_lion import LionForMaskedLM, lion_preset


def main(args: list[str] | None = None) -> list[float]:
    """Train; the loss of every step comes back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", required=True, help="Plain text, read as one sequence after the other.")
    parser.add_argument("--config_name", default="lion-s-text-base")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--length", type=int, default=16384, help="Tokens of a sequence, over all processes.")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    args = parser.parse_args(args)

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    is_shared = "RANK" in os.environ  # set by torchrun
    if is_shared:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    with open(args.train_file, encoding="utf-8") as file:
        lines = file.read().splitlines()
    tokenizer = LionTokenizer.train_from_iterator(lines, vocab_size=args.vocab_size)
    ids = tokenizer("\n".join(lines), verbose=False)["input_ids"]
    windows = [ids[n : n + args.length] for n in range(0, max(len(ids) - args.length, 0) + 1, args.length)]
    # The same seeds everywhere: all processes make the same batch and mask the same tokens.
    torch.manual_seed(0)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=0)
    config = lion_preset(args.config_name, num_hidden_layers=args.layers, vocab_size=len(tokenizer))
    model = LionForMaskedLM(config).to(device)

    trained = model
    if is_shared:
        model.set_sequence_parallel(dist.group.WORLD)
        trained = DistributedDataParallel(model)  # averages the gradients
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    losses = []
    for step in range(args.steps):
        batch = collate([{"input_ids": windows[step % len(windows)]}]).to(device)
        loss = trained(**(model.shard_inputs(batch) if is_shared else batch)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if is_shared:
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
        losses.append(loss.item())
        if not is_shared or dist.get_rank() == 0:
            print(f"step {step}: loss {losses[-1]:.6f}", flush=True)
    if is_shared:
        dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
