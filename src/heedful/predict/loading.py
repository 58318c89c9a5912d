"""A model folder becomes something to ask: a predictor, a translator, or a classifier of images."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from heedful.data import tokenizer as wordpiece
from heedful.data.bitext import Marks
from heedful.data.sentencepiece import Vocabulary
from heedful.data.vocabularies import load_vocabularies
from heedful.errors import UserError
from heedful.formats import translators, vit
from heedful.formats.documents import read_document, require_folder
from heedful.formats.huggingface import load_model
from heedful.formats.sentence_transformers import read_pooling
from heedful.models.heads import BertForTask
from heedful.models.rnn import Rnn
from heedful.models.vit import ViTClassifier
from heedful.nn import gpus
from heedful.predict.engine import Engine, TorchEngine
from heedful.predict.image_engine import ImageEngine, OnnxImageEngine, TorchImageEngine
from heedful.predict.images import ImagePredictor
from heedful.predict.predictor import Predictor
from heedful.predict.searching import Searcher, TorchSearcher
from heedful.predict.translator import Translator
from heedful.tasks.translation import Translating
from heedful.wording import counted

EngineName = Literal["torch", "onnx", "ctranslate2"]
Precision = Literal["auto", "fp32", "fp16", "bf16"]
Folder = str | Path
Device = str | torch.device

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
FAST_HALF = (7, 0)
"""GPUs from this kind on (Volta, 2017) multiply in half precision much faster than in full."""


def load(
    folder: Folder | Sequence[Folder],
    device: Device = "auto",
    *,
    precision: Precision = "auto",
    engine: EngineName = "torch",
    int8: bool = False,
) -> Any:
    """What a model folder can be asked with: a `Translator` if its model translates, an `ImagePredictor` if it
    classifies images, else a `Predictor`.

    It computes with torch, on the GPU where there is one, there in fp16 unless told otherwise; or with the engine
    that `heedful export` wrote for. Several folders of translators decide together.
    """
    folders = _folders(folder)
    if len(folders) > 1 or translates(folders[0]):
        return load_translator(folders, device, precision=precision, engine=engine, int8=int8)
    loader = load_images if sees(folders[0]) else load_predictor
    return loader(folders[0], device, precision=precision, engine=engine, int8=int8)


def translates(folder: Path) -> bool:
    """Whether a folder holds a model that translates."""
    return _type(folder) in translators.LOADERS


def sees(folder: Path) -> bool:
    """Whether a folder holds a model that reads images."""
    return _type(folder) in vit.TYPES


def _type(folder: Path) -> str | None:
    require_folder(folder)
    return read_document(folder).get("model_type") if (folder / "config.json").is_file() else None


def require_texts(folder: Path) -> None:
    """Refuse the folder of a model that is not asked by texts alone."""
    if translates(folder):
        raise UserError(f"{folder} translates; use `heedful translate`, in Python heedful.load")
    if sees(folder):
        raise UserError(f"{folder} reads images, not texts; use `heedful see`, in Python heedful.load")


def load_predictor(
    folder: Folder,
    device: Device = "auto",
    *,
    precision: Precision = "auto",
    engine: EngineName = "torch",
    int8: bool = False,
) -> Predictor:
    """The predictor in the folder of an encoder."""
    device = _known(device, precision, engine)
    folder = Path(folder)
    require_texts(folder)
    if engine == "ctranslate2":
        raise UserError(f"the engine ctranslate2 is for translators; for {folder} there are torch and onnx")
    _int8_of_onnx(engine, int8)
    _only_torch(engine, precision, device)
    inner, pooling = read_pooling(folder)
    if engine == "onnx":
        from heedful.predict.onnx import OnnxEngine

        computing: Engine = OnnxEngine(inner, int8=int8)
    else:
        model = load_model(inner).to(*_place(device, precision))
        if isinstance(model, BertForTask):
            model.exact()
        computing = TorchEngine(model)
    return Predictor(computing, wordpiece.load(inner), str(folder), pooling)


def load_translator(
    folder: Folder | Sequence[Folder],
    device: Device = "auto",
    *,
    precision: Precision = "auto",
    engine: EngineName = "torch",
    int8: bool = False,
) -> Translator:
    """The translator in a folder, or the one that several make together: they need one vocabulary."""
    device = _known(device, precision, engine)
    folders = _folders(folder)
    for one in folders:
        if not translates(one):
            kind = read_document(one).get("model_type")
            ask = "`heedful see`" if sees(one) else "`heedful predict`, `fill` or `embed`"
            raise UserError(f"{one} does not translate, it is a model of type {kind!r}; ask it with {ask}")
    if engine == "onnx":
        raise UserError(f"the engine onnx is for encoders; for {folders[0]} there are torch and ctranslate2")
    if int8 and engine != "ctranslate2":
        raise UserError(
            "int8 is for the ctranslate2 engine; ask for that too (--engine ctranslate2, in Python "
            "engine='ctranslate2')"
        )
    _only_torch(engine, precision, device)
    source, target = _shared_vocabularies(folders)
    searcher: Searcher
    if engine == "ctranslate2":
        from heedful.predict.ctranslate2 import CTranslate2Searcher, find

        if len(folders) > 1:
            raise UserError("ctranslate2 runs one model, not an ensemble; use the engine torch")
        searcher = CTranslate2Searcher(find(folders[0], int8=int8), source, target, device)
    else:
        models = [_model(one, source, target).to(*_place(device, precision)) for one in folders]
        if precision == "bf16" and any(isinstance(one, Rnn) for one in models):
            raise UserError("a GPU runs recurrent networks in fp16 or fp32, not in bf16; leave --precision out")
        searcher = TorchSearcher(models, _marks(folders, models), never(models[0], target))
    return Translator(searcher, source, target, ", ".join(map(str, folders)))


def load_images(
    folder: Folder,
    device: Device = "auto",
    *,
    precision: Precision = "auto",
    engine: EngineName = "torch",
    int8: bool = False,
) -> ImagePredictor:
    """The classifier of images in a folder."""
    device = _known(device, precision, engine)
    folder = Path(folder)
    if not sees(folder):
        kind = read_document(folder).get("model_type")
        ask = "`heedful translate`" if translates(folder) else "`heedful predict`, `fill` or `embed`"
        raise UserError(f"{folder} reads texts, not images, it is a model of type {kind!r}; ask it with {ask}")
    if engine == "ctranslate2":
        raise UserError(f"the engine ctranslate2 is for translators; for {folder} there are torch and onnx")
    _int8_of_onnx(engine, int8)
    _only_torch(engine, precision, device)
    if engine == "onnx":
        computing: ImageEngine = OnnxImageEngine(folder, int8=int8)
    else:
        model = vit.load_vit(folder)
        if not isinstance(model, ViTClassifier):
            raise UserError(
                f"{folder} is an encoder of images without a head, so it knows no classes; "
                "train one with `heedful train-vision DATA --out FOLDER`"
            )
        computing = TorchImageEngine(model.to(*_place(device, precision)))
    return ImagePredictor(computing, str(folder))


def never(model: Translating, target: Vocabulary) -> list[int]:
    """What a model must not write: padding, the start, what stands for the unknown, and ids without a piece."""
    config = model.config
    unnamed = range(target.vocab_size, config.target_size)
    return sorted({config.pad, config.sos, target.unk, *unnamed} - {config.eos})


def _model(folder: Path, source: Vocabulary, target: Vocabulary) -> Translating:
    model = translators.load_translator(folder)
    config = model.config
    for side, vocabulary, size in (("source", source, config.vocab_size), ("target", target, config.target_size)):
        if vocabulary.vocab_size > size:
            raise UserError(
                f"{folder}: its {side} vocabulary has {vocabulary.vocab_size:,} tokens but the model only "
                f"{size:,}; they do not belong together"
            )
        if vocabulary.eos != config.eos:
            raise UserError(
                f"{folder}: a sentence ends with {vocabulary.eos} in its {side} vocabulary but with {config.eos} "
                "in the model; they do not belong together"
            )
    return model


def _marks(folders: Sequence[Path], models: Sequence[Translating]) -> Marks:
    found = [Marks(model.config.pad, model.config.sos, model.config.eos) for model in models]
    for folder, marks in zip(folders, found, strict=True):
        if marks != found[0]:
            raise UserError(
                f"an ensemble starts and ends sentences in one way: {folders[0]} has the ids {tuple(found[0])} for "
                f"padding, start and end, {folder} has {tuple(marks)}"
            )
    return found[0]


def _shared_vocabularies(folders: Sequence[Path]) -> tuple[Vocabulary, Vocabulary]:
    found = [load_vocabularies(one, sos=read_document(one).get("decoder_start_token_id")) for one in folders]
    prints = [tuple(one.fingerprint for one in pair) for pair in found]
    for folder, one in zip(folders, prints, strict=True):
        if one != prints[0]:
            raise UserError(f"an ensemble needs one vocabulary: {folders[0]} and {folder} have different ones")
    return found[0]


def _known(device: Device, precision: str, engine: str) -> str:
    """The device by its name; what is none of the choices is refused.

    Who types them is told by the command line, who writes Python here.
    """
    for name, given, known in (("precision", precision, Precision), ("engine", engine, EngineName)):
        if given not in get_args(known):
            raise UserError(f"{name} {given!r} is unknown; there are {', '.join(get_args(known))}")
    name = str(device)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UserError(f"device {name!r} is unknown; there are auto, cpu, cuda, cuda:N")
    return name


def _folders(folder: Folder | Sequence[Folder]) -> list[Path]:
    given = folder if isinstance(folder, Sequence) and not isinstance(folder, str) else [folder]
    if not given:
        raise UserError("there is no folder to load; name at least one")
    for one in given:
        if not isinstance(one, str | Path):
            raise UserError(f"{one!r:.60} is not a folder; give its path")
    return [Path(one) for one in given]


def _int8_of_onnx(engine: EngineName, int8: bool) -> None:
    if int8 and engine != "onnx":
        raise UserError("int8 is for the onnx engine; ask for that too (--engine onnx, in Python engine='onnx')")


def _only_torch(engine: EngineName, precision: Precision, device: str) -> None:
    if engine != "torch" and precision != "auto":
        raise UserError(f"the engine {engine} computes as it was exported; leave precision out")
    if engine == "onnx" and device.startswith("cuda"):
        raise UserError(f"the engine onnx computes on the CPU, not on {device}; leave the device out")


def _place(device: str, precision: Precision) -> tuple[str, torch.dtype]:
    """Where to compute and in what type: fp16 on a GPU, where it is as good as fp32 to three digits, else fp32."""
    if device.startswith("cuda") and not gpus.usable():
        raise UserError(gpus.none_usable("the device cpu does without"))
    if device == "cpu" or not gpus.usable():
        if precision in ("fp16", "bf16"):
            raise UserError(f"{precision} is for GPUs: a CPU is slower with it, and some die of it; leave it out")
        if device == "auto" and (why := gpus.why_not()):
            warnings.warn(f"no GPU is used: {why}", stacklevel=2)
        return "cpu", torch.float32
    device = "cuda" if device == "auto" else device
    count = torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= count:
        raise UserError(f"there is no {device}: this machine has {counted(count, 'GPU')}, the first of them cuda:0")
    with torch.cuda.device(device):
        if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise UserError(f"{torch.cuda.get_device_name()} has no bf16; use fp16 or fp32")
        if precision == "auto":
            precision = "fp16" if torch.cuda.get_device_capability() >= FAST_HALF else "fp32"
    return device, DTYPES[precision]
