# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints with somebody's own mixer: `lion verify`, `bundle`, `upload`, `export` and `convert` with `--mixers`."""

import sys
from pathlib import Path

import pytest
from deploy_lion.cli import WITH_MIXERS, main
from hub_checkpoints import text_checkpoint, text_tokenizer
from hub_upload_lion import load_in_clean_process, verify_checkpoint
from transformers import AutoModel, BertConfig, BertModel

from configuration_lion import registry
from modeling_lion.mixers.import_mixers import import_mixers


ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "benchmarks" / "peers" / f"{name}.py" for name in ("gla", "neighbours", "corrected"))]
PAPER = ("arXiv", "afzal2025lion", "bibtex")
ODD = """
import torch
from modeling_lion import register_mixer
from modeling_lion.mixers.mixer import Mixer


@register_mixer
class OddMixer(Mixer):
    name, description = "odd", "that knows no bfloat16"

    def mix(self, hidden_states):
        if hidden_states.dtype in DTYPES:
            raise NotImplementedError(f'"odd" is not implemented for {hidden_states.dtype}\\nnor for anything else')
        return hidden_states.cumsum(1)
"""
KEYS = '''
import torch
from torch import nn
from modeling_lion import register_mixer
from modeling_lion.mixers.selective import KeyDecay
from modeling_lion.mixers.linear import LinearMixer


@register_mixer
class SlowMixer(LinearMixer):
    """λ = 1 - 2^-(3 + h) in head h."""

    name, description = "slow", "with fixed decays"

    def log_decay(self, hidden_states):
        heads = torch.arange(self.config.num_attention_heads, device=hidden_states.device)
        return torch.log1p(-torch.exp2(-3.0 - heads))

    decay_of_keys = staticmethod(KeyDecay)
'''


@pytest.fixture
def files(tmp_path, forgets_mixers):
    """Files that nothing has imported, by the names of their mixers; forgotten after a test."""
    folder = tmp_path / "files"
    folder.mkdir()
    sources = {"my_odd": ODD, "my_slow": KEYS}
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        sources[f"my_{path.stem}"] = source.replace(f'description = "{path.stem}"', f'description = "my_{path.stem}"')
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return lambda name: folder / f"{name}.py"


def checkpoint(folder: Path, file: Path, mixer: str, **fields) -> Path:
    """A text checkpoint of a mixer, which is then unknown again."""
    import_mixers([file])
    text_checkpoint(folder, mixer_type=mixer, **fields)
    del registry.MIXERS[mixer], sys.modules[file.stem]
    return folder


STATES = ["auto", "chunk", "rnn"]


@pytest.mark.parametrize(
    ("name", "kernels"), [("my_gla", STATES), ("my_neighbours", ["auto"]), ("my_corrected", STATES)]
)
def test_verify_compares_the_forms_that_a_mixer_brings(name, kernels, files, tmp_path, capsys):
    folder = checkpoint(tmp_path / "model", files(name), name)
    assert main(["verify", str(folder)]) == 1
    assert f"`mixer_type` '{name}', which no imported file registers" in (told := capsys.readouterr().err)
    assert f"as {name}.py beside the weights has it" in told and "--mixers" in told
    assert main(["verify", str(folder), "--mixers", str(tmp_path / "none.py")]) == 1
    assert "none.py, which is not a file" in capsys.readouterr().err
    assert main(["verify", str(folder), "--table", "--mixers", str(files(name))]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.endswith(" ok")]
    assert [row[:2] for row in rows] == [[x, d] for d in ("float64", "float32", "bfloat16") for x in kernels]
    if name != "my_corrected":
        assert "smallest" not in printed  # there are neither decays of heads nor denominators


@pytest.mark.slow
def test_every_command_that_reads_checkpoints_here_takes_files(capsys):
    assert {"verify", "bundle", "upload", "export"} <= WITH_MIXERS
    for command in sorted(WITH_MIXERS):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--mixers FILE" in capsys.readouterr().out


def test_what_a_mixer_cannot_compute_is_a_row_of_the_table(files, tmp_path, capsys):
    file = files("my_odd")
    file.write_text(ODD.replace("DTYPES", "(torch.bfloat16,)"), encoding="utf-8")
    folder = checkpoint(tmp_path / "model", file, "odd", pad_token_id=0)
    assert main(["verify", str(folder), "--mixers", str(file)]) == 1
    printed = capsys.readouterr()
    (row,) = [line for line in printed.out.splitlines() if "bfloat16" in line]
    assert row.split()[:6] == ["auto", "bfloat16", "-", "-", "-", "-"]
    assert row.endswith('FAILED NotImplementedError: "odd" is not implemented for torch.bfloat16')
    assert printed.out.count(" ok\n") == 2 and printed.err == ""
    assert main(["bundle", str(folder), str(tmp_path / "bundle")]) == 1
    told = capsys.readouterr().err
    assert "must not be published" in told and '"odd" is not implemented for torch.bfloat16' in told
    result = verify_checkpoint(folder, dtypes=("float32", "bfloat16"))
    assert [e.failure is None for e in result.errors] == [True] * 4 + [False] * 4 and not result.passed


