"""Translating beside `transformers`' generate and bare `ctranslate2`: milliseconds a step, tokens a second.

    python -m bench.translate [--device cuda] [--dtypes fp32 bf16] [--batches 1 64] [--beams 4] [--sides …]
    python -m bench.translate --model FOLDER --texts FILE [--steps 0]
    python -m bench.translate --engine FOLDER --texts FILE

Without a model, one of size base with random weights is made. It would never know when to end, hence every side
decodes just as many steps; `--steps 0` lets a trained model end by itself. All sides read the same texts in turns,
sorted by length, after a round that does not count. From text to text is timed, loading is not; ctranslate2, which
knows no text, is given tokens. Batch 0 is the size that is best for generate on part of the texts. `--engine` takes a
translator of ours that was exported, and compares `--engine ctranslate2` with ctranslate2 itself, text to text.
"""

import argparse
import functools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tokenizers
import torch
import transformers

import heedful
from heedful.data.bitext import Marks
from heedful.decode import SearchOptions
from heedful.formats.marian import load_transformer
from heedful.predict.searching import Sentence, TorchSearcher

BATCHES = (1, 4, 8, 16, 32, 64, 128)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
EOS, UNK, PAD = "</s>", "<unk>", "<pad>"


class Measured(NamedTuple):
    """How long texts took, the tokens of their best translations, and, where known, how often the decoder ran."""

    seconds: float
    tokens: int
    steps: int | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a Marian folder")
    parser.add_argument("--texts", type=Path, help="a text a line")
    parser.add_argument("--count", type=int, default=128, help="how many texts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["fp32"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["generate", "ours"])
    parser.add_argument("--engine", type=Path, help="a translator with an export for ctranslate2")
    arguments = parser.parse_args()
    if arguments.engine:
        engine(
            arguments.engine, arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.count], arguments
        )
        return
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or random_marian(Path(scratch) / "marian")
        if arguments.texts:
            texts = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.count]
        else:
            texts = random_texts(arguments.count)
        print(f"{len(texts):,} texts, beam {arguments.beams}, {arguments.device}, {torch.get_num_threads()} threads")
        for dtype in arguments.dtypes:
            for batch in arguments.batches:
                compare(model, texts, dtype, batch, arguments)


