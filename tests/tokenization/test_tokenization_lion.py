# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tokenizer: BERT's ids from BERT's files, training, saving, and what a data collator or a pipeline asks of it."""

import pickle
import string

import pytest
from hub_checkpoints import image_checkpoint, text_checkpoint
from tokenization_lion import LionTokenizer
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, BaseImageProcessor, BertTokenizer, pipeline

from modeling_lion import LionConfig


LETTERS = string.ascii_lowercase
# As in bert-base-uncased: [PAD] is 0, unused entries, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103.
VOCAB = [
    "[PAD]",
    *(f"[unused{i}]" for i in range(99)),
    *("[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("the", "lion", "sleep", "##s", "##ing", "ca", "##fe", "!", ",", "水"),
]
TEXTS = ["The lions sleeping, café 水!", "", "  tabs\tand\u200b spaces ", "Ω [MASK] naïve", "a" * 150, "lion " * 40]


@pytest.fixture
def vocab_folder(tmp_path):
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(VOCAB)) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def tokenizer(vocab_folder):
    return LionTokenizer.from_pretrained(vocab_folder)


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"tokenize_chinese_chars": False}])
@pytest.mark.parametrize("source", ["folder", "vocab", "vocab_file"])
def test_bert_vocabulary_gives_bert_ids(vocab_folder, source, options):
    path = str(vocab_folder / "vocab.txt")
    tokenizer = {
        "folder": lambda: LionTokenizer.from_pretrained(vocab_folder, **options),
        "vocab": lambda: LionTokenizer(vocab=path, **options),
        "vocab_file": lambda: LionTokenizer(vocab_file=path, **options),
    }[source]()
    bert = BertTokenizer.from_pretrained(vocab_folder, **options)
    assert tokenizer.get_vocab() == bert.get_vocab()
    assert tokenizer(TEXTS).data == bert(TEXTS).data
    assert tokenizer(TEXTS, TEXTS[::-1]).data == bert(TEXTS, TEXTS[::-1]).data
    for side in ("left", "right"):
        wanted = {"padding": True, "padding_side": side, "truncation": True, "max_length": 8, "stride": 2}
        wanted |= {"return_overflowing_tokens": True, "return_offsets_mapping": True}
        assert tokenizer(TEXTS, **wanted).data == bert(TEXTS, **wanted).data


def test_special_tokens(tokenizer):
    names = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 100, 101, 102, 103]
    ids = tokenizer("the lion")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "the", "lion", "[SEP]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the lion"
    assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == [1, 0, 0, 1]


@pytest.mark.parametrize("with_config", [True, False])
def test_save_and_load(tokenizer, tmp_path, with_config):
    tokenizer.model_max_length = 77
    tokenizer.add_tokens(["lionesses"])
    tokenizer.save_pretrained(tmp_path / "saved")
    if with_config:
        LionConfig(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "saved")
        assert type(AutoConfig.from_pretrained(tmp_path / "saved")) is LionConfig
    for loader in (LionTokenizer, AutoTokenizer):
        loaded = loader.from_pretrained(tmp_path / "saved")
        assert type(loaded) is LionTokenizer
        assert loaded.model_max_length == 77
        assert loaded.get_vocab() == tokenizer.get_vocab()
        texts = [*TEXTS, "the lionesses sleep"]
        assert (
            loaded(texts, max_length=77, truncation=True).data == tokenizer(texts, max_length=77, truncation=True).data
        )


def test_auto_tokenizer_reads_a_vocabulary_beside_a_config(vocab_folder):
    LionConfig().save_pretrained(vocab_folder)
    tokenizer = AutoTokenizer.from_pretrained(vocab_folder)
    assert type(tokenizer) is LionTokenizer
    assert tokenizer(TEXTS).data == BertTokenizer.from_pretrained(vocab_folder)(TEXTS).data


