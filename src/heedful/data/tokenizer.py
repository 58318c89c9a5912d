"""WordPiece (Devlin et al. 2018, section 3), trained and run by `tokenizers`, kept in one `tokenizer.json`.

Text becomes NFC and stays so: Hangul is never taken apart into jamo, and accents are letters. Special tokens
typed by a person are text; only this module puts real ones into a sequence.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from heedful.durable import write_file
from heedful.errors import OutOfReach, UserError

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUES = "##"
NO_TOKEN = "[no token {}]"
SOME = 1_000_000
"""Tokens that show how well a tokenizer suits a text, however long that is."""
LONGEST_WORD = 100
"""Characters that WordPiece reads of a word, here and elsewhere; a longer one is unknown to it."""


class Tokenizer:
    """Text to ids and back. Holds no settings of its own: everything is in the tokenizer.json it stands for."""

    def __init__(self, backend: tokenizers.Tokenizer, origin: str = "the tokenizer") -> None:
        ids = [backend.token_to_id(token) for token in SPECIAL]
        found = [number for number in ids if number is not None]
        if len(found) < len(SPECIAL):
            missing = [token for token, number in zip(SPECIAL, ids, strict=True) if number is None]
            raise UserError(f"{origin} lacks the special tokens {', '.join(missing)}; BERT needs all five")
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True  # "[SEP]" in a text is text
        self.backend = backend
        self.pad, self.unk, self.cls, self.sep, self.mask = found

    @property
    def vocab_size(self) -> int:
        """The number of ids: one more than the largest."""
        return len(self.vocabulary)

    @cached_property
    def fingerprint(self) -> str:
        """Differs whenever any text might get other ids."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> list[str]:
        """The token of each id; one that has none, as where a vocab.txt has a line twice, has a name of its own."""
        tokens = {number: token for token, number in self.backend.get_vocab().items()}
        return [tokens.get(number, NO_TOKEN.format(number)) for number in range(max(tokens) + 1)]

    @cached_property
    def continues(self) -> np.ndarray:
        """(V,) True where a token continues the word before it."""
        return np.array([token.startswith(CONTINUES) for token in self.vocabulary])

    @cached_property
    def special(self) -> np.ndarray:
        """(V,) True at the five special tokens, and at ids that stand for no token."""
        special = np.ones(self.vocab_size, bool)
        special[[*self.backend.get_vocab().values()]] = False
        special[[self.pad, self.unk, self.cls, self.sep, self.mask]] = True
        return special

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores, without special tokens."""
        with refusing(texts):
            return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def read(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        """The same, with the word and the characters of every token."""
        with refusing(texts):
            return self.backend.encode_batch(texts, add_special_tokens=False)

    def unknown(self, ids: np.ndarray) -> float:
        """The share of `[UNK]` in a text's ids, be it in the first of them."""
        some = ids[:SOME]
        return float((some == self.unk).mean()) if len(some) else 0.0

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""
        return self.backend.decode(ids, skip_special_tokens=True)


def strange(unknown: float) -> str:
    """What to say of text of which such a share of the tokens is unknown; nothing where it is small."""
    return f"{unknown:.1%} of the tokens are unknown: does the tokenizer suit the text?" if unknown > 0.01 else ""


def check_texts(texts: Iterable[str]) -> None:
    """Refuse what is no text, and halves of characters: as such come bytes that are not UTF-8 from a shell."""
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{text!r:.60} is not a text")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            near = text[max(0, error.start - 40) : error.start + 20]
            raise UserError(f"{near!r} is not UTF-8 at character {error.start + 1}; convert it first") from None


@contextmanager
def refusing(texts: Iterable[str]) -> Iterator[None]:
    """Where `tokenizers` can't read the texts, say which one is wrong."""
    try:
        yield
    except TypeError:
        check_texts(texts)
        raise


def train(
    sentences: Callable[[], Iterable[str]], vocab_size: int, *, cased: bool = False, exactly: bool = True
) -> Tokenizer:
    """A WordPiece tokenizer of vocab_size tokens for the text, which is read twice.

    If the text supports fewer, that is an error, or else gives fewer. The same text gives the same vocabulary:
    `tokenizers` numbers the pieces `##x` in the order in which it happens to meet them, and breaks ties between
    merges by number; so they are numbered beforehand.
    """
    if vocab_size <= len(SPECIAL):
        raise UserError(
            f"--vocab-size {vocab_size} leaves no room beside the {len(SPECIAL)} special tokens; try 8000"
        )
    backend = pipeline(models.WordPiece(unk_token=UNK), cased=cased)
    _cut_long_words(backend)
    limit = max(1000, vocab_size // 4)  # Korean alone has some 2,500 syllables in use
    alone, continuing = _alphabet(backend, sentences(), limit)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL, *continuing],
        initial_alphabet=alone,
        limit_alphabet=len(alone),
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    backend.train_from_iterator(sentences(), trainer)
    vocabulary = backend.get_vocab()
    got = len(vocabulary)
    if exactly and got < vocab_size:
        raise UserError(
            f"a vocabulary of {vocab_size} is larger than this text supports ({got} pieces); "
            f"use --vocab-size {got} or more text"
        )
    if got > vocab_size:
        raise UserError(
            f"--vocab-size {vocab_size} is smaller than the text's alphabet ({got}); use --vocab-size {2 * got}"
        )
    tokenizer = _from_vocabulary(sorted(vocabulary, key=vocabulary.__getitem__), cased=cased)
    _cut_long_words(tokenizer.backend)
    return tokenizer


