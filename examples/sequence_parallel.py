# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train on sequences that several processes share. Each process holds a slice of the tokens; they exchange only states.

    torchrun --nproc_per_node 2 examples/sequence_parallel.py --model_name_or_path my-lion --train_file long.txt \
        --length 65536

Started as `python examples/sequence_parallel.py ...`, one process does the same alone, and the losses are the same.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


def main(args: list[str] | None = None) -> list[float]:
    """Train with these arguments, or those of the command line. Returns the loss of every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="Folder or Hub name of a LION model for text.")
    parser.add_argument("--train_file", required=True, help="Plain text, read as one sequence after the other.")
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

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForMaskedLM.from_pretrained(args.model_name_or_path).to(device).train()
    with open(args.train_file, encoding="utf-8") as file:
        ids = tokenizer(file.read(), verbose=False)["input_ids"]
    windows = [ids[n : n + args.length] for n in range(0, max(len(ids) - args.length, 0) + 1, args.length)]
    # The same seed everywhere: all processes make the same batch and mask the same tokens of it. Of transformers 5.17,
    # the collator ignores a seed of 0.
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=1)

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
        dist.barrier()  # else destroying the group may wait, with Python's lock, for a tensor of gloo's thread
        dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
