# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Two processes, by gloo on the CPU: data parallel, FSDP2 and tensor parallel equal one process, checkpoints load."""

import gc
import json
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from accelerate.state import PartialState
from accelerate.utils import DistributedType, merge_fsdp_weights
from conftest import script_environment
from safetensors.torch import load_file
from tokenization_lion import LionTokenizer
from torch.distributed.tensor import DTensor
from training_lion.packing import DataCollatorForLanguageModelingWithFlattening, PackingTrainer
from transformers import AutoModelForMaskedLM, DataCollatorForTokenClassification, TrainingArguments
from transformers.utils import logging

from modeling_lion import LionConfig, LionForMaskedLM


pytestmark = pytest.mark.slow


MIXERS = ("lit", "decay", "selective")
STEPS = 4
PARALLEL = ("tp", "fsdp")
TEXTS = ["the lion sleeps in the shade", "a lion roars", "two zebras drink at the river at night"]


def make_model(mixer: str) -> LionForMaskedLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    # Tied weights can't be saved by every process for itself: safetensors refuses tensors that share memory.
    sizes["tie_word_embeddings"] = mixer != "lit"
    sizes["rope_parameters"] = {} if mixer == "selective" else None
    sizes["conv_kernel"] = 0  # with which tensor parallelism splits the attention
    return LionForMaskedLM(LionConfig(mixer_type=mixer, vocab_size=80, chunk_size=4, initializer_range=0.2, **sizes))


def make_rows(tokenizer, count: int = 24) -> list[dict]:
    """Sequences of different lengths, with different numbers of labels."""
    rows = [{"input_ids": tokenizer(" ".join(TEXTS[: 1 + n % 3]))["input_ids"]} for n in range(count)]
    for n, row in enumerate(rows):
        row["labels"] = [token if i % (1 + n % 4) == 0 else -100 for i, token in enumerate(row["input_ids"])]
    return rows


def train(folder: Path, name: str, *, packed: bool = False, checkpoint: str | None = None, **options) -> list:
    """Losses of the steps, and the labels that this process trained on."""
    seen = []

    class Spy(PackingTrainer):
        def training_step(self, model, inputs, *args):
            seen.append(inputs["labels"].flatten().tolist())
            return super().training_step(model, inputs, *args)

    tokenizer = LionTokenizer.from_pretrained(folder)
    defaults = {"max_steps": STEPS, "per_device_train_batch_size": 3, "save_steps": STEPS, "optim": "sgd", "seed": 0}
    defaults |= {"learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1}
    arguments = TrainingArguments(
        str(folder / name),
        use_cpu=True,
        ddp_backend="gloo" if "RANK" in os.environ else None,
        report_to="none",
        disable_tqdm=True,
        **defaults | options,
    )
    if arguments.fsdp:
        # accelerate knows no FSDP on the CPU and would train by DDP, saying nothing. Where it believes in another
        # device, the code that shards, gathers and saves is the same, and gloo does it.
        assert arguments.device.type == "cpu"
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
    pack = DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False)
    trainer = Spy(
        make_model("selective"),
        arguments,
        train_dataset=make_rows(tokenizer),
        data_collator=pack if packed else DataCollatorForTokenClassification(tokenizer),
        max_tokens_per_batch=60 if packed else None,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.is_fsdp_enabled:
        assert any(isinstance(parameter, DTensor) for parameter in trainer.model.parameters())
    trainer.save_model(str(folder / name / "final"))
    return [[entry["loss"] for entry in trainer.state.log_history if "loss" in entry], seen]


def one(folder: Path) -> dict:
    # What two processes take at a time, one after the other: their batches alternate.
    answer = {"plain": train(folder, "one", gradient_accumulation_steps=2)}
    answer["packed"] = train(folder, "one_packed", packed=True, gradient_accumulation_steps=2)
    return answer | losses_of_scripts(folder, "one", 4)


def ddp(folder: Path) -> dict:
    answer = {"plain": train(folder, "ddp")}
    epochs = {"packed": True, "max_steps": -1, "num_train_epochs": 2, "save_steps": 1}
    answer["packed"] = train(folder, "ddp_packed", packed=True)
    answer["epochs"] = train(folder, "epochs", **epochs)
    steps = len(answer["epochs"][1])
    answer["resumed"] = train(folder, "epochs", checkpoint=f"{folder}/epochs/checkpoint-{steps - 2}", **epochs)
    return answer


def fsdp(folder: Path) -> dict:
    return {
        "plain": train(folder, "fsdp", fsdp=True, fsdp_config={"version": 2, "state_dict_type": "FULL_STATE_DICT"})
    }


def fsdp_sharded(folder: Path) -> dict:
    config = {"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}
    return {"plain": train(folder, "fsdp_sharded", fsdp=True, fsdp_config=config)}


def by_the_library(folder: Path) -> dict:
    """`from_pretrained(distributed_config=...)`: differences to one process, of logits and of every gradient."""
    from transformers.distributed import DistributedConfig

    generator = torch.Generator().manual_seed(0)
    ids, labels = (torch.randint(1, 80, (4, 13), generator=generator) for _ in range(2))
    answer = {}
    for kind in PARALLEL:
        rows = slice(None) if kind == "tp" else slice(2 * dist_rank(), 2 * dist_rank() + 2)
        config = {f"{kind}_size": 2}
        for mixer in MIXERS:
            expected = make_model(mixer)
            outputs = expected(ids, labels=labels)
            outputs.loss.backward()
            model = AutoModelForMaskedLM.from_pretrained(
                folder / mixer, distributed_config=DistributedConfig(**config)
            )
            actual = model(ids[rows], labels=labels[rows])
            actual.loss.backward()
            errors = {"logits": relative(actual.logits, outputs.logits[rows])}
            sharded = []
            for (name, parameter), other in zip(model.named_parameters(), expected.parameters(), strict=True):
                gradient = parameter.grad
                if isinstance(gradient, DTensor):
                    sharded.append(name)
                    gradient = gradient.full_tensor()
                errors[name] = relative(gradient, other.grad)
            answer[f"{kind} {mixer}"] = {"errors": errors, "sharded": sharded}
            model.save_pretrained(folder / f"{kind}_{mixer}_consolidated")
            if not model.config.tie_word_embeddings:
                model.save_pretrained(folder / f"{kind}_{mixer}_sharded", distributed_checkpoint=True)
    return answer


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-3))