def compare(model: Path, texts: list[str], dtype: str, batch: int, arguments: argparse.Namespace) -> None:
    """One table: every side with the same texts, beam and batch, its median round."""
    asked = {key: getattr(arguments, key) for key in ("beams", "device", "steps")} | {"dtype": dtype}
    batch = batch or best_batch(model, texts, **asked)
    if batch == 1:
        texts = texts[: max(1, len(texts) // 8)]
    found: dict[str, list[Measured]] = {}
    refused: dict[str, str] = {}
    for _ in range(arguments.rounds + 1):
        for side in arguments.sides:
            if side not in refused:
                try:
                    found.setdefault(side, []).append(SIDES[side](model, texts, batch=batch, **asked))
                except Exception as error:  # what a version can't do is a result, and must not lose the others'
                    refused[side] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(f"\n{dtype}, batch {batch}\n\n| | ms/step | tokens/s | ratio |\n|---|---:|---:|---:|")
    base = None
    for side, rounds in found.items():
        if side in refused:
            continue
        seconds = statistics.median(one.seconds for one in rounds[1:])
        tokens, steps = rounds[-1].tokens, rounds[-1].steps
        base = base or tokens / seconds
        a_step = f"{1000 * seconds / steps:.2f}" if steps else "-"
        print(f"| {side} | {a_step} | {tokens / seconds:,.0f} | {tokens / seconds / base:.2f} |", flush=True)
    for side, why in refused.items():
        print(f"| {side} | {why} | | |", flush=True)


def engine(folder: Path, texts: list[str], arguments: argparse.Namespace) -> None:
    """`--engine ctranslate2` beside ctranslate2 itself, asked for the same."""
    translator = heedful.load(folder, "cpu", engine="ctranslate2")
    searcher = translator.searcher
    steps = arguments.steps
    options = SearchOptions(beam=arguments.beams, min_length=steps, max_length=steps, max_ratio=1000.0)

    def bare() -> list[str]:
        pieces = [translator.source.pieces(ids) for ids in translator.source.encode(texts)]
        found = searcher.translator.translate_batch(
            pieces,
            beam_size=arguments.beams,
            min_decoding_length=steps,
            max_decoding_length=steps,
            suppress_sequences=searcher.never,
            **searcher.batching,
        )
        known = searcher.target_ids
        return [translator.target.decode([known[piece] for piece in one.hypotheses[0]]) for one in found]

    def asked() -> list[str]:
        return [one.text for one in translator.translate(texts, options=options)]

    seconds: dict[Callable[[], list[str]], list[float]] = {bare: [], asked: []}
    for _ in range(arguments.rounds + 1):
        for side, times in seconds.items():
            begun = time.perf_counter()
            side()
            times.append(time.perf_counter() - begun)
    print(f"{len(texts)} texts, beam {arguments.beams}; the same answers: {bare() == asked()}")
    ours, theirs = (statistics.median(seconds[side][1:]) for side in (asked, bare))
    print(f"bare ctranslate2 {theirs:.2f} s, --engine ctranslate2 {ours:.2f} s, ratio {ours / theirs:.3f}")


def best_batch(model: Path, texts: list[str], **asked: Any) -> int:
    """The batch size with which generate is fastest on a part of the texts."""
    part = texts[: max(32, len(texts) // 4)]
    tried = {}
    for size in BATCHES:
        if size <= len(part):
            one = min(plain_generate(model, part, batch=size, **asked) for _ in range(2))
            tried[size] = one.tokens / one.seconds
    said = ", ".join(f"{size}: {speed:,.0f}" for size, speed in tried.items())
    print(f"generate, tokens/s by batch size on {len(part)} texts: {said}", flush=True)
    return max(tried, key=tried.__getitem__)


def ours(
    folder: Path, texts: Sequence[str], *, beams: int, batch: int, device: str, dtype: str, steps: int
) -> Measured:
    """What `heedful translate` runs, asked as `plain_generate` is."""
    tokenizer, searcher = _searcher(folder, device, dtype)
    options = SearchOptions(beam=beams)
    if steps:
        options = SearchOptions(beam=beams, min_length=steps - 1, max_length=steps - 1, max_ratio=1000.0)
    begun = _now(device)
    ids: list[list[int]] = sorted(tokenizer(list(texts))["input_ids"], key=len, reverse=True)
    found, counter = [], _Steps(searcher)
    for start in range(0, len(ids), batch):
        found += searcher.search([Sentence(one[:-1]) for one in ids[start : start + batch]], options)
    answers = tokenizer.batch_decode([best[0].ids for best in found], skip_special_tokens=True)
    assert len(answers) == len(texts)
    tokens = sum(len(best[0].ids) + 1 for best in found)
    return Measured(_now(device) - begun, tokens, counter.stop())


class _Steps:
    """Counts the steps of a searcher's model until it is told to stop."""

    def __init__(self, searcher: TorchSearcher) -> None:
        self.searcher, self.model, self.steps = searcher, searcher.steps[0], 0
        self.start, self.keep = self.model.start, self.model.keep
        searcher.steps[0] = self  # pyrefly: ignore

    def step(self, *asked: Any) -> Any:
        """As the model's."""
        self.steps += 1
        return self.model.step(*asked)

    def stop(self) -> int:
        """How many there were."""
        self.searcher.steps[0] = self.model
        return self.steps


@functools.cache
def _searcher(folder: Path, device: str, dtype: str) -> tuple[Any, TorchSearcher]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = load_transformer(folder).to(device, DTYPES[dtype])
    marks = Marks(model.config.pad, model.config.sos, model.config.eos)
    return tokenizer, TorchSearcher([model], marks, [model.config.pad])


def plain_generate(
    folder: Path,
    texts: Sequence[str],
    *,
    beams: int,
    batch: int,
    device: str,
    dtype: str,
    steps: int,
    cache: Literal["dynamic", "static"] = "dynamic",
    compiled: bool = False,
) -> Measured:
    """`MarianMTModel.generate` at its best: sorted by length, fused attention, nothing kept for gradients.

    Compiled, the decoder's step is one fused graph. generate compiles by itself only for greedy search.
    """
    tokenizer, model = _marian(folder, device, dtype, compiled)
    counter = _Counter()
    options: dict[str, Any] = {"num_beams": beams, "do_sample": False, "logits_processor": [counter]}
    if cache == "static":
        options["cache_implementation"] = cache
    if steps:
        options |= {"min_new_tokens": steps, "max_new_tokens": steps}
    tokens = 0
    answers: list[str] = []
    begun = _now(device)
    with torch.inference_mode():
        ids = sorted(tokenizer(list(texts))["input_ids"], key=len, reverse=True)
        for start in range(0, len(ids), batch):
            padded = tokenizer.pad({"input_ids": ids[start : start + batch]}, return_tensors="pt").to(device)
            out = model.generate(**padded, **options)[:, 1:].cpu()
            tokens += int((out != tokenizer.pad_token_id).sum())
            answers += tokenizer.batch_decode(out, skip_special_tokens=True)
    assert len(answers) == len(texts)
    return Measured(_now(device) - begun, len(texts) * steps or tokens, counter.steps)


class _Counter(transformers.LogitsProcessor):
    """Counts the steps: beams that end early are not in the output."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        self.steps += 1
        return scores


@functools.cache
def _marian(folder: Path, device: str, dtype: str, compiled: bool) -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=DTYPES[dtype], attn_implementation="sdpa")
    model = model.to(device).eval()  # pyrefly: ignore
    if compiled:
        model.forward = torch.compile(model.forward, dynamic=True)
    return tokenizer, model


def bare_ctranslate2(
    folder: Path, sentences: Sequence[Sequence[str]], *, beams: int, batch: int, device: str, dtype: str, steps: int
) -> Measured:
    """`ctranslate2.Translator.translate_batch` on a folder of its own; it sorts by length itself."""
    translator = _translator(folder, device, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[dtype])
    limits = {"min_decoding_length": steps, "max_decoding_length": steps} if steps else {}
    begun = _now(device)
    found = translator.translate_batch(list(sentences), beam_size=beams, max_batch_size=batch, **limits)
    seconds = _now(device) - begun
    rounds = -(-len(sentences) // batch)
    return Measured(seconds, sum(len(one.hypotheses[0]) for one in found), rounds * steps or None)


@functools.cache
def _translator(folder: Path, device: str, kind: str) -> Any:
    import ctranslate2  # not on every machine

    return ctranslate2.Translator(
        str(folder), device=device, compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads()
    )


@functools.cache
def _converted(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder of ctranslate2's own with the same weights; it goes away when the program ends."""
    from ctranslate2.converters import TransformersConverter

    out = tempfile.TemporaryDirectory()
    TransformersConverter(str(folder)).convert(out.name, force=True)
    return out


def _ctranslate2(folder: Path, texts: Sequence[str], **asked: Any) -> Measured:
    tokenizer, _ = _marian(folder, "cpu", "fp32", False)
    sentences = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(list(texts))["input_ids"]]
    return bare_ctranslate2(Path(_converted(folder).name), sentences, **asked)


SIDES: dict[str, Callable[..., Measured]] = {
    "generate": plain_generate,
    "generate-static": functools.partial(plain_generate, cache="static"),
    "generate-compiled": functools.partial(plain_generate, cache="static", compiled=True),
    "ctranslate2": _ctranslate2,
    "ours": ours,
}
"""Who is measured; ratios are to the first that is asked for."""


def random_marian(
    folder: Path,
    *,
    layers: int = 6,
    dim: int = 512,
    heads: int = 8,
    ffn: int = 2048,
    vocab_size: int = 32_000,
    init_std: float = 0.02,
    seed: int = 0,
) -> Path:
    """Write a Marian folder of random weights, of size base unless told otherwise, whose words are w2, w3, …

    With the usual small weights it says one word again and again, whatever it reads, which is as good for timing;
    where answers are to be compared, `init_std` 0.4 makes them differ.
    """
    torch.manual_seed(seed)
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=dim,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        activation_function="relu",
        max_position_embeddings=512,
        scale_embedding=True,
        init_std=init_std,
        eos_token_id=0,
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        forced_eos_token_id=None,
    )
    transformers.MarianMTModel(config).save_pretrained(folder)
    words = [EOS, UNK, *(f"w{number}" for number in range(2, vocab_size - 1)), PAD]
    vocab = {word: number for number, word in enumerate(words)}
    known = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, UNK))
    known.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()  # pyrefly: ignore
    known.post_processor = tokenizers.processors.TemplateProcessing(  # pyrefly: ignore
        single=f"$A {EOS}", special_tokens=[(EOS, 0)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=known, eos_token=EOS, unk_token=UNK, pad_token=PAD
    ).save_pretrained(folder)
    return folder


def random_texts(count: int, vocab_size: int = 32_000, seed: int = 0) -> list[str]:
    """Texts of 5 to 45 words of a random model, most of them near 20, as long as sentences are."""
    chosen = random.Random(seed)
    lengths = (round(chosen.triangular(5, 45, 15)) for _ in range(count))
    return [" ".join(f"w{chosen.randrange(2, vocab_size - 1)}" for _ in range(length)) for length in lengths]


def _now(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
