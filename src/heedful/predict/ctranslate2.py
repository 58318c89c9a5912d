"""The engine for the folders that `heedful export --to ctranslate2` writes: decodes without torch's help.

All sentences are handed over at once and ctranslate2 makes its own batches. What it does otherwise than our search:
it stops as soon as as many hypotheses are finished as there are beams, which is our `early`; a repetition penalty
changes scores before they become probabilities, not after; the probability of what may not be written goes to the
other tokens; and only the first draws of a process follow the seed. What it can't do at all is refused.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from heedful.data.sentencepiece import Vocabulary
from heedful.decode import Hypothesis, SearchOptions
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.ctranslate2 import read_card, read_tokens, require
from heedful.formats.documents import read_document
from heedful.formats.rnn import RNN_TYPE
from heedful.nn.shortage import short_of_memory
from heedful.predict.engine import by_length
from heedful.predict.searching import Sentence

if TYPE_CHECKING:
    import ctranslate2

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""The most tokens of a batch, padding included."""
THREADS = 4
"""Cores that work on one batch; with more cores, several batches are under way."""
FOLDERS = {False: "ctranslate2", True: "ctranslate2-int8"}
"""Where a model folder holds what was exported, with 8 bits or without."""

Pair = tuple[Sequence[int], Sequence[int]]


def find(folder: Path, *, int8: bool) -> Path:
    """What was exported from a model folder; an error that says what to do if there is nothing, or if it is old."""
    again = f"`heedful export {shlex.quote(str(folder))} --to ctranslate2{' --int8' if int8 else ''}`"
    path, weights = folder / FOLDERS[int8], folder / "model.safetensors"
    if read_document(folder).get("model_type") == RNN_TYPE:
        raise UserError(f"{folder} is a recurrent model, but ctranslate2 runs Transformers only; use --engine torch")
    if not path.is_dir():
        raise UserError(f"{folder} has no folder {path.name}; write it with {again}")
    card = read_card(path)
    if card is None:
        raise UserError(f"{path} was not written by heedful; move it away and write it with {again}")
    if card.weights is not None and weights.is_file() and file_digest(weights) != card.weights:
        raise UserError(f"{path} was made from other weights than {weights}; write it again with {again}")
    return path


