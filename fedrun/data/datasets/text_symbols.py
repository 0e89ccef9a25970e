"""Texts as numbered symbols: the tokens of a tokenizer of transformers, or bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedrun.system.errors import InputError, one_line
from fedrun.system.extras import require_package
from fedrun.system.hub import hub_or_cache, no_folder

NO_WORD = -1
"""The word number of a symbol that belongs to no word, such as padding."""

BYTES = 256


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of texts.

    Attributes:
        names: one per symbol.
        padding: the symbol that fills up shorter texts.
        added: number of symbols that are added to each text, such as one for its end.
    """

    names: tuple[str, ...]
    padding: int
    added: int = 0


@cache
def vocabulary_of(tokenizer: str | None) -> Vocabulary:
    """The symbols of a tokenizer; None: the 256 bytes, and one for padding.

    Raises:
        InputError: the tokenizer cannot be loaded.
    """
    if tokenizer is None:
        return Vocabulary((*(repr(bytes([number]))[2:-1] for number in range(BYTES)), "padding"), BYTES)
    loaded = tokenizer_of(tokenizer)
    if len(loaded) <= len(loaded.all_special_ids):  # what transformers makes of a model's folder without a tokenizer
        raise InputError(f"dataset.tokenizer={tokenizer}: has no symbols; allowed: a folder with a tokenizer's files")
    padding = loaded.eos_token_id if loaded.pad_token_id is None else loaded.pad_token_id
    if padding is None:
        raise InputError(
            f"dataset.tokenizer={tokenizer}: has neither a symbol for padding nor one for the end of a text"
        )
    names = tuple(loaded.convert_ids_to_tokens(list(range(len(loaded)))))
    return Vocabulary(names, int(padding), loaded.num_special_tokens_to_add())


def tokenizer_hash(name: str | None) -> str:
    """A hash of what a tokenizer does, whatever its files are called; empty for bytes."""
    if name is None:
        return ""
    loaded = tokenizer_of(name)
    fast = getattr(loaded, "backend_tokenizer", None)
    text = fast.to_str() if fast is not None else repr(sorted(loaded.get_vocab().items()))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def tokenizer_of(name: str) -> Any:
    """A tokenizer of transformers, from the hub or from a folder.

    Raises:
        InputError: transformers is not installed, or there is no such tokenizer.
    """
    require_package("transformers", "transformers", f"dataset.tokenizer={name}")
    import transformers

    try:
        with nullcontext() if os.path.isdir(name) else hub_or_cache():
            return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        if os.path.isdir(name):
            reason = one_line(str(error).strip().partition("\n")[0], 200)
            raise InputError(
                f"dataset.tokenizer={name}: cannot be loaded ({reason}); allowed: a folder that save_pretrained has "
                "written"
            ) from None
        raise InputError(no_folder("dataset.tokenizer", name, error)) from None


def split_texts(texts: Sequence[str | Sequence[str]], tokenizer: str | None, length: int) -> dict[str, list[list[int]]]:
    """Texts as symbols of a fixed length.

    Args:
        texts: texts, or lists of words.
        tokenizer: see :func:`vocabulary_of`; words need one.
        length: longer texts are cut, shorter ones are padded.

    Returns:
        ``symbols`` ``[n][length]``, and ``words`` ``[n][length]``: the number of each symbol's word (:data:`NO_WORD`).
    """
    if tokenizer is None:
        cut = [list(str(text).encode()[:length]) for text in texts]
        return {
            "symbols": [symbols + [BYTES] * (length - len(symbols)) for symbols in cut],
            "words": [[NO_WORD] * length for _ in cut],
        }
    loaded, padding = tokenizer_of(tokenizer), vocabulary_of(tokenizer).padding
    in_words = bool(texts) and not isinstance(texts[0], str)
    encoded = loaded(list(texts), truncation=True, max_length=length, is_split_into_words=in_words)
    symbols, words = [], []
    for number, ids in enumerate(encoded["input_ids"]):
        filling = length - len(ids)
        symbols.append([*ids, *[padding] * filling])
        word_ids = encoded.word_ids(number) if in_words else [None] * len(ids)
        words.append([*(NO_WORD if word is None else word for word in word_ids), *[NO_WORD] * filling])
    return {"symbols": symbols, "words": words}