def dist_rank() -> int:
    return int(os.environ["RANK"])


def losses_of_scripts(folder: Path, name: str, batch_size: int) -> dict[str, list[float]]:
    """The losses of batches of streamed lines, whose lengths differ, and of negatives of all processes."""
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    import run_mlm
    import train_embeddings
    from sentence_transformers import SentenceTransformerTrainer

    options = ["--per_device_train_batch_size", str(batch_size), "--logging_steps", "1", "--save_strategy", "no"]
    options += ["--use_cpu", "--report_to", "none", "--disable_tqdm", "True", "--max_steps", "3"]
    options += ["--ddp_backend", "gloo"] if "RANK" in os.environ else []
    streamed = ["--do_train", "--streaming", "--line_by_line", "--model_name_or_path", f"{folder}/decay"]
    streamed += ["--train_file", f"{folder}/lines.txt", "--output_dir", f"{folder}/{name}_streamed"]
    streamed += ["--mlm_probability", "0.9"]  # with few masks, a batch of short lines can have none and no loss
    trainers = [run_mlm.main([*streamed, *options])]
    train = SentenceTransformerTrainer.train
    with mock.patch.object(
        SentenceTransformerTrainer, "train", lambda self, **x: [trainers.append(self), train(self)]
    ):
        embed = ["--train_file", f"{folder}/pairs.jsonl", "--output_dir", f"{folder}/{name}_embed"]
        train_embeddings.main(["--model", f"{folder}/decay", *embed, *options])
    losses = [[entry["loss"] for entry in x.state.log_history if "loss" in entry] for x in trainers]
    return dict(zip(("streamed", "embed"), losses, strict=True))


