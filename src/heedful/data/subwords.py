"""Subword vocabularies for translation: BPE (Sennrich et al. 2016), unigram (Kudo 2018) and WordPiece.

Run by `tokenizers`, kept in one tokenizer.json. Spaces are part of the pieces, written ▁ as sentencepiece does, so
that joining the pieces gives the text back: NFC, with single spaces. Nothing assumes Latin letters or words between
spaces. A ▁ typed by a person is a space; special tokens typed by a person are text. Knows nothing of source and
target, and puts no special token into what it encodes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from heedful.data.tokenizer import refusing
from heedful.durable import write_file
from heedful.errors import UserError

PAD, SOS, EOS, UNK = SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
KINDS = ("bpe", "unigram", "wordpiece")
SPACE = "▁"

_LONGEST = 64  # characters that WordPiece looks at together: its greedy search is cubic in a word without end
_MARK = f"{SPACE}?[[\\p{{P}}\\p{{S}}]&&[^{SPACE}]]"  # punctuation or a symbol, with the space before it


class Subwords:
    """Text to ids and back. Holds no settings of its own: everything is in the tokenizer.json it stands for."""

    def __init__(self, backend: tokenizers.Tokenizer, origin: str = "the tokenizer") -> None:
        ids = {token: backend.token_to_id(token) for token in SPECIAL}
        missing = [token for token, number in ids.items() if number is None]
        if missing:
            raise UserError(f"{origin} lacks the special tokens {', '.join(missing)}; translation needs all four")
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True  # "</s>" in a text is text
        self.backend = backend
        self.pad, self.sos, self.eos, self.unk = (int(number) for number in ids.values() if number is not None)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return self.backend.get_vocab_size()

    @property
    def kind(self) -> str:
        """How words are taken apart: bpe, unigram or wordpiece."""
        return type(self.backend.model).__name__.lower()

    @cached_property
    def fingerprint(self) -> str:
        """Differs whenever any text might get other ids."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> list[str]:
        """The piece of each id."""
        ids = self.backend.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores, without special tokens."""
        with refusing(texts):
            return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""
        return self.backend.decode(ids, skip_special_tokens=True).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of ids as they are written, special tokens too."""
        return [self.vocabulary[number] for number in ids]

    def unknown(self, text: str) -> list[str]:
        """The characters of a text that the vocabulary does not know, each once, in their order."""
        normalizer = self.backend.normalizer
        characters = list(dict.fromkeys(normalizer.normalize_str(text) if normalizer else text))
        return [
            character for character, ids in zip(characters, self.encode(characters), strict=True) if self.unk in ids
        ]


