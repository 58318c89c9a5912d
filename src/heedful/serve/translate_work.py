"""How a translator is asked. What is drawn is drawn for one request alone, so that it does not depend on others."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from heedful.data.flaws import Flaw
from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.predict.translator import Asked, Translation, TranslationReader, Translator
from heedful.serve.batching import Wanted, insist
from heedful.serve.refusals import Refusal
from heedful.serve.text_work import too_long


class Source(NamedTuple):
    """A text to translate."""

    text: str
    prefix: str = ""
    truncate: bool = False
    width: int = 1
    """Hypotheses that are followed."""

    @property
    def weight(self) -> int:
        """Its characters, for each hypothesis."""
        return len(self.text) * self.width


@dataclass(frozen=True, eq=False)
class TranslateWork:
    """Translations found, or drawn, in one way."""

    translator: Translator
    options: SearchOptions
    align: bool

    @property
    def key(self) -> Hashable:
        """One way to search; draws are nobody else's."""
        return ("translate", self.options, self.align, id(self) if self.options.sample else None)

    def prepare(self, examples: Sequence[Source]) -> list[Asked | Refusal]:
        """The text, and how its translation must begin."""
        found: list[Asked | Refusal] = []
        readers: dict[tuple[str, bool], TranslationReader] = {}
        for number, one in enumerate(examples, 1):
            kind = one.prefix, one.truncate
            if kind not in readers:
                readers[kind] = self._reader(*kind)
            text = " ".join(one.text.split())
            ready = readers[kind].prepare([PairExample("", text, None)])[0]
            if isinstance(ready, Flaw):
                found.append(
                    too_long(len(self.translator.source.encode([text])[0]), self.translator.searcher.longest)
                )
            else:
                found.append(ready._replace(sentence=ready.sentence._replace(number=number)))
        return found

    def _reader(self, prefix: str, truncate: bool) -> TranslationReader:
        return self.translator.reader(self.options, prefix=prefix, align=self.align, truncate=truncate)

    def tokens(self, prepared: Asked) -> int:
        """Of the source, for each hypothesis that is followed."""
        return (len(prepared.sentence.ids) + 1) * self.options.width

    def answer(self, prepared: Sequence[Asked], wanted: Wanted) -> list[list[Translation]]:
        """The best translations of each, as long as anybody wants them."""
        return self._reader("", False).answer(prepared, partial(insist, wanted))
