import re
import sys
import sysconfig
import unicodedata
from inspect import cleandoc
from itertools import islice
from pathlib import Path

import pytest

from heedful.data import builtin
from heedful.data.builtin import docstrings, documents, topics, unique, write
from heedful.data.heldout import held_out
from heedful.data.prose import is_prose, sentences, without_markup

STANDARD = Path(sysconfig.get_path("stdlib"))


def test_wrapped_lines_are_joined_and_blank_lines_separate():
    assert sentences(
        """Return the longest common prefix
        of all the paths.

        An empty list has
        no prefix at all.
        """
    ) == ["Return the longest common prefix of all the paths.", "An empty list has no prefix at all."]


@pytest.mark.parametrize(
    "block",
    [
        ">>> add(1, 2)\n3\n>>> for i in range(3):\n...     print(i)\nzero comes out of it first",
        "```python\nthe_answer = 42\n\nthis is the code we run\n```",
        ".. code-block:: python\n    :linenos:\n\n    this is the code we run\n\n    and some more of it",
        ".. math::\n    this is a formula of the book",
        ".. _label of the page:",
        ".. [1] The author of the paper, and where to find it.",
        "=====  ========\nthe name of it\n=====  ========\nfirst  the first of them\n=====  ========",
        "+-----+-----+\n| the name of it is here |\n+-----+-----+",
        "for name in the_names:\n    names.append(name)",
        "add(input, other, *, out=None) -> Tensor",
        "See Also\n--------\nother : The other function of this module.",
        "References\n----------\nThe author of the paper, and where to find it.\n\nNotes\n-----",
    ],
    ids=lambda block: block[:12],
)
def test_what_is_not_prose_is_dropped(block):
    docstring = f"This is the first line.\n\n{block}\n\n"
    assert sentences(docstring) == ["This is the first line."]
    if "See Also" not in block:
        assert sentences(docstring + "This is the last line.") == [
            "This is the first line.",
            "This is the last line.",
        ]


def test_literal_block_goes_and_its_introduction_stays():
    assert sentences(
        cleandoc(
            """
            This is how it is used::

                with the lock held by the caller
                    we run this

            Then it is released.
            """
        )
    ) == ["This is how it is used:", "Then it is released."]


def test_directives_with_prose_keep_it():
    assert sentences(
        cleandoc(
            """
            .. note:: The order of the items
                is not kept by this.
            .. warning::

                This may be slow at first.
            .. versionchanged:: 3.2
                The second argument is optional.
            .. deprecated:: 1.7.0 Use the other function of this module.
            """
        )
    ) == [
        "The order of the items is not kept by this.",
        "This may be slow at first.",
        "The second argument is optional.",
        "Use the other function of this module.",
    ]


def test_headings_and_signatures_of_parameters_go_and_descriptions_stay():
    numpy_style = """
        Parameters
        ----------
        a, b : array_like of ints, optional
            The two arrays that are
            to be added.
        axis : int
            The axis along which it is done.

        Returns
        -------
        ndarray
            A new array with the result.
        """
    assert sentences(numpy_style) == [
        "The two arrays that are to be added.",
        "The axis along which it is done.",
        "A new array with the result.",
    ]
    google_style = """
        Args:
            input (Tensor): the tensor that is
                to be added. Default: ``None``
            size (tuple(int, int), optional): the size of the output.
            other: the other one of the two.

        Returns:
            A new tensor with the result.
        """
    assert sentences(google_style) == [
        "the tensor that is to be added.",
        "the size of the output.",
        "the other one of the two.",
        "A new tensor with the result.",
    ]
    assert sentences(":param x: the value that is added\n:returns: the sum of the two") == [
        "the value that is added",
        "the sum of the two",
    ]


def test_every_item_of_a_list_is_its_own_paragraph():
    assert sentences(
        cleandoc(
            """
            * the first of the items
              goes on here
            * the second of the items
            1. and one with a number
            """
        )
    ) == ["the first of the items goes on here", "the second of the items", "and one with a number"]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("a :class:`Foo` and :func:`~torch.nn.add`, :meth:`a.b`", "a Foo and add, a.b"),
        ("see :ref:`the notes <notes-label>` here", "see the notes here"),
        ("the ``code`` and the `name` and `link`_", "the code and the name and link"),
        ("the `text of a link <https://example.org>`_ here", "the text of a link here"),
        ("the [text of a link](https://example.org/a_b) here", "the text of a link here"),
        ("*one* and **two words** of it", "one and two words of it"),
        ("pass *args and **kwargs on", "pass *args and **kwargs on"),
        ("of shape (*, N) or (*, M, N)", "of shape (*, N) or (*, M, N)"),
        ("as was shown [1]_ by them [2]_.", "as was shown by them."),
        ("the item x[1] of [3].", "the item x[1] of."),
        (r"pass \*args on\ ly", "pass *args only"),
        ("size :math:`N` of it", "size N of it"),
        ("cafe\N{COMBINING ACUTE ACCENT}  and   tea", "café and tea"),
    ],
)
def test_markup_is_unwrapped(marked, plain):
    assert without_markup(marked) == plain


def test_a_sentence_with_a_hole_in_it_is_dropped():
    assert sentences(
        "This is kept as it is. The rate is :math:`\\frac{1}{n}` of the whole. "
        "See https://example.org for all of it. "
        "Give it {input} and go. This is kept too."
    ) == ["This is kept as it is.", "This is kept too."]


def test_is_prose():
    assert is_prose("Return the number of items in the list.")
    assert is_prose("Close the file.")
    assert not is_prose("Close it.")
    assert not is_prose("ndarray, shape Q")
    assert not is_prose("a[i] = b[i] + c[i] for all of i")
    assert not is_prose("x torch.float32 torch.Size([50, 1000]) linear1 torch.float32")


