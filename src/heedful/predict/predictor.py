"""An encoder as something to ask: texts in, answers out. Lists in, lists out; one in, one out."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from numbers import Integral
from typing import Any, get_args, overload

import numpy as np

from heedful.data.flaws import sound
from heedful.data.labelled import TextExample
from heedful.data.questions import QuestionExample
from heedful.data.token_workers import TokenWorkers
from heedful.data.tokenizer import Tokenizer, check_texts
from heedful.errors import UserError
from heedful.formats.sentence_transformers import Pooling
from heedful.models.bert import BertForPretraining
from heedful.models.heads import TASKS, Head
from heedful.predict.answers import Answer, Answers
from heedful.predict.blanks import Blanks, Filler
from heedful.predict.engine import Engine, Pool, TorchEngine
from heedful.predict.generation import Generated, generate
from heedful.predict.reading import CHUNK, GPU_CHUNK, Pace, Reader, answered, readable, short
from heedful.predict.tags import Sentence, Tagged, Tags, sentence
from heedful.predict.texts import Classes, Classified, Labelled, Labels, Numbers, Regressor, TextReader, Vectors

Text = str | tuple[str, str]
"""A text, or a pair of texts."""
Class = Classified | Labelled
"""One class, or any number of labels: as the model was trained."""

WINDOW, OVERLAP = 384, 128
"""Tokens of a window over a long text, and tokens that neighbours share, where training said nothing else."""
METHODS = {
    "classify": "classify",
    "multilabel": "classify",
    "regress": "regress",
    "tag": "tag",
    "answer": "answer",
}
"""The method that asks each kind of head."""


class Predictor:
    """A model and its tokenizer. What it can be asked depends on its head; `embed` always works."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        origin: str = "the model",
        pooling: Pooling | None = None,
    ) -> None:
        if tokenizer.vocab_size > engine.vocab_size:
            raise UserError(
                f"{origin}: its tokenizer has {tokenizer.vocab_size} tokens but the model only "
                f"{engine.vocab_size}; they do not belong together"
            )
        self.engine = engine
        self.tokenizer = tokenizer
        self.origin = origin
        self.pooling = pooling or Pooling()
        self.workers = TokenWorkers(tokenizer) if isinstance(engine, TorchEngine) and engine.on_gpu else None

    @property
    def head(self) -> Head | None:
        """What the model was fine-tuned for."""
        return self.engine.head

    @cached_property
    def words(self) -> BertForPretraining | None:
        """The model that fills blanks, where this is one."""
        model = self.engine.model if isinstance(self.engine, TorchEngine) else None
        return model if isinstance(model, BertForPretraining) and model.mlm is not None else None

    @overload
    def classify(self, texts: Text, *, truncate: bool = False) -> Class: ...
    @overload
    def classify(self, texts: Sequence[Text], *, truncate: bool = False) -> list[Class]: ...

    def classify(self, texts: Text | Sequence[Text], *, truncate: bool = False) -> Class | list[Class]:
        """`Classified` for each text or pair; `Labelled` if the model gives any number of labels."""
        return self._texts(self.reader("classify", truncate=truncate), texts)

    @overload
    def regress(self, texts: Text, *, truncate: bool = False) -> Numbers: ...
    @overload
    def regress(self, texts: Sequence[Text], *, truncate: bool = False) -> list[Numbers]: ...

    def regress(self, texts: Text | Sequence[Text], *, truncate: bool = False) -> Numbers | list[Numbers]:
        """The numbers of each text or pair, by name, in the units of the training data."""
        return self._texts(self.reader("regress", truncate=truncate), texts)

    @overload
    def tag(self, texts: str) -> Tagged: ...
    @overload
    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[Tagged]: ...

    def tag(self, texts: str | Sequence[str | Sequence[str]]) -> Tagged | list[Tagged]:
        """`Tagged` for each text, however long. A list of lists of words is tagged word by word."""
        reader = self.reader("tag")
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        for one in given:
            if not isinstance(one, str) and not (isinstance(one, Sequence) and all(isinstance(w, str) for w in one)):
                raise UserError(f"{one!r:.60} is neither a text nor a list of words")
        sentences = [
            sentence(self.tokenizer, one, short(one))
            if isinstance(one, str)
            else Sentence(short(" ".join(one)), tuple(one))
            for one in given
        ]
        found = self._all(reader, sentences, len(sentences))
        return found[0] if alone else found

    @overload
    def answer(
        self, questions: str, context: str, *, n_best: int = 1, longest: int = 30, may_be_empty: bool | None = None
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        questions: Sequence[tuple[str, str]],
        *,
        n_best: int = 1,
        longest: int = 30,
        may_be_empty: bool | None = None,
    ) -> list[list[Answer]]: ...

    def answer(
        self,
        questions: str | tuple[str, str] | Sequence[tuple[str, str]],
        context: str | None = None,
        *,
        n_best: int = 1,
        longest: int = 30,
        may_be_empty: bool | None = None,
    ) -> list[Answer] | list[list[Answer]]:
        """The best answers to a question in its context, or to each of several (question, context)."""
        reader = self.reader("answer", n_best=n_best, longest=longest, may_be_empty=may_be_empty)
        if isinstance(questions, str) and context is None:
            raise UserError("a question needs a text to answer it from; give the context too")
        if not isinstance(questions, str) and context is not None:
            raise UserError("several questions come with a context each; give a list of (question, context)")
        alone = isinstance(questions, str) or _is_pair(questions)
        pairs = [(questions, context)] if isinstance(questions, str) else [questions] if alone else questions
        asked = [_question(number, one) for number, one in enumerate(pairs)]
        found = self._all(reader, asked, len(asked))
        return found[0] if alone else found

    def embed(
        self,
        texts: Text | Sequence[Text],
        *,
        pool: Pool | None = None,
        normalise: bool | None = None,
        truncate: bool | None = None,
    ) -> np.ndarray:
        """A vector for each text: (texts, D), or (D,) for one."""
        reader = self.vectors(pool, normalise, truncate)
        alone, given = _given(texts)
        vectors = np.empty((len(given), reader.none().shape[1]), np.float32)
        first = 0
        for some in self._each(reader, map(_example, given), len(given)):
            vectors[first : first + len(some)] = some
            first += len(some)
        return vectors[0] if alone else vectors

    @overload
    def fill(self, texts: str, top: int = 5) -> Blanks: ...
    @overload
    def fill(self, texts: Sequence[str], top: int = 5) -> list[Blanks]: ...

    def fill(self, texts: str | Sequence[str], top: int = 5) -> Blanks | list[Blanks]:
        """The most probable tokens for every `[MASK]` of a text, or of each of several."""
        # Blanks are filled in single texts: a tuple of two is two of them, not a pair.
        given = list(texts) if isinstance(texts, tuple) else texts
        return self._texts(self.reader("fill", top=top), given)

    def generate(self, text: str = "", **options: Any) -> Generated:
        """Text written by filling blanks and emptying them again; see `generation.generate` for the options."""
        if self.words is None:
            raise UserError(
                f"{self.origin} can't write text: it has no masked-word head; pretrain one with `heedful pretrain`"
            )
        check_texts([text])
        return generate(self.words, self.tokenizer, text, **options)

    def reader(
        self,
        method: str,
        *,
        truncate: bool = False,
        top: int = 5,
        n_best: int = 1,
        longest: int = 30,
        may_be_empty: bool | None = None,
    ) -> Reader[Any, Any, Any]:
        """What answers a method's examples; an error that says what to train if the model can't."""
        if method == "fill":
            if self.words is None:
                raise UserError(
                    f"{self.origin} can't fill blanks: it has no masked-word head; "
                    "pretrain one with `heedful pretrain`"
                )
            if isinstance(top, bool) or not isinstance(top, Integral):
                raise UserError(f"top {top!r} is not a whole number")
            if top < 1:
                raise UserError(f"top {top} must be at least 1")
            return Filler(model=self.words, tokenizer=self.tokenizer, top=int(top))
        head = self.engine.head
        if head is None or METHODS[head.task] != method:
            raise UserError(f"{self.origin} can't {method}: {self._ability()}; {_training(method)}")
        common: dict[str, Any] = {"engine": self.engine, "tokenizer": self.tokenizer}
        if head.reads_sequence:
            kinds = {"classify": Classes, "multilabel": Labels, "regress": Regressor}
            length = min(head.length or self.engine.max_length, self.engine.max_length)
            return kinds[head.task](
                **common, length=length, truncate=truncate, pairs=head.pairs, workers=self.workers
            )
        length = min(head.length or WINDOW, self.engine.max_length)
        overlap = min(OVERLAP if head.overlap is None else head.overlap, length // 3)
        if head.task == "tag":
            return Tags(**common, length=length, overlap=overlap)
        if n_best < 1:
            raise UserError(f"n_best {n_best} must be at least 1")
        if longest < 1:
            raise UserError(f"longest {longest} must be at least 1 token")
        empty = head.may_be_empty if may_be_empty is None else may_be_empty
        return Answers(**common, length=length, overlap=overlap, n_best=n_best, longest=longest, may_be_empty=empty)

    def vectors(self, pool: Pool | None, normalise: bool | None, truncate: bool | None) -> Vectors:
        """What embeds texts: as asked, else as the folder says, else by the mean."""
        if pool not in (None, *get_args(Pool)):
            raise UserError(f"pool {pool!r} is unknown; there are {' and '.join(get_args(Pool))}")
        return Vectors(
            engine=self.engine,
            tokenizer=self.tokenizer,
            length=min(self.pooling.length or self.engine.max_length, self.engine.max_length),
            truncate=self.pooling.length is not None if truncate is None else truncate,
            pool=pool or self.pooling.pool,
            normalise=self.pooling.normalise if normalise is None else normalise,
            workers=self.workers,
            pooling=self.pooling,
        )

    def pace(self, reader: Reader[Any, Any, Any]) -> Pace:
        """How a reader is best given many examples: a GPU needs no help while it computes, so the host goes ahead."""
        if not isinstance(self.engine, TorchEngine) or not self.engine.on_gpu or isinstance(reader, Filler):
            return Pace()
        return Pace(GPU_CHUNK if isinstance(reader, TextReader) else CHUNK, ahead=True)

    def _ability(self) -> str:
        if not isinstance(self.engine, TorchEngine) and self.engine.head is None:
            return "this engine gives the vectors of an encoder alone, and fills no blanks"
        if self.engine.head is not None:
            return f"its head gives {TASKS[self.engine.head.task]}"
        return "it fills blanks" if self.words is not None else "it is an encoder without a head"

    def _texts(self, reader: Reader[Any, Any, Any], texts: Any) -> Any:
        alone, given = _given(texts)
        found = self._all(reader, map(_example, given), len(given))
        return found[0] if alone else found

    def _all(self, reader: Reader[Any, Any, Any], examples: Iterable[Any], count: int) -> list[Any]:
        """The answer to each of so many examples; the first that can't be read is raised."""
        return [answer for some in self._each(reader, examples, count) for answer in some]

    def _each(self, reader: Reader[Any, Any, Any], examples: Iterable[Any], count: int) -> Iterator[Any]:
        """The same, some at once."""
        pace = self.pace(reader)
        if not pace.ahead or count <= pace.chunk:
            yield reader.answer(readable(reader.prepare(list(examples))))
            return
        if self.workers is not None and isinstance(reader, TextReader):
            self.workers.expect(count)
        with closing(answered(reader, examples, pace)) as chunks:
            for one in chunks:
                yield one.found if isinstance(one.found, np.ndarray) else list(sound(one.found))


def _given(texts: Any) -> tuple[bool, Sequence[Any]]:
    """Whether it is one text or pair, and a sequence of texts in any case."""
    alone = isinstance(texts, str) or _is_pair(texts)
    if not alone and (not isinstance(texts, Sequence) or isinstance(texts, bytes)):
        raise UserError(f"{texts!r:.60} is neither a text nor a list of them")
    for one in texts if not alone else ():
        if not isinstance(one, str):
            _example(one)  # which refuses what is no pair either, before any work is done
    return alone, [texts] if alone else texts


def _example(text: Any) -> TextExample:
    if isinstance(text, str):
        return TextExample(short(text), text, None)
    if isinstance(text, (tuple, list)) and _is_pair(tuple(text)):
        return TextExample(short(text[0]), text[0], text[1])
    raise UserError(f"{text!r:.60} is neither a text nor a pair of texts")


def _question(number: int, asked: Any) -> QuestionExample:
    if isinstance(asked, (tuple, list)) and _is_pair(tuple(asked)):
        return QuestionExample(short(asked[0]), str(number), asked[0], asked[1], None)
    raise UserError(f"{asked!r:.60} is not a question with its context; give (question, context)")


def _is_pair(texts: Any) -> bool:
    return isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(one, str) for one in texts)


def _training(method: str) -> str:
    return f"train one with `heedful finetune MODEL DATA --task {method} --out FOLDER`"
