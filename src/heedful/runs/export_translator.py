"""A translator's weights as a folder for ctranslate2, and the proof that it writes the same."""

import itertools
import shutil
from pathlib import Path

import numpy as np

from heedful.decode import SearchOptions
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.ctranslate2 import all_tokens, export_ctranslate2, read_card, require
from heedful.models.transformer import Transformer
from heedful.predict.ctranslate2 import FOLDERS, CTranslate2Searcher
from heedful.predict.loading import load_translator
from heedful.predict.searching import Sentence, TorchSearcher
from heedful.predict.translator import Translator

TOLERANCE = 1e-3
"""How much the log-probabilities of a token may differ between two engines in full precision."""
LENGTHS = (1, 2, 3, 7, 19, 61)
"""Of the sentences that are compared."""
GREEDY = SearchOptions(beam=1, max_length=max(LENGTHS))


def export_translator(model: Path, *, int8: bool, out: Path | None) -> str:
    """Write a folder's Transformer as MODEL/ctranslate2, with 8 bits as MODEL/ctranslate2-int8, or as `out`."""
    require()
    path = out or model / FOLDERS[int8]
    if path.is_file() or (path.is_dir() and any(path.iterdir()) and read_card(path) is None):
        raise UserError(f"{path} exists and was not written by heedful; move it away, or choose another --out")
    translator = load_translator(model, "cpu")
    assert isinstance(translator.searcher, TorchSearcher)
    net = translator.searcher.models[0]
    if not isinstance(net, Transformer):
        raise UserError(f"{model} is a recurrent model, but ctranslate2 runs Transformers only; decode it with torch")
    weights = model / "model.safetensors"
    shutil.rmtree(path, ignore_errors=True)
    export_ctranslate2(
        net,
        all_tokens(translator.source.vocabulary, net.config.vocab_size),
        all_tokens(translator.target.vocabulary, net.config.target_size),
        path,
        int8=int8,
        unk=translator.target.unk,
        weights=file_digest(weights) if weights.is_file() else None,
    )
    other = CTranslate2Searcher(path, translator.source, translator.target, "cpu")
    difference, same = _compare(translator.searcher, other, _samples(translator))
    said = f"wrote {path} ({_size(path)}; "
    if int8:
        return f"{said}its tokens' log-probabilities differ from torch's by {difference:.2f} at most)"
    if not difference <= TOLERANCE or not same:
        shutil.rmtree(path)
        raise UserError(
            f"{path} is taken back: its log-probabilities differ from torch's by up to {difference:.0e}, or what it "
            "writes does; another version of ctranslate2 or torch may do better"
        )
    return f"{said}writes what torch does, its log-probabilities differ by at most {difference:.0e})"


def _samples(translator: Translator) -> list[Sentence]:
    """Sentences of several lengths, made up."""
    source, generator = translator.source, np.random.default_rng(0)
    marks = {source.pad, source.sos, source.eos, source.unk}
    words = [number for number in range(source.vocab_size) if number not in marks]
    lengths = sorted({min(length, translator.searcher.longest) for length in LENGTHS})
    return [Sentence(generator.choice(words, length).tolist()) for length in lengths]


def _compare(ours: TorchSearcher, theirs: CTranslate2Searcher, sentences: list[Sentence]) -> tuple[float, bool]:
    """How much the log-probabilities of one token differ at most, and whether both greedily write the same."""
    written = [best[0].ids for best in ours.search(sentences, GREEDY)]
    pairs = [(one.ids, ids) for one, ids in zip(sentences, written, strict=True)]
    expected = ours.score(pairs)
    apart = [np.abs(one - two).max() for one, two in zip(expected, theirs.score(pairs), strict=True)]
    answers = [best[0].ids for best in theirs.search(sentences, GREEDY)]
    again = ours.score([(one.ids, ids) for one, ids in zip(sentences, answers, strict=True)])
    same = True
    for one, two, first, second in zip(written, answers, expected, again, strict=True):
        common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
        # Where they part, the two tokens must be as good as equally probable.
        same &= one == two or abs(float(first[common] - second[common])) <= TOLERANCE
    return float(max(apart)), same


def _size(folder: Path) -> str:
    size = sum(file.stat().st_size for file in folder.iterdir())
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