def test_pickle(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert type(copy) is LionTokenizer and copy(TEXTS).data == tokenizer(TEXTS).data


def corpus(size):
    for i in range(size):
        yield f"The lion number {i} sleeps, and the café closes!"


@pytest.mark.parametrize("size", [1, 1000, 2500])  # one batch of training texts is 1000
def test_train_from_a_generator(size):
    tokenizer = LionTokenizer.train_from_iterator(corpus(size), vocab_size=120, model_max_length=64)
    assert type(tokenizer) is LionTokenizer and tokenizer.model_max_length == 64
    assert len(tokenizer) <= 120
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    text = "the lion closes, and the café sleeps!"
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == 2 and ids[-1] == 3 and 1 not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_training_sees_every_text():
    texts = [*corpus(1500), "zebra " * 2000]
    assert "zebra" in LionTokenizer.train_from_iterator(iter(texts), vocab_size=200).get_vocab()


def test_train_with_arguments_of_the_tokenizer(tmp_path):
    tokenizer = LionTokenizer.train_from_iterator(corpus(50), vocab_size=120, do_lower_case=False)
    assert 1 not in tokenizer("The lion")["input_ids"] and 1 in tokenizer("THE")["input_ids"]
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert not loaded.do_lower_case
    assert loaded("The lion sleeps").data == tokenizer("The lion sleeps").data


def test_training_refuses_what_is_no_corpus():
    with pytest.raises(ValueError, match="`texts` is empty"):
        LionTokenizer.train_from_iterator([])
    with pytest.raises(TypeError, match="one string"):
        LionTokenizer.train_from_iterator("corpus.txt")
    for texts in ([*corpus(2), 3], [["a lion"], [*corpus(1), 3]], [b"a lion"]):
        with pytest.raises(TypeError, match="Item [0-9] of `texts` is or holds (3|97): give texts, or lists"):
            LionTokenizer.train_from_iterator(texts)


@pytest.mark.parametrize("batch", [list, tuple, iter])
def test_batches_are_texts(batch):
    """What transformers' `train_new_from_iterator` takes, `dataset.iter(batch_size)` for one, ours takes, too."""
    texts = [*corpus(1500), "zebra " * 2000]
    batches = (batch(texts[start : start + 100]) for start in range(0, len(texts), 100))
    vocabulary = LionTokenizer.train_from_iterator(batches, vocab_size=200).get_vocab()
    assert "zebra" in vocabulary and "lion" in vocabulary


LANGUAGES = ["ที่นี่ เป็น บ้าน", "أحمد مؤمن آدم", "café naïve señor", "が ぱ", "हिन्दी में", "שָׁלוֹם", "Việt Nam"]


def test_languages_stay_intact(tmp_path):
    tokenizer = LionTokenizer.train_from_iterator(LANGUAGES * 3, vocab_size=200)
    tokenizer.save_pretrained(tmp_path)
    for loaded in (tokenizer, AutoTokenizer.from_pretrained(tmp_path), BertTokenizer.from_pretrained(tmp_path)):
        for text in LANGUAGES:
            assert loaded.decode(loaded(text)["input_ids"], skip_special_tokens=True) == text.lower()


def test_a_tokenizer_saved_without_accents_stays_so(tmp_path):
    LionTokenizer.train_from_iterator(LANGUAGES * 3, vocab_size=200, strip_accents=None).save_pretrained(tmp_path)
    for tokenizer_class in (LionTokenizer, AutoTokenizer, BertTokenizer):
        assert tokenizer_class.from_pretrained(tmp_path).tokenize("Café أحمد") == ["cafe", "احمد"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("padding_side", "left"), ("truncation_side", "left"), ("model_max_length", 7), ("pad_token", "[MASK]")],
)
def test_arguments_of_tokenizers_are_no_mistaken_fields(name, value, tmp_path, log):
    tokenizer = AutoTokenizer.from_pretrained(text_checkpoint(tmp_path), **{name: value})
    assert getattr(tokenizer, name) == value
    assert log == []


def test_a_tokenizer_that_is_not_there_is_missed(tmp_path):
    image = image_checkpoint(tmp_path / "image")
    assert isinstance(AutoProcessor.from_pretrained(image), BaseImageProcessor)
    text = text_checkpoint(tmp_path / "text")
    (text / "tokenizer.json").unlink()  # only the settings are left
    LionConfig().save_pretrained(tmp_path / "nothing")
    for load in (LionTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        for folder in (image, text, tmp_path / "nothing"):
            with pytest.raises(OSError, match=f"There is no tokenizer in {folder}: tokenizer.json .* is missing"):
                load(folder)
    with pytest.raises(OSError, match="There is no tokenizer"):
        pipeline("fill-mask", model=str(text))


def test_a_wrong_argument_is_named(tmp_path):
    LionTokenizer.train_from_iterator(["the lion sleeps"], vocab_size=40).save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"has to be either str .*, or correct the value of an argument \(unk_token\)"):
        LionTokenizer.from_pretrained(tmp_path, unk_token=3)


def test_vocabularies_with_a_byte_order_mark(vocab_folder):
    """As some editors write it: it is no part of the first piece."""
    expected, text = LionTokenizer(str(vocab_folder / "vocab.txt")), "the lion sleeps"
    (vocab_folder / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + (vocab_folder / "vocab.txt").read_bytes())
    for found in (LionTokenizer(str(vocab_folder / "vocab.txt")), LionTokenizer.from_pretrained(vocab_folder)):
        assert found.get_vocab() == expected.get_vocab() and found.pad_token_id == expected.pad_token_id
        assert found(text)["input_ids"] == expected(text)["input_ids"]


def test_a_trained_vocabulary_is_saved_alone(tmp_path):
    trained = LionTokenizer.train_from_iterator(["the lion sleeps", "a lion roars"], vocab_size=40)
    (path,) = trained.save_vocabulary(tmp_path)
    assert LionTokenizer(path).get_vocab() == trained.get_vocab() and path == str(tmp_path / "vocab.txt")
