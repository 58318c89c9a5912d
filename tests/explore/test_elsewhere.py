"""Folders that others made: a Marian with sentencepiece vocabularies, a ViT and a BERT as transformers saves them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import transformers

import heedful
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import Tokenizer
from heedful.explore.beams import watch
from heedful.explore.images import look
from heedful.explore.texts import traced
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.translator import Translator

WORDS = ["the", "river", "mill", "baker", "bridge", "runs", "café", "ﬁsh", "강가에", "오래된", "다리를"]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("marian")
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 7))) for _ in range(301)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(folder / "source"), vocab_size=97, model_type="unigram",
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )  # fmt: skip
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    peer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [peer.id_to_piece(number) for number in range(3, peer.get_piece_size())]
    vocabulary = ["</s>", "<unk>", *pieces, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(vocabulary)}))
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
             (("layers", 2), ("attention_heads", 2), ("ffn_dim", 37))}  # fmt: skip
    torch.manual_seed(5)
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary), d_model=28, **sizes, pad_token_id=len(vocabulary) - 1, eos_token_id=0,
        decoder_start_token_id=len(vocabulary) - 1, max_position_embeddings=41, init_std=0.3,
        scale_embedding=True,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(folder)
    return heedful.load(folder, "cpu")


@torch.no_grad()
def test_a_marian_is_traced_and_searched_as_it_translates(marian: Translator):
    text = "the café  runs ﬁsh 강가에"
    trace = traced(marian, text, "the river")
    shown = ["" if one.start is None else text[one.start : one.end] for one in trace.tokens]
    assert "".join(shown) == text.replace(" ", "")
    searcher = marian.searcher
    model = searcher.models[0]  # pyrefly: ignore
    source, target = (torch.tensor([[one.id for one in side]]) for side in (trace.tokens, trace.target))
    expected = model.states(source, torch.ones_like(source, dtype=torch.bool), target)[0]
    torch.testing.assert_close(trace.states, expected, atol=1e-5, rtol=0)
    assert target[0, 0] == model.config.sos == model.config.pad
    found = watch(marian, text, beams=3)
    (best,) = marian.n_best([text], beam=3, n_best=3)
    assert [one.text for one in found.translations] == [one.text for one in best]
    assert [one.score for one in found.translations] == pytest.approx([one.score for one in best])


@torch.no_grad()
def test_a_bert_of_transformers_has_the_attention_that_it_has_there(small_words: Tokenizer, tmp_path: Path):
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=small_words.vocab_size, hidden_size=28, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=37, max_position_embeddings=41, initializer_range=0.3, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path)
    wordpiece.save(small_words, tmp_path, 41)
    trace = traced(heedful.load(tmp_path, "cpu"), "the animal was tired.", "it sat by the river")
    ids = torch.tensor([[one.id for one in trace.tokens]])
    segments = torch.tensor([[one.segment for one in trace.tokens]])
    out = theirs.bert(ids, token_type_ids=segments, output_attentions=True)
    for site, weights in zip(trace.parts["encoder"], out.attentions, strict=True):
        np.testing.assert_allclose(site.weights(), weights[0].numpy(), atol=1e-5)
    torch.testing.assert_close(trace.states, out.last_hidden_state[0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_vit_of_transformers_looks_where_it_looks_there(tmp_path: Path, image_file: Path):
    torch.manual_seed(7)
    config = transformers.ViTConfig(
        image_size=15, patch_size=5, hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=31,
        initializer_range=0.3, id2label={0: "cat", 1: "dog", 2: "owl"}, label2id={"cat": 0, "dog": 1, "owl": 2},
        attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    processor = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": 15, "width": 15}, "do_resize": True,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "resample": 2,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    predictor = heedful.load(tmp_path, "cpu")
    assert isinstance(predictor.engine, TorchImageEngine)
    found = look(predictor, predictor.engine, image_file.read_bytes())
    pixels = torch.from_numpy(found.picture.copy()).permute(2, 0, 1)[None] / 255 * 2 - 1
    out = theirs(pixels, output_attentions=True)
    np.testing.assert_allclose(found.scores, out.logits[0].numpy(), atol=1e-5)
    for rows, weights in zip(found.weights, out.attentions, strict=True):
        np.testing.assert_allclose(rows, weights[0, :, 0, 1:].numpy(), atol=1e-5)