def _cut_long_words(backend: tokenizers.Tokenizer) -> None:
    """Have words that WordPiece would take for unknown read in parts: where nobody writes spaces, words have no end.

    For tokenizers of our own alone; published ones stay as their models know them.
    """
    part = pre_tokenizers.Split(tokenizers.Regex(rf"[^\s\p{{P}}\p{{S}}]{{{LONGEST_WORD}}}"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([part, pre_tokenizers.BertPreTokenizer()])


def _alphabet(backend: tokenizers.Tokenizer, sentences: Iterable[str], limit: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them that continue a word with `##` before them; both sorted."""
    counts: Counter[str] = Counter()
    neighbours: set[tuple[str, str]] = set()
    for sentence in sentences:
        text = backend.normalizer.normalize_str(sentence)
        counts.update(text)
        neighbours.update(pairwise(text))
    del counts[" "]
    kept = {character for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]}
    pairs = map(backend.pre_tokenizer.pre_tokenize_str, map("".join, neighbours))
    inner = {character for words in pairs for word, _ in words for character in word[1:]}
    return sorted(kept), [CONTINUES + character for character in sorted(kept & inner)]


def load(folder: str | Path) -> Tokenizer:
    """The tokenizer of a folder: its tokenizer.json, or the vocab.txt of an old one."""
    folder = Path(folder)
    path = folder / "tokenizer.json"
    try:
        if path.is_file():
            return Tokenizer(tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")), str(path))
        path = folder / "vocab.txt"
        if path.is_file():
            return _from_old_folder(folder)
    except UserError:
        raise
    except OSError as error:
        raise OutOfReach(
            f"cannot read {error.filename or path} ({error.strerror}); mend that, and try again"
        ) from None
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise UserError(f"{path} is not a tokenizer ({str(error).splitlines()[0]}); copy or train it again") from None
    what = "neither tokenizer.json nor vocab.txt" if folder.is_dir() else "there is no such folder"
    raise UserError(f"{folder} has no tokenizer: {what}; name the folder of a model, or of `heedful tokenizer`")


def save(tokenizer: Tokenizer, folder: str | Path, max_length: int = 512) -> None:
    """Write what transformers' tokenizers read.

    `PreTrainedTokenizerFast` takes tokenizer.json as it is; `BertTokenizer` is built anew by transformers from
    the vocabulary and the settings beside it, and gives the same ids for NFC text without endless words.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        **_bert_settings(backend),
        **{f"{name}_token": token for name, token in zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True)},
    }
    write_file(folder / "vocab.txt", ("\n".join(tokenizer.vocabulary) + "\n").encode())
    write_file(folder / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode())
    write_file(folder / "tokenizer.json", backend.to_str(pretty=True).encode())


def pipeline(
    model: models.Model, *, cased: bool, strip_accents: bool | None = False, chinese: bool = True
) -> tokenizers.Tokenizer:
    """How text becomes words, before the model takes over."""
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.BertNormalizer(
                clean_text=True,
                handle_chinese_chars=chinese,
                strip_accents=strip_accents,
                lowercase=not cased,
            ),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUES)
    return backend


def _post_process(backend: tokenizers.Tokenizer) -> None:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in (CLS, SEP)],
    )


def _from_vocabulary(
    tokens: Sequence[str],
    *,
    cased: bool,
    strip_accents: bool | None = False,
    chinese: bool = True,
    origin: str = "the tokenizer",
) -> Tokenizer:
    model = models.WordPiece({token: number for number, token in enumerate(tokens)}, unk_token=UNK)
    backend = pipeline(model, cased=cased, strip_accents=strip_accents, chinese=chinese)
    backend.add_special_tokens([token for token in SPECIAL if token in tokens])
    tokenizer = Tokenizer(backend, origin)
    _post_process(backend)
    return tokenizer


def _from_old_folder(folder: Path) -> Tokenizer:
    settings, beside = {}, folder / "tokenizer_config.json"
    try:
        if beside.is_file():
            settings = json.loads(beside.read_bytes())
    except ValueError as error:
        raise UserError(f"{beside} is damaged ({error}); copy it again") from None
    return _from_vocabulary(
        (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n"),
        cased=not settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        chinese=settings.get("tokenize_chinese_chars", True),
        origin=str(folder / "vocab.txt"),
    )


def _bert_settings(backend: tokenizers.Tokenizer) -> dict[str, object]:
    """The normalizer's settings in the words of BertTokenizer."""
    normalizer = json.loads(backend.to_str())["normalizer"] or {}
    parts = normalizer.get("normalizers", [normalizer])
    for part in parts:
        if part.get("type") == "BertNormalizer":
            return {
                "do_lower_case": part["lowercase"],
                "strip_accents": part["strip_accents"],
                "tokenize_chinese_chars": part["handle_chinese_chars"],
            }
    return {}


def case(tokenizer: Tokenizer) -> str:
    """Whether upper and lower case are kept apart, in a word."""
    settings = _bert_settings(tokenizer.backend)
    if not settings:
        return "with a normalizer of its own"
    return "uncased" if settings["do_lower_case"] else "cased"
