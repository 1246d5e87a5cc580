# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The LION tokenizer: WordPiece as in BERT. It loads a `vocab.txt` of BERT, and can be trained on any text."""

import codecs
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from transformers import BertTokenizer, PreTrainedTokenizerBase


class LionTokenizer(BertTokenizer):
    r"""
    Construct a LION tokenizer, backed by the tokenizers library. Other arguments are those of [`BertTokenizer`], for
    example `do_lower_case` and `model_max_length`.

    Args:
        vocab: path of a `vocab.txt` with one piece in each line, or ids by piece.
        vocab_file: the path under BERT's older name.

    Example:

    ```python
    >>> from tokenization_lion import LionTokenizer

    >>> tokenizer = LionTokenizer.train_from_iterator(["the lion sleeps", "a lion roars"], vocab_size=40)
    >>> tokenizer.tokenize("the lion")
    ['the', 'lion']

    ```"""

    write_code = None  # writes the code that loads this class; `None` if that code was loaded from beside the weights

    def __init__(self, vocab: str | dict[str, int] | None = None, *args, vocab_file: str | None = None, **kwargs):
        if vocab is None and vocab_file is not None:
            vocab = vocab_file  # BertTokenizer would ignore it and have an empty vocabulary
        super().__init__(_without_mark(vocab), *args, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """
        `PreTrainedTokenizerBase.from_pretrained`. Raises an OSError, which names the files, if one is damaged or there
        are none: transformers would return a tokenizer with an empty vocabulary.
        """
        try:
            tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except Exception as error:
            # transformers does not catch the errors of JSON readers, and tokenizers raises plain `Exception`.
            if type(error) not in (
                Exception,
                AttributeError,
                JSONDecodeError,
                KeyError,
                TypeError,
                UnicodeDecodeError,
            ):
                raise
            given = ", ".join(name for name in kwargs if not name.startswith("_"))
            raise OSError(
                f"The tokenizer in {pretrained_model_name_or_path} is damaged or cut short ({error!r}): download or "
                "save tokenizer.json and tokenizer_config.json again"
                + (f", or correct the value of an argument ({given})." if given else ".")
            ) from error
        check_words(tokenizer, pretrained_model_name_or_path)
        return tokenizer

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs) -> tuple[str, ...]:
        """`PreTrainedTokenizerBase.save_pretrained`. The installed package also writes the code of `auto_map`."""
        if self.write_code is not None:
            self.write_code(save_directory)
            self.init_kwargs["auto_map"] = {"AutoTokenizer": ["configuration_lion.LionTokenizer", None]}
        return super().save_pretrained(save_directory, **kwargs)

    def save_vocabulary(
        self, save_directory: str | os.PathLike, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write `vocab.txt`, with one piece in each line, also of a vocabulary that was trained. Returns its path."""
        return tuple(self.backend_tokenizer.model.save(str(save_directory), filename_prefix))

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str | Iterable[str]],
        vocab_size: int = 30522,
        *,
        show_progress: bool = False,
        strip_accents: bool | None = False,
        **kwargs,
    ) -> "LionTokenizer":
        """
        Train a vocabulary. The tokenizers library breaks ties between equally frequent pieces at random, so that two
        runs on the same texts may differ in rare pieces and in the order of ids: save the tokenizer with the model.

        Args:
            texts: the training texts, or batches of them. They are read once, so a generator works.
            vocab_size: entries of the vocabulary, special tokens included.
            show_progress: draw a progress bar.
            strip_accents: remove accents, and with them the vowel signs of Thai and the hamza of Arabic. `None` is
                BERT's rule: remove them if `do_lower_case`.
            kwargs: arguments of the tokenizer, for example `do_lower_case=False` or `model_max_length=512`.

        Raises:
            ValueError: if there is no text.
            TypeError: if `texts` is a string rather than an iterable of strings, or holds anything else.
        """
        if isinstance(texts, str):
            raise TypeError("`texts` is one string: give an iterable of texts, for example an open file.")
        batches = _batches(texts)
        first = next(batches, None)
        if first is None:
            raise ValueError("`texts` is empty: give at least one text to train a vocabulary on.")

        def all_batches():
            yield first
            yield from batches

        tokenizer = cls(strip_accents=strip_accents, **kwargs)
        return tokenizer.train_new_from_iterator(all_batches(), vocab_size, show_progress=show_progress)


def knows_words(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the vocabulary has more than special tokens."""
    return not set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens)


def check_words(tokenizer: Any, source: str | os.PathLike) -> None:
    """
    Raise an OSError if a tokenizer of transformers knows no words: without files, it would be made and read nothing.
    """
    if isinstance(tokenizer, PreTrainedTokenizerBase) and not knows_words(tokenizer):
        raise OSError(
            f"There is no tokenizer in {source}: tokenizer.json (or vocab.txt) is missing, or holds no words. Save "
            "the one that the model was trained with beside the model, with tokenizer.save_pretrained(...). An image "
            "model has none: use AutoImageProcessor."
        )


def _without_mark(vocab: str | dict[str, int] | None) -> str | dict[str, int] | None:
    """A vocabulary without the byte order mark that editors may write before its first piece."""
    mark = "\ufeff"
    if isinstance(vocab, str) and Path(vocab).is_file() and Path(vocab).read_bytes().startswith(codecs.BOM_UTF8):
        with open(vocab, encoding="utf-8") as lines:
            vocab = {line.rstrip("\n"): n for n, line in enumerate(lines)}
    if isinstance(vocab, dict):
        return {piece.removeprefix(mark) if n == 0 else piece: n for piece, n in vocab.items()}
    return vocab


def _batches(texts: Iterable[str | Iterable[str]]) -> Iterator[list[str]]:
    single = _single_texts(texts)
    while batch := list(islice(single, 1000)):
        yield batch


def _single_texts(texts: Iterable[str | Iterable[str]]) -> Iterator[str]:
    for number, item in enumerate(texts):
        for text in [item] if isinstance(item, str) or not isinstance(item, Iterable) else item:
            if not isinstance(text, str):
                raise TypeError(f"Item {number} of `texts` is or holds {text!r}: give texts, or lists of texts.")
            yield text