def scripts(folder: Path) -> dict:
    """How often this process saves what a script leaves."""
    losses = losses_of_scripts(folder, "two", 2)
    import finetune_lora
    import train_embeddings
    from peft import LoraModel

    more = ["--model", f"{folder}/decay", "--max_steps", "1", "--save_strategy", "no", "--use_cpu"]
    more += ["--ddp_backend", "gloo", "--report_to", "none", "--disable_tqdm", "True"]
    answer = {}
    for script, kind, name in (
        (finetune_lora, LoraModel, "merge_and_unload"),
        (train_embeddings, train_embeddings.SentenceTransformer, "save"),
    ):
        out = folder / script.__name__
        with mock.patch.object(kind, name, autospec=True, side_effect=getattr(kind, name)) as save:
            script.main([*more, "--train_file", f"{out}.jsonl", "--output_dir", str(out)])
        answer[script.__name__] = save.call_count
    return answer | losses


WORK = {work.__name__: work for work in (one, ddp, fsdp, fsdp_sharded, by_the_library, scripts)}


def run(rank: int, name: str, folder: str, port: int) -> None:
    """One process, as torchrun would start it."""
    multiprocessing.current_process().name = "MainProcess"
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if name != "one":
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    answer = WORK[name](Path(folder))
    Path(folder, f"{name}_{rank}.json").write_text(json.dumps(answer))
    if dist.is_initialized():
        dist.barrier()
    os._exit(0)  # without the destructors of gloo, which can wait for Python's lock for ever