def train(
    texts: Callable[[], Iterable[str]], vocab_size: int, kind: str = "bpe", *, exactly: bool = False
) -> Subwords:
    """A vocabulary of vocab_size pieces for the text, which is read twice.

    If the text supports fewer, that gives fewer, or else is an error. Characters may take three quarters of the
    room; if there are more, the rarest are unknown. Unigram learns only pieces that two different words hold. The
    same text gives the same vocabulary, however many threads.
    """
    if kind not in KINDS:
        raise UserError(f"{kind!r} is no kind of vocabulary; choose from {', '.join(KINDS)}")
    if vocab_size < 2 * len(SPECIAL):
        raise UserError(f"vocab_size {vocab_size} leaves no room beside the {len(SPECIAL)} special tokens; try 8000")
    alphabet, rest = _alphabet(texts(), (vocab_size - len(SPECIAL)) * 3 // 4)
    if not alphabet:
        raise UserError("there is no text to train a vocabulary on; give at least one line that is not empty")
    model = _learn(texts(), vocab_size, kind, alphabet, cut=bool(rest))
    made = Subwords(_pipeline(model))
    if exactly and made.vocab_size < vocab_size:
        raise UserError(
            f"a vocabulary of {vocab_size} is larger than this text supports ({made.vocab_size} pieces); "
            f"use --vocab-size {made.vocab_size} or more text"
        )
    return made


def load(folder: str | Path, name: str = "tokenizer.json") -> Subwords:
    """The vocabulary of a folder."""
    path = Path(folder) / name
    if not path.is_file():
        raise UserError(f"{folder} has no {name}; give the folder of a translator")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise UserError(f"{path} is not a tokenizer ({str(error).splitlines()[0]}); copy or train it again") from None
    return Subwords(backend, str(path))


def save(subwords: Subwords, folder: str | Path, name: str = "tokenizer.json", max_length: int = 512) -> None:
    """Write a vocabulary; as tokenizer.json, with the settings that transformers' AutoTokenizer reads beside it.

    The class is named there because a folder whose config.json says "marian" would otherwise be taken for one with
    sentencepiece files. The name is that of transformers 4, and transformers 5 (5.22 was tried) still heeds it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if name == "tokenizer.json":
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": max_length,
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
            **{f"{role}_token": token for role, token in zip(("pad", "bos", "eos", "unk"), SPECIAL, strict=True)},
        }
        write_file(folder / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode())
    write_file(folder / name, subwords.backend.to_str(pretty=True).encode())


def _pipeline(model: models.Model) -> tokenizers.Tokenizer:
    """Everything around the model: what a text is, where pieces must end, how they are joined again."""
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = _normalizer()
    backend.pre_tokenizer = pre_tokenizers.Sequence(_splits(isinstance(model, models.WordPiece)))
    backend.decoder = decoders.Metaspace(SPACE, "always")
    backend.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, backend.token_to_id(EOS))]
    )
    return backend


def _normalizer() -> normalizers.Normalizer:
    space = normalizers.Replace(tokenizers.Regex(f"[\\s{SPACE}]+"), " ")
    return normalizers.Sequence([normalizers.NFC(), space, normalizers.Strip()])


def _splits(short: bool) -> list[pre_tokenizers.PreTokenizer]:
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Metaspace(SPACE, "always", split=True),
        pre_tokenizers.Split(tokenizers.Regex(_MARK), "isolated"),
    ]
    if short:
        splits.append(pre_tokenizers.Split(tokenizers.Regex(f".{{1,{_LONGEST}}}"), "isolated"))
    return splits


def _alphabet(texts: Iterable[str], limit: int) -> tuple[list[str], list[str]]:
    """The characters of the text, the space and the most frequent first: those to keep and the others."""
    counts: Counter[str] = Counter()
    normalizer = _normalizer()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    if not counts:
        return [], []
    del counts[" "]
    ordered = [SPACE, *sorted(counts, key=lambda character: (-counts[character], character))]
    return ordered[:limit], ordered[limit:]


def _learn(texts: Iterable[str], vocab_size: int, kind: str, alphabet: list[str], *, cut: bool) -> models.Model:
    """The model for a kind, learnt from the words without the characters that are cut off from the alphabet.

    WordPiece learns its pieces as BPE does, and only reads otherwise; it needs no ## before a piece, since ▁ tells
    where words begin.
    """
    unigram = kind == "unigram"
    backend = tokenizers.Tokenizer(models.Unigram() if unigram else models.BPE())
    backend.normalizer = _normalizer()
    splits = _splits(short=kind == "wordpiece")
    if cut:
        inside = "".join(f"\\x{{{ord(character):x}}}" for character in alphabet)
        splits.append(pre_tokenizers.Split(tokenizers.Regex(f"[^{inside}]+"), "removed"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    if unigram:
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIAL), unk_token=UNK, show_progress=False
        )
    else:
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIAL), min_frequency=2, show_progress=False
        )
    backend.train_from_iterator(texts, trainer)
    learnt = json.loads(backend.to_str())["model"]
    if unigram:
        return models.Unigram(_settled(learnt["vocab"]), unk_id=SPECIAL.index(UNK))
    if kind == "bpe":
        merges = [tuple(pair) for pair in learnt["merges"]]
        return models.BPE(learnt["vocab"], merges, unk_token=UNK, fuse_unk=True)
    return models.WordPiece(
        learnt["vocab"], unk_token=UNK, max_input_chars_per_word=_LONGEST, continuing_subword_prefix=""
    )


def _settled(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Unigram's pieces and scores, the same whenever the text is the same.

    `tokenizers` adds up in an order that changes from run to run, so the last digits of the scores, and with them the
    order, are chance; rounded, they are not. Characters that no best segmentation needs get the lowest score there
    is and a ten-thousandth more for each, in an order of chance; here they all get the lowest.
    """
    special, learnt = pieces[: len(SPECIAL)], pieces[len(SPECIAL) :]
    lowest = min(score for _, score in learnt)
    bound = lowest + 1e-4 * sum(len(piece) == 1 for piece, _ in learnt)
    scores = {piece: lowest if len(piece) == 1 and score <= bound else score for piece, score in learnt}
    settled = sorted(
        ((piece, round(score, 4)) for piece, score in scores.items()), key=lambda item: (-item[1], item[0])
    )
    return [(piece, score) for piece, score in special] + settled
