import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image
from matplotlib.figure import Figure

import heedful
from heedful.data import tokenizer as wordpiece
from heedful.durable import alone
from heedful.errors import UserError
from heedful.formats.huggingface import save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.nn.positions import sinusoidal
from heedful.runs import doctor, info, pictures
from heedful.runs.device import Compute, choose

CONFIG = BertConfig(vocab_size=61, layers=3, dim=10, heads=2, ffn_dim=13, max_length=17)
TINY = BertConfig.of_size("tiny", vocab_size=97, max_length=31)
REPORTS = [
    {"kind": "train", "step": 1, "tokens": 101, "loss": 5.5, "mlm_loss": 4.5, "mlm_accuracy": 0.1, "lr": 1e-4},
    {"kind": "train", "step": 2, "tokens": 202, "loss": 4.5, "mlm_loss": 3.5, "mlm_accuracy": 0.2, "lr": 2e-4},
    {"kind": "heldout", "step": 2, "tokens": 202, "loss": 4.75, "mlm_loss": 3.75, "mlm_accuracy": 0.125},
]


def report(folder: Path, lines: list[dict[str, object]]) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def assert_drawn(path: Path, height: int) -> None:
    """A PNG of the right height that is not blank."""
    assert path.read_bytes().startswith(b"\x89PNG")
    pixels = image.imread(path)
    assert pixels.shape[0] == pytest.approx(height, abs=2)
    assert pixels[..., :3].std() > 0.01


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(params=[True, False], ids=["bf16", "no bf16"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A GPU that has bf16 or has not."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: request.param)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old Card")
    return request.param


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were closed, to look into."""
    figures: list[Figure] = []
    close = pictures.plt.close
    monkeypatch.setattr(pictures.plt, "close", lambda figure: (figures.append(figure), close(figure)))
    return figures


def test_the_curves_of_a_run(tmp_path: Path):
    report(tmp_path, REPORTS)
    pictures.curves(tmp_path, tmp_path / "curves.png")
    assert_drawn(tmp_path / "curves.png", 2 * 352)  # three panels, two a row, 3.2 inches of 110 dots
    assert not pictures.plt.get_fignums()


def test_the_curves_show_every_metric_that_the_run_has(tmp_path: Path):
    report(tmp_path, [{**REPORTS[0], "nsp_loss": 0.7, "nsp_accuracy": 0.5, "tokens_per_second": 997.0}])
    pictures.curves(tmp_path, tmp_path / "curves.png")
    assert_drawn(tmp_path / "curves.png", 3 * 352)


def test_curves_of_images_have_what_was_held_out_beside_the_training(tmp_path: Path, drawn: list[Figure]):
    trained = {"image_loss": 2.5, "image_accuracy": 0.25, "lr": 0.01, "images_per_second": 997.0}
    tested = {"loss": 1.5, "accuracy": 0.75, "macro_f1": 0.7}
    report(
        tmp_path,
        [{"kind": "train", "step": 3, **trained}, {"kind": "heldout", "step": 5, **tested}],
    )
    pictures.curves(tmp_path, tmp_path / "curves.png")
    panels = {axis.get_title(): axis for axis in drawn[0].axes}
    assert set(panels) == {
        "images: loss",
        "images: share right",
        "mean F1 of the classes (held out)",
        "learning rate",
        "images a second",
    }
    points = {line.get_label(): line.get_xydata().tolist() for line in panels["images: loss"].lines}
    assert points == {pictures.CHANGED: [[3, 2.5]], "held out": [[5, 1.5]]}
    points = {line.get_label(): line.get_xydata().tolist() for line in panels["images: share right"].lines}
    assert points == {pictures.CHANGED: [[3, 0.25]], "held out": [[5, 0.75]]}
    legend = panels["images: loss"].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [pictures.CHANGED, "held out"]


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("circle", "cross", "square"), ("abcdefgh", "b")])
def test_nothing_of_a_confusion_is_cut_off(tmp_path: Path, drawn: list[Figure], labels: tuple[str, ...]):
    pictures.confusion(np.eye(len(labels), dtype=int), labels, tmp_path / "matrix.png")
    axis, figure = drawn[0].axes[0], drawn[0]
    figure.draw_without_rendering()  # saved at another resolution, it is laid out anew
    truth, predicted = (one.label.get_window_extent() for one in (axis.yaxis, axis.xaxis))
    assert truth.x0 >= 2
    assert predicted.y0 >= 2
    assert figure.axes[1].yaxis.label.get_window_extent().x1 <= figure.bbox.width - 2


def test_no_picture_in_a_folder_that_is_not_there(tmp_path: Path):
    with pytest.raises(UserError, match=f"can't be drawn: there is no folder {tmp_path}/none; make it, or choose"):
        pictures.check_format(tmp_path / "none" / "x.png")


def test_no_curves_without_reports(tmp_path: Path):
    with pytest.raises(UserError, match=r"holds no run: it has no metrics\.jsonl"):
        pictures.curves(tmp_path, tmp_path / "curves.png")
    report(tmp_path, [])
    with pytest.raises(UserError, match="has no reports yet; train a little first"):
        pictures.curves(tmp_path, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize("length", [11, 17, 101])
def test_positions_are_drawn(tmp_path: Path, length: int):
    pictures.positions(sinusoidal(17, 11).requires_grad_(), length, tmp_path / "positions.png")
    assert_drawn(tmp_path / "positions.png", 880)
    assert not pictures.plt.get_fignums()


def test_positions_that_are_all_zero_are_drawn(tmp_path: Path):
    pictures.positions(torch.zeros(17, 10), 17, tmp_path / "positions.png")
    assert_drawn(tmp_path / "positions.png", 880)


@pytest.mark.parametrize("model", [Bert(CONFIG), BertForPretraining(CONFIG)])
def test_the_positions_of_a_model_are_drawn(tmp_path: Path, model: Bert | BertForPretraining):
    pictures.model_positions(model, 1009, tmp_path / "positions.png")
    assert_drawn(tmp_path / "positions.png", 880)


def test_a_model_without_learned_positions_has_none_to_draw(tmp_path: Path):
    with pytest.raises(UserError, match="learned no positions to draw; its own are rotary"):
        pictures.model_positions(Bert(replace(CONFIG, dim=20, positions="rotary")), 11, tmp_path / "positions.png")


@pytest.mark.parametrize(
    ("model", "heads", "pooler"),
    [
        (BertForPretraining(CONFIG), "masked words, next sentence", "yes, reads [CLS]"),
        (BertForPretraining(CONFIG, nsp=False), "masked words", "no"),
        (BertForPretraining(CONFIG, mlm=False), "next sentence", "yes, reads [CLS]"),
        (Bert(CONFIG), "none: an encoder alone", "yes, reads [CLS]"),
        (Bert(replace(CONFIG, pool="mean")), "none: an encoder alone", "yes, reads the mean of all states"),
        (Bert(CONFIG, pooler=False), "none: an encoder alone", "no"),
    ],
)
def test_what_a_folder_holds(tmp_path: Path, model: Bert | BertForPretraining, heads: str, pooler: str):
    save_model(model, tmp_path)
    said = dict(info.describe(tmp_path))
    assert said["model"] == "BERT of its own size: 3 layers, 10 wide, 2 heads"
    assert said["heads"] == heads
    assert said["pooler"] == pooler
    assert said["reads"] == "17 tokens at most, 2 segments"
    assert "has no tokenizer" in said["tokenizer"]
    assert "trained on" not in said


def test_an_encoder_within_a_folder(tmp_path: Path):
    save_model(Bert(CONFIG), tmp_path / "0_Transformer")
    wordpiece.save(wordpiece.train(lambda: ["a cat and a dog sat"] * 3, 23), tmp_path / "0_Transformer")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}', encoding="utf-8")
    modules = [{"type": "x.Transformer", "path": "0_Transformer"}, {"type": "x.Pooling", "path": "1_Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    said = dict(info.describe(tmp_path))
    assert said["model"] == "BERT of its own size: 3 layers, 10 wide, 2 heads"
    assert said["tokenizer"].startswith("23 tokens")


def test_parameters_by_hand(tmp_path: Path):
    save_model(Bert(CONFIG), tmp_path)
    embeddings = (61 + 17 + 2) * 10 + 2 * 10
    layer = 4 * (10 * 10 + 10) + (10 * 13 + 13) + (13 * 10 + 10) + 2 * 2 * 10
    pooler = 10 * 10 + 10
    assert embeddings + 3 * layer + pooler == 3219
    assert dict(info.describe(tmp_path))["parameters"] == "3,219"


def test_a_published_size_is_known_by_its_name(tmp_path: Path):
    save_model(Bert(TINY), tmp_path)
    assert dict(info.describe(tmp_path))["model"] == "BERT tiny: 2 layers, 128 wide, 2 heads"


def test_how_a_folder_was_made(tmp_path: Path):
    save_model(BertForPretraining(CONFIG), tmp_path)
    wordpiece.save(wordpiece.train(lambda: ["a cat and a dog sat"] * 3, 23, cased=True), tmp_path)
    report(tmp_path, REPORTS)
    made = 'corpus = ["one.txt", "two.txt"]\nstart_from = "base"\n[made]\nheedful = "1.2"\n'
    (tmp_path / "heedful.toml").write_text(made, encoding="utf-8")
    said = dict(info.describe(tmp_path))
    assert said["tokenizer"] == "23 tokens, cased"
    assert said["trained on"] == "one.txt, two.txt"
    assert said["started from"] == "base"
    assert said["steps"] == "2, 202 tokens"
    assert said["held out"] == "loss 4.750  words 12.5%"
    assert said["made with"] == "heedful 1.2"


def test_an_unfinished_run(tmp_path: Path):
    (tmp_path / "heedful.toml").write_text('corpus = ["one.txt"]\n', encoding="utf-8")
    said = dict(info.describe(tmp_path))
    assert said["run"] == "unfinished, no checkpoint yet"
    assert said["go on with"] == f"heedful pretrain --resume --out {tmp_path}"
    assert said["trained on"] == "one.txt"
    for step in ("step-00000002", "step-00000011"):
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
    assert dict(info.describe(tmp_path))["run"] == "unfinished, last checkpoint step-00000011"
    (tmp_path / "checkpoints" / "step-00000011" / "state.json").write_text('{"ranks": 2}', encoding="utf-8")
    said = dict(info.describe(tmp_path))["go on with"]
    assert said == f"torchrun --nproc-per-node 2 -m heedful pretrain --resume --out {tmp_path}"
    with alone(tmp_path):
        said = dict(info.describe(tmp_path))
    assert said["run"] == "going on, last checkpoint step-00000011"
    assert "go on with" not in said


def test_no_folder_to_describe(tmp_path: Path):
    with pytest.raises(UserError, match="nowhere is not a model folder: there is no such folder"):
        info.describe(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"is not a model folder: it has no config\.json"):
        info.describe(tmp_path)


@pytest.mark.usefixtures("no_gpu")
def test_the_doctor_on_a_machine_without_a_gpu():
    said = dict(doctor.examine())
    assert said["heedful"] == heedful.__version__
    assert said["torch"] == torch.__version__
    assert said["precision"].startswith("fp32 ")
    assert said["GPU"].startswith("none used: ")
    assert re.search(r"[1-9]\d* cores for us", said["processor"])
    assert re.fullmatch(r"\d+\.\d GiB, \d+\.\d free", said["memory"])
    assert re.match(r"\d+ GiB free for prepared text in /", said["disk"])
    assert all(text for text in said.values())


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        doctor, "OPTIONAL", {"no_such_package": ("wonders", "pip install wonders"), "torch": ("x", "y")}
    )
    said = doctor.examine()
    assert ("no_such_package", "missing: wonders; pip install wonders") in said
    assert ("torch", "installed: x") in said


@pytest.mark.usefixtures("no_gpu")
def test_a_machine_without_a_gpu():
    cpu = Compute(torch.device("cpu"), torch.float32)
    assert choose("auto", "auto") == choose("cpu", "auto") == choose("auto", "fp32") == cpu
    with pytest.raises(UserError, match="no CUDA GPU can be used here; `heedful doctor` says why, --device cpu"):
        choose("cuda", "auto")
    for device in ("auto", "cpu"):
        with pytest.raises(UserError, match=r"bf16 is for GPUs: .* leave --precision out"):
            choose(device, "bf16")


def test_a_machine_with_a_gpu(gpu: bool):
    best = torch.bfloat16 if gpu else torch.float32
    assert choose("auto", "auto", local_rank=3) == Compute(torch.device("cuda", 3), best)
    assert choose("cuda", "fp32") == Compute(torch.device("cuda", 0), torch.float32)
    assert choose("cpu", "auto") == Compute(torch.device("cpu"), torch.float32)
    with pytest.raises(UserError, match="bf16 is for GPUs"):
        choose("cpu", "bf16")
    if gpu:
        assert choose("cuda", "bf16").dtype is torch.bfloat16
    else:
        with pytest.raises(UserError, match="Old Card has no bf16; use --precision fp32"):
            choose("cuda", "bf16")


def test_only_half_precision_changes_how_products_are_computed():
    x = torch.ones(2, 3)
    with Compute(torch.device("cpu"), torch.float32).autocast():
        assert (x @ x.T).dtype is torch.float32
    assert not Compute(torch.device("cpu"), torch.float32).autocast()._enabled
    assert Compute(torch.device("cpu"), torch.bfloat16).autocast()._enabled


def test_curves_that_can_not_be_drawn(tmp_path: Path):
    report(tmp_path, REPORTS)
    for name in ("curves.foo", "curves"):
        with pytest.raises(UserError, match=r"can't be drawn; let its name end in \.png, \.svg, \.pdf"):
            pictures.curves(tmp_path, tmp_path / name)
        assert not (tmp_path / name).exists()
    report(tmp_path, [{"kind": "train", "step": 1, "joy": 0.5}])
    with pytest.raises(UserError, match=r"has no reports of a kind that is known here \(mlm_loss, "):
        pictures.curves(tmp_path, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def test_a_confusion_is_drawn_with_its_counts(tmp_path: Path, drawn: list[Figure]):
    matrix = np.array([[3, 1, 0], [0, 0, 0], [7, 0, 1234567]])
    pictures.confusion(matrix, ["bad", "so so", "good"], tmp_path / "confusion.png")
    assert_drawn(tmp_path / "confusion.png", 110 * (3 * 0.9 + 1.2 + 5 * 0.09))
    assert not pictures.plt.get_fignums()
    axis = drawn[0].axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("predicted", "truth")
    for ticks in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == ["bad", "so so", "good"]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(column, row): str(matrix[row, column]) for row in range(3) for column in range(3)}
    shades = axis.images[0].get_array()
    assert shades is not None
    np.testing.assert_allclose(shades, [[3 / 4, 1 / 4, 0], [0, 0, 0], [7 / 1234574, 0, 1234567 / 1234574]])
    colours = {text.get_text(): text.get_color() for text in axis.texts}
    assert colours == {"3": "white", "1": "black", "0": "0.75", "7": "black", "1234567": "white"}


@pytest.mark.parametrize(("size", "largest"), [(2, 7), (11, 99999), (50, 1234)])
def test_counts_and_names_of_a_confusion_stay_in_their_place(
    tmp_path: Path, drawn: list[Figure], size: int, largest: int
):
    labels = [f"{number} has a name that goes on and on" for number in range(size)]
    pictures.confusion(np.full((size, size), largest), labels, tmp_path / "confusion.png")
    axis = drawn[0].axes[0]
    width = axis.get_window_extent().width / size
    assert all(text.get_window_extent().width < width for text in axis.texts[:1])
    assert all(text.get_fontsize() >= 5 for text in axis.texts[:1])
    names = axis.get_xticklabels()
    assert max(len(name.get_text()) for name in names) == 24
    edges = [edge for name in names for edge in name.get_window_extent().intervalx]
    assert edges == sorted(edges)  # no name lies over the next
    assert min(name.get_window_extent().y0 for name in names) >= 0
    assert min(name.get_window_extent().x0 for name in axis.get_yticklabels()) >= 0


def test_beyond_many_labels_shades_alone_are_drawn(tmp_path: Path, drawn: list[Figure]):
    pictures.confusion(np.eye(151, dtype=int), [str(number) for number in range(151)], tmp_path / "confusion.png")
    axis = drawn[0].axes[0]
    assert not axis.texts
    assert [name.get_text() for name in axis.get_xticklabels()] == [str(number) for number in range(0, 151, 3)]
    assert axis.get_xticks().tolist() == [*range(0, 151, 3)]
    assert drawn[0].get_size_inches().max() < 25


def test_a_label_of_two_lines_is_named_on_one(tmp_path: Path, drawn: list[Figure]):
    pictures.confusion(np.eye(2, dtype=int), ["one", "two\n lines "], tmp_path / "confusion.png")
    assert [name.get_text() for name in drawn[0].axes[0].get_yticklabels()] == ["one", "two lines"]


@pytest.mark.parametrize("labels", [["긍정", "부정"], ["$\\frac$", "a_b^c$"], ["", "two\nlines"], ["\ue000", "👍"]])
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_no_label_breaks_a_confusion(tmp_path: Path, labels: list[str], ending: str):
    pictures.confusion(np.array([[1, 2], [3, 4]]), labels, tmp_path / f"confusion.{ending}")
    assert (tmp_path / f"confusion.{ending}").stat().st_size > 1000


def test_confusions_that_can_not_be_drawn(tmp_path: Path):
    with pytest.raises(UserError, match=r"can't be drawn; let its name end in \.png, \.svg, \.pdf"):
        pictures.confusion(np.eye(2, dtype=int), ["a", "b"], tmp_path / "confusion.txt")
    with pytest.raises(ValueError, match=r"must have shape \(3, 3\); got \(2, 2\)"):
        pictures.confusion(np.eye(2, dtype=int), ["a", "b", "c"], tmp_path / "confusion.png")