def test_what_cannot_be_computed_in_float64_is_said(files, tmp_path, capsys):
    file = files("my_odd")
    file.write_text(ODD.replace("DTYPES", "(torch.float64,)"), encoding="utf-8")
    folder = checkpoint(tmp_path / "model", file, "odd")
    assert main(["verify", str(folder), "--mixers", str(file)]) == 1
    assert "cannot be computed in float64, with which all dtypes are compared (NotImpl" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my_gla", pytest.param("my_neighbours", marks=pytest.mark.slow), "slow"])
def test_a_card_does_not_cite_the_paper_of_another_mixer(name, files, tmp_path, capsys):
    file = files("my_slow" if name == "slow" else name)
    folder = checkpoint(tmp_path / "model", file, name)
    arguments = [str(folder), str(tmp_path / "bundle"), "--mixers", str(file), "--license", "mit", "--name", "me/own"]
    assert main(["bundle", *arguments]) == 0
    assert file.name in capsys.readouterr().out
    card = (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")
    assert not any(word in card for word in PAPER) and card.endswith("\n")
    is_linear = name == "slow"
    assert ("like a Transformer, block by block" in card) == ("output_attentions" in card) == is_linear
    assert ("- linear-attention" in card) == ("feature map" in card) == is_linear
    described = {
        "my_gla": "GLA, an encoder with a head for masked language modeling for text: attention with a decay for each",
        "my_neighbours": "attention that is a mean over the nearest tokens",
        "slow": "The mixer slow in the backbone of LION, an encoder",
    }
    assert described[name] in card
    assert ('`"chunk"`' in card) == (name != "my_neighbours") and "sdpa" not in card


@pytest.mark.slow
@pytest.mark.parametrize("name", ["my_gla", "my_corrected"])
def test_a_bundle_works_where_the_package_is_not(name, files, tmp_path, capsys):
    file = files(name)
    folder = checkpoint(tmp_path / "model", file, name)
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(folder), str(bundle), "--mixers", str(file), "--license", "mit"]) == 0
    loaded = load_in_clean_process(bundle)
    assert loaded.model_class.endswith("LionForMaskedLM") and loaded.pipeline == "fill-mask"
    sys.modules.pop(name), registry.MIXERS.pop(name)
    capsys.readouterr()
    assert main(["upload", str(bundle), "me/own", "--dry-run", "--mixers", str(file)]) == 0
    assert "Dry run: nothing was sent." in capsys.readouterr().out


def test_a_mixer_that_takes_sequences_one_by_one_is_no_graph(files, tmp_path, capsys):
    file = files("my_gla")
    folder = checkpoint(tmp_path / "model", file, "my_gla")
    arguments = [str(folder), str(tmp_path / "graph"), "--mixers", str(file)]
    assert main(["export", *arguments]) == 1
    assert "with the mixer 'my_gla' cannot be exported: its method `mix` takes" in capsys.readouterr().err
    assert main(["export", *arguments, "--attn_implementation", "parallel"]) == 1
    assert "this LionForMaskedLM has auto, chunk, rnn" in capsys.readouterr().err
    assert not (tmp_path / "graph").exists()


@pytest.mark.slow
def test_a_linear_mixer_becomes_a_graph(files, tmp_path, capsys):
    file = files("my_slow")
    folder = checkpoint(tmp_path / "model", file, "slow")
    assert main(["export", str(folder), str(tmp_path / "graph"), "--mixers", str(file), "--lengths", "40"]) == 0
    assert (tmp_path / "graph" / "model.onnx").is_file()


def test_convert_takes_a_mixer_of_a_file(files, tmp_path, capsys):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=40, **sizes)).save_pretrained(tmp_path / "bert")
    text_tokenizer().save_pretrained(tmp_path / "bert")
    arguments = ["convert", str(tmp_path / "bert"), str(tmp_path / "linear"), "--mixer", "slow"]
    assert main(arguments) == 1
    assert "`mixer` is 'slow'; give one of 'lit', 'decay', 'selective', 'delta', or import" in capsys.readouterr().err
    assert main([*arguments, "--mixers", str(files("my_slow"))]) == 0
    assert "1 of 1 attention modules became linear (slow, hedgehog" in capsys.readouterr().out
    assert AutoModel.from_pretrained(tmp_path / "linear").config.lion_mixer == "slow"
    assert (tmp_path / "linear" / "my_slow.py").is_file()
