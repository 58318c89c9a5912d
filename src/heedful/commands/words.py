"""Commands about words: vectors that know no context, and what a model makes of a word in its context."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional, several
from heedful.commands.output import say, warn
from heedful.errors import UserError

Flag = Annotated[bool, FlagCreatePairsOff]


def train_vectors(options: Any) -> None:
    """Train word vectors (word2vec), one a word whatever the sentence, in a file that gensim opens."""
    from heedful.runs.word_vectors import train_vectors as run

    run(options)


def nearest(
    vectors: Annotated[Positional[Path], arg(metavar="FOLDER|FILE")],
    word: Annotated[Positional[tuple[str, ...]], several(metavar="WORD…")],
    plus: Annotated[tuple[str, ...], optional(metavar="WORD…")] = (),
    minus: Annotated[tuple[str, ...], optional(metavar="WORD…")] = (),
    top: int = 10,
    json: Flag = False,
) -> None:
    """List the words whose vectors are nearest to a word's.

    Args:
        vectors: A folder that `heedful train-vectors` made, or any text file in word2vec's format.
        word: The word, once or several.
        plus: Add these words to it: with --minus, an analogy (king --minus man --plus woman).
        minus: Take these words from it.
        top: Words to list.
        json: One JSON object a word.
    """
    from heedful.formats.word2vec import load
    from heedful.runs.nearest import nearest as run

    for one, found in zip(word, run(load(vectors), word, plus=plus, minus=minus, top=top), strict=True):
        if json:
            table = {"word": one, "plus": plus, "minus": minus, "nearest": [near._asdict() for near in found]}
            say(json_module.dumps(table, ensure_ascii=False))
            continue
        say("".join([one, *(f" - {other}" for other in minus), *(f" + {other}" for other in plus)]))
        for near in found:
            say(f"  {near.similarity:6.3f}  {near.word}")


def contrast(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    text: Annotated[Positional[tuple[str, ...]], several(metavar="TEXT TEXT")],
    word: Annotated[str, arg(metavar="WORD")],
    vectors: Annotated[Path | None, optional(metavar="FOLDER|FILE")] = None,
    corpus: Annotated[tuple[str, ...], optional(metavar="CORPUS…")] = (),
    layer: Annotated[int | None, optional(metavar="N")] = None,
    top: int = 5,
    picture: Annotated[Path | None, optional(metavar="FILE")] = None,
    json: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Compare what a context-free vector and a model see in a word that stands in two sentences.

    Args:
        model: A model folder: an encoder; one that fills blanks also says what would fit in the word's place.
        text: Two sentences that have the word in them.
        word: The word.
        vectors: Word vectors, of `heedful train-vectors` or in word2vec's format (by default the model's own table
            of tokens, which knows no context either).
        corpus: Text to look for words in that the model takes as it takes this one; the first 2,000 sentences count.
        layer: The layer whose states are compared, 0 for what goes into the first (by default the last).
        top: Words to list.
        picture: Draw it too: png, svg or pdf.
        json: As one JSON object.
        device: Where to compute.
    """
    from heedful.formats.word2vec import load
    from heedful.predict import load_predictor
    from heedful.runs import contrast as run

    if len(text) != 2:
        raise UserError(f'contrast takes two sentences, each in quotes, and got {len(text)}: "one" "the other"')
    if picture is not None:
        from heedful.runs.pictures import check_format

        check_format(picture)  # said now, and not after all the work
    found = run.contrast(
        load_predictor(model, device, precision="fp32"),
        (text[0], text[1]),
        word,
        vectors=None if vectors is None else load(vectors),
        corpus=corpus,
        layer=layer,
        top=top,
    )
    if picture is not None and (lacks := run.draw(found, picture)):
        warn(lacks)
    if json:
        say(json_module.dumps(run.table(found), ensure_ascii=False))
        return
    for line in run.told(found):
        say(line)
    if picture is not None:
        say(f"drew {picture}")