@pytest.fixture
def package(tmp_path):
    """A package whose modules leave a mark when they are run."""
    root = tmp_path / "package"
    mark = tmp_path / "mark"
    run = f"open({str(mark)!r}, 'w').close()\nraise RuntimeError\n"
    files = {
        "b.py": f'"""The module that comes second."""\n{run}',
        "a/z.py": f'"""The module that comes first."""\n{run}class C:\n'
        '    r"""The class in that module."""\n'
        "    async def f(self):\n        '''The method of that class.'''\n"
        '        """Not a docstring at all."""\n'
        'if True:\n    def g():\n        """The function in a branch."""\n',
        "c.py": 'add_docstr(f, r"""f(x)\n\nThe text given by call.\n{input}\n""".format(**args)'
        ' + """\nAnd more of it.\n""")\n'
        'g.__doc__ = f"""\nThe text that is {assigned} here.\nThe text that was assigned.\n"""\n'
        'other = """\nNot a docstring at all.\n"""\n'
        'print("""\nNot a docstring at all.\n""")\n',
        "broken.py": '"""Not valid Python at all."""\nprint "hello"\n',
        "escape.py": '"""The text with an invalid \\d escape."""\n',
        "tests/test_a.py": '"""Not the test of it."""\n',
        "site-packages/other.py": '"""Not the package of others."""\n',
        "notes.txt": '"""Not a Python file at all."""\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_docstrings_are_read_in_order_and_nothing_is_run(package):
    found = [sentences(docstring) for docstring in docstrings(package)]
    assert found == [
        ["The module that comes first."],
        ["The class in that module."],
        ["The method of that class."],
        ["The function in a branch."],
        ["The module that comes second."],
        ["The text given by call.", "And more of it."],
        ["The text that was assigned."],
        ["The text with an invalid \\d escape."],
    ]
    assert not (package.parent / "mark").exists()


def test_documents_do_without_what_is_not_installed(package, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(package))
    monkeypatch.setattr(builtin.importlib.util, "find_spec", lambda name: None)
    assert len(list(documents())) == 8


def test_finding_a_package_does_not_import_it(package, monkeypatch):
    monkeypatch.syspath_prepend(package.parent)
    (package / "__init__.py").write_text("raise RuntimeError")
    assert builtin._folder("package") == package
    assert "package" not in sys.modules


def test_a_sentence_met_before_is_dropped_and_so_is_what_is_then_empty():
    again = "The usual words of all."
    found = [["One.", again], ["One.", again], ["Two.", again, "Two."], [again], ["Three."]]
    assert list(unique(found)) == [["One.", again], ["Two."], ["Three."]]


def test_the_corpus_of_this_python():
    reference = list(islice(topics(STANDARD / "pydoc_data" / "topics.py"), 20))
    assert len(reference) == 20
    raw = [*reference, *docstrings(STANDARD / "asyncio"), *docstrings(STANDARD / "email")]
    found = list(unique(filter(None, map(sentences, raw))))
    every = [sentence for document in found for sentence in document]
    assert len(found) > 500
    assert len(every) > 2_000
    assert all(document for document in found)
    assert all(s == " ".join(s.split()) == unicodedata.normalize("NFC", s) for s in every)
    assert not [s for s in every if re.search(r">>>|:\w+:`|``|https?://|\0|\{\w*\}", s)]
    assert sum(s[-1] in '.:!?)"' for s in every) > 0.8 * len(every)


def test_write_puts_a_sentence_on_a_line_and_a_blank_line_after_a_document(tmp_path, monkeypatch):
    monkeypatch.setattr(
        builtin, "_docstrings", lambda: iter(["The first of all. And the second one.", "The third of all."])
    )
    path = tmp_path / "made" / "corpus.txt"
    write(path)
    assert path.read_text() == "The first of all.\nAnd the second one.\n\nThe third of all.\n\n"
    assert list(path.parent.iterdir()) == [path]


def test_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    def interrupted():
        yield "The first of all."
        raise KeyboardInterrupt

    monkeypatch.setattr(builtin, "_docstrings", interrupted)
    path = tmp_path / "corpus.txt"
    path.write_text("as it was")
    with pytest.raises(KeyboardInterrupt):
        write(path)
    assert path.read_text() == "as it was"


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_held_out_share_is_near_what_is_asked(share):
    found = [[f"Sentence {n}.", "And another."] for n in range(20_011)]
    assert sum(held_out(document, share) for document in found) / len(found) == pytest.approx(share, abs=0.01)


def test_held_out_depends_on_content_alone():
    found = [[f"Sentence {n}."] for n in range(1_009)]
    chosen = {tuple(document) for document in found if held_out(document, 0.1)}
    assert chosen == {tuple(document) for document in reversed(found) if held_out(tuple(document), 0.1)}
    assert chosen < {tuple(document) for document in found if held_out(document, 0.2)}
    assert held_out(["a", "b"], 0.5) == held_out(["a\nb"], 0.5)
    # Worked out once: the split must not move between versions.
    assert [n for n in range(60) if held_out([f"Sentence {n}."], 0.1)] == [9, 28, 47, 54, 55]


def test_the_digits_fill_the_range_of_bytes():
    pixels, labels = builtin.digits()
    assert (pixels.shape, pixels.dtype, labels.dtype) == ((1797, 8, 8), "uint8", "int64")
    assert labels[:11].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert (pixels.min(), pixels.max()) == (0, 255)
    # The first one's third row is 0 3 15 2 0 11 8 0 of 16.
    assert pixels[0, 2].tolist() == [0, 48, 239, 32, 0, 175, 128, 0]