def start(folder: str) -> None:
    tokenizer = LionTokenizer.train_from_iterator(TEXTS * 5, vocab_size=80)
    tokenizer.save_pretrained(folder)
    for mixer in MIXERS:
        make_model(mixer).save_pretrained(f"{folder}/{mixer}")
    tokenizer.save_pretrained(f"{folder}/decay")
    rows = {"finetune_lora": [{"text": text, "label": text[0]} for text in TEXTS] * 4}
    rows["pairs"] = [{"anchor": f"{text} {n}", "positive": f"{n} {text}"} for n in range(6) for text in TEXTS]
    rows["train_embeddings"] = [{"anchor": f"{n} {text}", "positive": text} for n in range(4) for text in TEXTS]
    for name, lines in rows.items():
        Path(folder, f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path(folder, "lines.txt").write_text("".join(" ".join(TEXTS[: 1 + n % 3]) + f" {n}\n" for n in range(24)))
    gc.freeze()  # each Trainer collects garbage
    for name in WORK:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        # Forked: one import of the libraries for all processes.
        processes = 1 if name == "one" else 2
        torch.multiprocessing.start_processes(run, (name, folder, port), processes, start_method="fork")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where all runs left their answers and checkpoints."""
    folder = tmp_path_factory.mktemp("processes")
    result = subprocess.run(
        [sys.executable, __file__, str(folder)],
        env=script_environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def answers(folder) -> dict[str, list[dict]]:
    """What the processes of each kind of run found."""
    return {name: [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}_[01].json"))] for name in WORK}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForMaskedLM.from_pretrained(folder).state_dict()


@pytest.mark.parametrize(("name", "batches"), [("ddp", "plain"), ("ddp", "packed"), ("fsdp", "plain")])
def test_trainer_has_the_losses_of_one_process(answers, folder, name, batches):
    losses, seen = answers["one"][0][batches]
    assert len(losses) == STEPS and losses[-1] < losses[0]
    for rank, answer in enumerate(answers[name]):
        assert answer[batches][0] == pytest.approx(losses, rel=1e-5)
        assert answer[batches][1] == seen[rank::2]
    packed = "_packed" if batches == "packed" else ""
    expected = weights(folder / f"one{packed}" / "final")
    for kind in ("final", f"checkpoint-{STEPS}"):
        actual = weights(folder / f"{name}{packed}" / kind)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("script", ["streamed", "embed"])
def test_scripts_have_the_losses_of_one_process(answers, script):
    expected = answers["one"][0][script]
    assert len({*expected}) == 3
    for answer in answers["scripts"]:
        assert answer[script] == pytest.approx(expected, rel=1e-5)


def test_fsdp_checkpoints_load_anywhere(answers, folder, tmp_path):
    assert answers["fsdp_sharded"][0]["plain"] == answers["fsdp"][0]["plain"]
    sharded = folder / "fsdp_sharded" / f"checkpoint-{STEPS}" / "pytorch_model_fsdp_0"
    merge_fsdp_weights(str(sharded), str(tmp_path))
    merged, expected = load_file(tmp_path / "model.safetensors"), weights(folder / "fsdp" / "final")
    for name, value in merged.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
    # The code of the model is saved beside its weights, not that of FSDP.
    config = json.loads((folder / "fsdp" / "final" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForMaskedLM"] == "modeling_lion.LionForMaskedLM"
    assert (folder / "fsdp" / "final" / "modeling_lion.py").exists()


def test_packed_processes_share_an_epoch_and_resume_in_it(answers, folder):
    rows = make_rows(LionTokenizer.from_pretrained(folder))
    whole = [answer["epochs"][1] for answer in answers["ddp"]]
    half = len(whole[0]) // 2
    for epoch in (slice(0, half), slice(half, None)):
        labels = [label for steps in whole for batch in steps[epoch] for label in batch]
        assert sorted(labels) == sorted(label for row in rows for label in row["labels"])
    assert whole[0][:half] != whole[0][half:]
    for answer, steps in zip(answers["ddp"], whole, strict=True):
        assert answer["resumed"][1] == steps[-2:]


# A warning about shards that one process loads.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("kind", PARALLEL)
def test_plans_of_the_library(answers, folder, kind, mixer):
    for answer in answers["by_the_library"]:
        found = answer[f"{kind} {mixer}"]
        assert {name: error for name, error in found["errors"].items() if not error < 1e-4} == {}
        if kind == "fsdp":
            assert found["errors"].keys() - found["sharded"] == {"logits"}
        else:
            decays = {name for name in found["errors"] if "decay" in name}
            assert decays <= set(found["sharded"]) and (mixer == "lit" or decays)
    expected = weights(folder / mixer)
    for saved in ("consolidated", "sharded") if mixer == "lit" else ("consolidated",):
        actual = weights(folder / f"{kind}_{mixer}_{saved}")
        assert all(torch.equal(actual[name], x) for name, x in expected.items())


def test_the_first_process_alone_saves_what_scripts_leave(answers, folder):
    for script in ("finetune_lora", "train_embeddings"):
        assert [answer[script] for answer in answers["scripts"]] == [1, 0]
    assert (folder / "finetune_lora" / "merged" / "model.safetensors").exists()
    assert (folder / "train_embeddings" / "modules.json").exists()


def test_tensor_parallel_leaves_attention_whole_where_it_is_not_heads_side_by_side():
    whole = {f"layers.*.mlp.{name}_proj": "colwise" for name in ("gate", "up")} | {"layers.*.mlp.down_proj": "rowwise"}
    assert LionConfig(attention_layer_norm=True, conv_kernel=0).base_model_tp_plan == whole
    assert LionConfig(mixer_type="softmax").base_model_tp_plan == whole
    assert LionConfig(conv_kernel=3).base_model_tp_plan == whole
    assert LionConfig(conv_kernel=0, num_key_heads=4).base_model_tp_plan == whole
    assert LionConfig(conv_kernel=0, num_key_heads=12).base_model_tp_plan.keys() > whole.keys()
    assert LionConfig(modality="image", patch_order="snake", conv_kernel=0).base_model_tp_plan == whole
    assert LionConfig(modality="image", conv_kernel=0).base_model_tp_plan.keys() > whole.keys()
    assert "base_model_tp_plan" not in LionConfig().to_dict()


def test_the_deepspeed_example_is_one_to_the_libraries(tmp_path, monkeypatch):
    """Without DeepSpeed itself, which no test needs: what the Trainer makes of the file before it hands it over."""
    from accelerate.utils.deepspeed import HfDeepSpeedConfig
    from transformers.integrations import deepspeed

    class Config(deepspeed.HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):
        """On top of accelerate's, as where DeepSpeed is installed."""

    monkeypatch.setattr(deepspeed, "dep_version_check", lambda package: None)
    config = Config(Path(__file__).parents[2] / "examples" / "deepspeed.json")
    config.trainer_config_process(TrainingArguments(str(tmp_path), use_cpu=True, gradient_accumulation_steps=3))
    assert config.is_zero2() and config.get_value("gradient_accumulation_steps") == 3
    assert '"auto"' not in json.dumps(config.config)
    # The parameters stay float32, the decays with them: a section "bf16" would convert all of them.
    assert config.get_value("bf16") is None and config.get_value("fp16") is None
    assert config.get_value("torch_autocast") == {"enabled": True, "dtype": "bfloat16"}


if __name__ == "__main__":
    start(sys.argv[1])