def open_translator(path: Path, device: str) -> "ctranslate2.Translator":
    """An exported model, on a GPU if one is asked for, or, with `auto`, if ctranslate2 can use one."""
    require()
    import ctranslate2

    threads = torch.get_num_threads()
    cores = {"inter_threads": max(1, threads // THREADS), "intra_threads": min(threads, THREADS)}
    number = int(device.partition(":")[2] or 0)
    count = ctranslate2.get_cuda_device_count()
    problem = "there is none" if not count else None if number < count else f"there are {count}, from 0 on"
    if device != "cpu" and problem is None:
        try:
            found = ctranslate2.Translator(str(path), "cuda", device_index=number)
            found.translate_batch([read_tokens(path)[0][:1]], max_decoding_length=1)
            return found
        except RuntimeError as error:  # it looks for the libraries of CUDA when it first computes
            if short_of_memory(error) is not None:
                raise
            problem = str(error).splitlines()[0]
    if device.startswith("cuda"):
        raise UserError(f"ctranslate2 can't use {device} here ({problem}); the device cpu does without")
    return ctranslate2.Translator(str(path), "cpu", **cores)


class CTranslate2Searcher:
    """An exported Transformer, in full precision or with weights of 8 bits."""

    def __init__(self, path: Path, source: Vocabulary, target: Vocabulary, device: str = "auto") -> None:
        card = read_card(path)
        assert card is not None
        try:
            self.source_tokens, self.target_tokens = read_tokens(path)
            self.translator = open_translator(path, device)
        except (RuntimeError, ValueError, IndexError, OSError) as error:
            if short_of_memory(error) is not None:
                raise
            raise UserError(f"{path} can't be read ({type(error).__name__}); export the model again") from None
        for vocabulary, tokens in ((source, self.source_tokens), (target, self.target_tokens)):
            if tokens[: vocabulary.vocab_size] != vocabulary.vocabulary:
                raise UserError(f"{path} has another vocabulary than the model; export it again")
        self.target_ids = {token: number for number, token in enumerate(self.target_tokens)}
        self.longest = card.longest
        never = {card.marks.pad, card.marks.sos, target.unk, *range(target.vocab_size, len(self.target_tokens))}
        self.never = [[self.target_tokens[number]] for number in sorted(never - {card.marks.eos})]
        self.batching = {"max_batch_size": BATCH_TOKENS[self.translator.device], "batch_type": "tokens"}

    def search(
        self,
        sentences: Sequence[Sentence],
        options: SearchOptions,
        look: Callable[[], None] | None = None,  # noqa: ARG002 (it does not come back before the end)
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each sentence."""
        refuse(options)
        if options.sample and options.top_k == 1:  # which ctranslate2 draws but once
            alone = self.search(
                sentences, replace(options, sample=False, beam=1, n_best=1, temperature=1.0, top_k=0, top_p=1.0)
            )
            return [best * options.n_best for best in alone]
        asked = [options.limits(len(one.ids) + 1, self.longest) for one in sentences]
        # A prefix is written whole, even where it is longer than the source would allow.
        limits = [(few, max(most, len(one.prefix))) for (few, most), one in zip(asked, sentences, strict=True)]
        found = self._search(sentences, max(limits, default=(0, 0)), options)
        # A call has one limit for all: who went beyond its own is asked again, together with its likes.
        beyond: dict[tuple[int, int], list[int]] = {}
        for number, (best, limit) in enumerate(zip(found, limits, strict=True)):
            if any(len(one.ids) > limit[1] for one in best):
                beyond.setdefault(limit, []).append(number)
        for limit, numbers in beyond.items():
            again = self._search([sentences[number] for number in numbers], limit, options)
            for number, best in zip(numbers, again, strict=True):
                found[number] = best
        return found

    def _search(
        self, sentences: Sequence[Sentence], limits: tuple[int, int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        if not sentences:
            return []
        forced = any(one.prefix for one in sentences)
        found = self.translator.translate_batch(
            [self._source(one.ids) for one in sentences],
            [self._target(one.prefix) for one in sentences] if forced else None,
            **self.batching,
            **_asked(options),
            min_decoding_length=limits[0],
            max_decoding_length=limits[1],
            max_input_length=0,
            suppress_sequences=self.never,
            return_scores=True,
        )
        answers = [[tuple(map(self.target_ids.__getitem__, each)) for each in one.hypotheses] for one in found]
        if forced:  # which is no part of its scores, but of ours
            pairs = [(one.ids, ids) for one, best in zip(sentences, answers, strict=True) for ids in best]
            sums = iter([float(each.sum()) for each in self.score(pairs)])
            scores = [[next(sums) / _penalty(len(ids), options) for ids in best] for best in answers]
        else:
            scores = [one.scores for one in found]
        return [
            sorted(
                (
                    Hypothesis(ids, score * _penalty(len(ids), options), score)
                    for ids, score in zip(best, each, strict=True)
                ),
                key=lambda one: -one.score,
            )
            for best, each in zip(answers, scores, strict=True)
        ]

    def score(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """The log-probability of each token of given targets, their ends included: one array (T + 1,) a pair."""
        if not pairs:
            return []
        sources, targets = [self._source(one) for one, _ in pairs], [self._target(two) for _, two in pairs]
        found = self.translator.score_batch(sources, targets, **self.batching, max_input_length=0)
        return [np.array(one.log_probs, np.float32) for one in found]

    def align(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """How much each target token looked at each of the source, ends included: (T + 1, S + 1) a pair.

        ctranslate2 tells what it looks at while it writes: it is made to write the targets, and one token more.
        """
        found: list[np.ndarray] = [np.empty(0)] * len(pairs)
        room = BATCH_TOKENS[self.translator.device]
        for chosen in by_length([len(two) + 1 for _, two in pairs], room, padded=True):
            targets = [pairs[number][1] for number in chosen]
            looked = self.translator.translate_batch(
                [self._source(pairs[number][0]) for number in chosen],
                [self._target(one) for one in targets],
                beam_size=1,
                max_decoding_length=max(map(len, targets)) + 1,
                max_input_length=0,
                return_attention=True,
                return_end_token=True,
            )
            for number, target, one in zip(chosen, targets, looked, strict=True):
                table = np.array(one.attention[0][: len(target) + 1], np.float32)
                end = np.maximum(1.0 - table.sum(1, keepdims=True), 0.0)  # which ctranslate2 keeps to itself
                found[number] = np.concatenate([table, end], 1)
        return found

    def _source(self, ids: Sequence[int]) -> list[str]:
        return [self.source_tokens[number] for number in ids]

    def _target(self, ids: Sequence[int]) -> list[str]:
        return [self.target_tokens[number] for number in ids]


def refuse(options: SearchOptions) -> None:
    """An error for what ctranslate2 can't be asked."""
    if options.penalty == "gnmt":
        raise UserError("ctranslate2 has no GNMT penalty; use --penalty average, or --engine torch")
    if options.coverage_penalty:
        raise UserError(
            "ctranslate2 takes padding for words that are not covered; leave out --coverage-penalty, "
            "or use --engine torch"
        )
    if options.min_ratio:
        raise UserError(
            "ctranslate2 has one least length for all sentences; use --min-length instead of --min-ratio, "
            "or --engine torch"
        )


def _asked(options: SearchOptions) -> dict[str, Any]:
    """Our options as ctranslate2's."""
    asked: dict[str, Any] = {
        "beam_size": options.beam,
        "num_hypotheses": options.n_best,
        "length_penalty": 0.0 if options.penalty == "none" else options.length_penalty,
        "repetition_penalty": options.repetition_penalty,
        "no_repeat_ngram_size": options.block_ngrams,
    }
    if options.sample:
        import ctranslate2

        ctranslate2.set_random_seed(options.seed)
        draws = {"sampling_topk": options.top_k, "sampling_topp": options.top_p}
        asked |= {"beam_size": 1, "sampling_temperature": options.temperature, **draws}
    return asked


def _penalty(length: int, options: SearchOptions) -> float:
    """What a log-probability is divided by; the end counts."""
    return 1.0 if options.penalty == "none" else (length + 1) ** options.length_penalty
