"""The command that translates."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional
from heedful.commands.output import say, warn

Flag = Annotated[bool, FlagCreatePairsOff]


def translate(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    file: Annotated[Positional[str], arg(metavar="FILE|-")] = "-",
    out: Annotated[Path | None, optional(metavar="FILE")] = None,
    beam: int = 5,
    n_best: int = 1,
    alignments: Flag = False,
    score: Flag = False,
    json: Flag = False,
    given: Annotated[Path | None, optional(metavar="FILE")] = None,
    prefix: Annotated[str, optional(metavar="TEXT")] = "",
    penalty: Literal["average", "gnmt", "none"] = "average",
    length_penalty: float = 1.0,
    coverage_penalty: float = 0.0,
    min_length: int = 0,
    max_length: Annotated[int | None, optional(metavar="N")] = None,
    min_ratio: float = 0.0,
    max_ratio: float = 3.0,
    block_ngrams: int = 0,
    repetition_penalty: float = 1.0,
    early: Flag = False,
    sample: Flag = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    source: Annotated[str | None, optional(metavar="COLUMN")] = None,
    truncate: Flag = False,
    skip_bad: Flag = False,
    errors: Literal["strict", "replace"] = "strict",
    ensemble: Annotated[tuple[Path, ...], optional(metavar="FOLDER…")] = (),
    engine: Literal["torch", "ctranslate2"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """Translate a file line by line, or what is typed.

    A line of the answer belongs to the same line of the file, and is empty where that is. With several columns they
    are parted by tabs: number and rank (with --n-best), score, translation, alignment.

    Args:
        model: The folder of a translator.
        file: Texts: one a line, or a column of csv, tsv, jsonl, parquet; - for standard input.
        out: Where the translations go (standard output by default).
        beam: Hypotheses that are followed at once; 1 always takes the most probable token.
        n_best: Translations of each text, at most as many as beams; a line each, with the text's number and the rank.
            One text may come twice, written in other pieces.
        alignments: Which word of the text each word of the translation looked at most: 0-0 1-2, counted from 0.
        score: What translations are compared by: the log-probability after the penalties.
        json: One JSON object a text, with everything that is known.
        given: Translations, one a line: say how probable they are (log-probability) instead of translating.
        prefix: How every translation must begin.
        penalty: What the log-probability of L tokens is divided by: L^a, ((5 + L) / 6)^a (Wu et al. 2016), or 1.
        length_penalty: The exponent a: higher favours longer translations, 0 is as good as none.
        coverage_penalty: Weight of the penalty on source tokens that nothing looked at (Wu et al. 2016).
        min_length: Fewest tokens.
        max_length: Most tokens (by default as many as the model has positions).
        min_ratio: Fewest tokens for each of the source.
        max_ratio: Most tokens for each of the source, and ten more.
        block_ngrams: Never write the same so many tokens in a row twice; 0 allows everything.
        repetition_penalty: What the log-probability of a token that was written before is multiplied by.
        early: Stop as soon as there are as many finished translations as beams, though a better one might come.
        sample: Draw tokens instead of searching; --n-best draws.
        temperature: Below 1 the draws are more careful, above 1 bolder.
        top_k: Draw among so many of the most probable tokens; 0 is all.
        top_p: Draw among the most probable tokens that have this probability together.
        seed: Of the draws.
        source: The column to translate, where the file is a table. Found by itself when its name is usual.
        truncate: Cut texts that are too long, where else they are refused.
        skip_bad: Go on after a text that can't be read: its line is empty, and in JSON says why.
        errors: What to do with bytes that are not UTF-8.
        ensemble: Folders of other translators with the same vocabulary, which decide together with this one.
        engine: What computes: torch, or what `heedful export` wrote for ctranslate2, which always stops --early.
        int8: With --engine ctranslate2, the smaller and faster model.
        device: Where to compute.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    from heedful.decode import SearchOptions
    from heedful.nn.shortage import enough_memory
    from heedful.predict import load_translator
    from heedful.runs.dataset import one_file
    from heedful.runs.translate import Wanted
    from heedful.runs.translate import translate as run

    wanted = Wanted(
        options=SearchOptions(
            beam=beam,
            n_best=n_best,
            penalty=penalty,
            length_penalty=length_penalty,
            coverage_penalty=coverage_penalty,
            min_length=min_length,
            max_length=max_length,
            min_ratio=min_ratio,
            max_ratio=max_ratio,
            block_ngrams=block_ngrams,
            repetition_penalty=repetition_penalty,
            early=early,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        ),
        prefix=prefix,
        column=source,
        given=None if given is None else one_file(str(given)),
        errors=errors,
        truncate=truncate,
        skip_bad=skip_bad,
        alignments=alignments,
        score=score,
        json=json,
    )
    path = None if file == "-" else one_file(file)
    translator = load_translator([model, *ensemble], device, precision=precision, engine=engine, int8=int8)
    beams = beam > 1 and not sample and not given
    with enough_memory("this", "use a smaller --beam, or end what else uses it") if beams else nullcontext():
        remark = run(translator, path, out, wanted)
    if remark:
        warn(remark)
    if out is not None:
        say(f"wrote {out}")
