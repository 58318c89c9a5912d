"""Fine-tuning as a user of `transformers` writes it: the baseline that our own fine-tuning is measured against.

    python -m bench.plain_finetune --model FOLDER --task classify --train FILE [FILE …] --dev FILE --test FILE \
        --out result.json [--epochs 3] [--batch 32] [--lr 5e-5] [--seed 0] [--device cuda]
    python -m bench.plain_finetune --model FOLDER --task answer --train FILE [FILE …] --steps 100 [--device cuda]

The script follows the `no_trainer` examples of `transformers`: everything is tokenised beforehand, batches are
shuffled and padded to their longest, AdamW runs under a linear schedule with warm-up, in fp32 on the CPU and under
bf16 autocast on a GPU. The epoch with the best dev score predicts the test file. The script knows nothing of
heedful and doesn't score the test file: it writes predictions, and whoever compares two sides scores both alike.

With --steps it only measures speed, over the second half of that many steps. An example is a row of the file; for
`answer` it is a window of a context, of which a long context has several.
"""

import argparse
import json
import lzma
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader, Dataset

Row = dict[str, Any]
"""One example: its text under names that the task knows, and its right answer under "gold"."""
Inputs = list[dict[str, Any]]
"""What the model is given, one dictionary of lists a sequence, not yet padded."""
Encoded = tuple[Inputs, list[Any]]
"""Inputs, and for each what it takes to read an answer off the model's output."""

STRIDE, BEST, LONGEST_ANSWER = 128, 20, 30  # the examples' own choices for question answering


def lines(path: str) -> Iterator[str]:
    """A file's lines, plain or .xz; only a line feed ends one, whatever else Unicode calls a line end."""
    opened = lzma.open if path.endswith(".xz") else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n")


def read_table(path: str) -> list[Row]:
    """Rows of a tab-separated file without quoting: one text or two, and a label or score if there is one."""
    found = lines(path)
    header = next(found).split("\t")
    columns = ["sentence"] if "sentence" in header else ["sentence1", "sentence2"]
    if not set(columns) <= set(header):
        raise SystemExit(f"{path} has the columns {header}; it needs sentence, or sentence1 and sentence2")
    table = [dict(zip(header, line.split("\t"), strict=True)) for line in found if line]
    return [
        {"texts": [row[column] for column in columns], "gold": row.get("label", row.get("score"))} for row in table
    ]


def read_tagged(path: str) -> list[Row]:
    """Sentences of a CoNLL file: a word, a tab and its tag on a line, an empty line after each sentence."""
    rows: list[Row] = []
    pairs: list[list[str]] = []
    for line in chain(lines(path), [""]):
        if line:
            pairs.append(line.split("\t"))
        elif pairs:
            rows.append({"words": [pair[0] for pair in pairs], "gold": [pair[-1] for pair in pairs]})
            pairs = []
    return rows


def read_questions(path: str) -> list[Row]:
    """Questions of SQuAD 1.1 as JSON lines; any of the annotators' answers is right."""
    rows = [json.loads(line) for line in lines(path) if line]
    return [{**row, "gold": row["answers"]["text"]} for row in rows]


def labels_of(rows: list[Row], task: str) -> list[str]:
    """The labels or tags in a fixed order; whole numbers in theirs. The other tasks have none."""
    if task not in ("classify", "tag"):
        return []
    found = {label for row in rows for label in (row["gold"] if task == "tag" else [row["gold"]])}
    return sorted(found, key=int if all(re.fullmatch(r"-?\d+", label) for label in found) else str)


def listed(encoded: Any) -> Inputs:
    """A tokenizer's columns as one dictionary a sequence, which is what collators take."""
    return [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]


def encode_texts(tokenizer: Any, rows: list[Row], labels: list[str], length: int, training: bool) -> Encoded:
    """Texts or pairs of texts; with labels one of them is to be chosen, without a number is to be given."""
    columns = [list(column) for column in zip(*(row["texts"] for row in rows), strict=True)]
    inputs = listed(tokenizer(*columns, truncation=True, max_length=length))
    if training:
        index = {label: number for number, label in enumerate(labels)}
        for item, row in zip(inputs, rows, strict=True):
            item["labels"] = index[row["gold"]] if labels else float(row["gold"])
    return inputs, []


def decode_texts(rows: list[Row], labels: list[str], places: list[Any], logits: list[np.ndarray]) -> list[Any]:
    del rows, places
    return [labels[scores.argmax()] if labels else float(scores[0]) for scores in logits]


def encode_words(tokenizer: Any, rows: list[Row], labels: list[str], length: int, training: bool) -> Encoded:
    """Sentences of words, and for each sentence where the first piece of each word stands: that one is labelled."""
    words = [row["words"] for row in rows]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    inputs, places = listed(encoded), []
    for number in range(len(rows)):
        pieces = reversed(list(enumerate(encoded.word_ids(number))))
        places.append({word: place for place, word in pieces if word is not None})
    if training:
        index = {label: number for number, label in enumerate(labels)}
        for item, row, firsts in zip(inputs, rows, places, strict=True):
            item["labels"] = [-100] * len(item["input_ids"])
            for word, place in firsts.items():
                item["labels"][place] = index[row["gold"][word]]
    return inputs, places


def decode_words(rows: list[Row], labels: list[str], places: list[Any], logits: list[np.ndarray]) -> list[Any]:
    """A tag for each word; one that truncation cut off is O."""
    tags = []
    for row, firsts, scores in zip(rows, places, logits, strict=True):
        best = scores.argmax(-1)
        tags.append([labels[best[firsts[word]]] if word in firsts else "O" for word in range(len(row["words"]))])
    return tags


def encode_questions(tokenizer: Any, rows: list[Row], labels: list[str], length: int, training: bool) -> Encoded:
    """Overlapping windows; for each its question, which pieces are context, and their characters."""
    del labels
    encoded = tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=length,
        stride=min(STRIDE, length // 3),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    owners, offsets = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
    inputs, places = listed(encoded), []
    for number, owner in enumerate(owners):
        inside = np.array([part == 1 for part in encoded.sequence_ids(number)])
        places.append((owner, inside, np.array(offsets[number])))
    if training:
        for item, (owner, inside, characters) in zip(inputs, places, strict=True):
            answer = rows[owner]["answers"]
            begin = answer["answer_start"][0]
            end = begin + len(answer["text"][0])
            before = np.flatnonzero(inside & (characters[:, 0] <= begin))
            after = np.flatnonzero(inside & (characters[:, 1] >= end))
            whole = len(before) and len(after)  # else the window misses the answer and points at [CLS]
            item["start_positions"] = int(before[-1]) if whole else 0
            item["end_positions"] = int(after[0]) if whole else 0
    return inputs, places


def decode_questions(rows: list[Row], labels: list[str], places: list[Any], logits: list[np.ndarray]) -> list[Any]:
    """The best pair among the best starts and ends of all windows of a question."""
    del labels
    answers = [(-np.inf, "")] * len(rows)
    for (owner, inside, characters), padded in zip(places, logits, strict=True):
        scores = padded[: len(inside)]
        starts, ends = np.argsort(-scores, axis=0, kind="stable")[:BEST].T
        lengths = ends[None, :] - starts[:, None] + 1
        allowed = inside[starts][:, None] & inside[ends] & (lengths >= 1) & (lengths <= LONGEST_ANSWER)
        sums = np.where(allowed, scores[starts, 0][:, None] + scores[ends, 1], -np.inf)
        start, end = np.unravel_index(sums.argmax(), sums.shape)
        if sums[start, end] > answers[owner][0]:
            text = rows[owner]["context"][characters[starts[start], 0] : characters[ends[end], 1]]
            answers[owner] = (sums[start, end], text)
    return [text for _, text in answers]


def accuracy(gold: list[str], predicted: list[str]) -> float:
    return float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)]))


def matthews(gold: list[str], predicted: list[str]) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(gold, predicted))


def pearson(gold: list[str], predicted: list[float]) -> float:
    """The correlation; a model that says the same of everything has none."""
    x, y = np.array(gold, float), np.array(predicted, float)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else 0.0


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """Strict BIO: a span begins with B- and goes on with I- of the same kind; a stray I- belongs to none."""
    found, begin, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        if kind and tag != f"I-{kind}":
            found.add((begin, place, kind))
            kind = ""
        if tag.startswith("B-"):
            begin, kind = place, tag[2:]
    return found


def span_f1(gold: list[list[str]], predicted: list[list[str]]) -> float:
    pairs = [(spans(a), spans(b)) for a, b in zip(gold, predicted, strict=True)]
    right, total = sum(len(a & b) for a, b in pairs), sum(len(a) + len(b) for a, b in pairs)
    return 2 * right / total if total else 0.0


def answer_f1(gold: list[list[str]], predicted: list[str]) -> float:
    """SQuAD's F1: shared words, against whichever annotator agrees best."""

    def bag(text: str) -> Counter[str]:
        bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return Counter(re.sub(r"\b(a|an|the)\b", " ", bare).split())

    def f1(a: Counter[str], b: Counter[str]) -> float:
        return 2 * (a & b).total() / (a.total() + b.total()) if a and b else float(a == b)

    best = [max(f1(bag(a), bag(text)) for a in right) for right, text in zip(gold, predicted, strict=True)]
    return float(np.mean(best))


METRICS: dict[str, Callable[[list[Any], list[Any]], float]] = {
    "accuracy": accuracy,
    "matthews": matthews,
    "pearson": pearson,
    "spans": span_f1,
    "squad": answer_f1,
}


class Task(NamedTuple):
    """What differs from task to task; the training loop is the same for all."""

    read: Callable[[str], list[Row]]
    model: Any
    collator: Any
    encode: Callable[[Any, list[Row], list[str], int, bool], Encoded]
    decode: Callable[[list[Row], list[str], list[Any], list[np.ndarray]], list[Any]]
    metric: str


SEQUENCE, TOKEN = transformers.AutoModelForSequenceClassification, transformers.AutoModelForTokenClassification
SPAN = transformers.AutoModelForQuestionAnswering
PLAIN, TAGS = transformers.DataCollatorWithPadding, transformers.DataCollatorForTokenClassification
TASKS = {
    "classify": Task(read_table, SEQUENCE, PLAIN, encode_texts, decode_texts, "accuracy"),
    "regress": Task(read_table, SEQUENCE, PLAIN, encode_texts, decode_texts, "pearson"),
    "tag": Task(read_tagged, TOKEN, TAGS, encode_words, decode_words, "spans"),
    "answer": Task(read_questions, SPAN, PLAIN, encode_questions, decode_questions, "squad"),
}


def main() -> None:
    arguments = parsed()
    device, task = arguments.device, TASKS[arguments.task]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    transformers.set_seed(arguments.seed)
    rows = [row for path in arguments.train for row in task.read(path)]
    labels = labels_of(rows, arguments.task)
    outputs = {"regress": 1, "answer": 2}.get(arguments.task, len(labels))
    # Left alone, weights keep the type they were stored in; training wants fp32 whatever that was.
    model = task.model.from_pretrained(arguments.model, dtype=torch.float32, num_labels=outputs).to(device)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(arguments.model)
    length = min(arguments.length, tokenizer.model_max_length)
    collate = task.collator(tokenizer, pad_to_multiple_of=8 if device == "cuda" else None)
    inputs, _ = task.encode(tokenizer, rows, labels, length, True)
    order = torch.Generator().manual_seed(arguments.seed)
    loader = DataLoader(
        cast("Dataset", inputs),  # a list does, though the type says otherwise
        batch_size=arguments.batch,
        shuffle=True,
        collate_fn=collate,
        generator=order,
        pin_memory=device == "cuda",
    )
    steps = arguments.steps or arguments.epochs * len(loader)
    optimizer = adamw(model, arguments)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(arguments.warmup * steps), steps)

    def epoch() -> Iterator[int]:
        return train(model, loader, optimizer, schedule, arguments)

    def predictor(rows: list[Row]) -> Callable[[], list[Any]]:
        unlabelled, places = task.encode(tokenizer, rows, labels, length, False)
        return lambda: task.decode(rows, labels, places, infer(model, unlabelled, collate, device))

    scores: list[float] = []
    predictions: Any = None
    if arguments.steps:
        stream = chain.from_iterable(epoch() for _ in count())
        for _ in islice(stream, steps - steps // 2):  # the first half warms up
            pass
        begun = clock(device)
        examples = sum(islice(stream, steps // 2))
        seconds = clock(device) - begun
    else:
        dev, test = task.read(arguments.dev), task.read(arguments.test)
        predict_dev, metric = predictor(dev), arguments.metric or task.metric
        seconds, examples, best = 0.0, 0, {}
        for number in range(arguments.epochs):
            begun = clock(device)
            examples += sum(epoch())
            seconds += clock(device) - begun
            score = METRICS[metric]([row["gold"] for row in dev], predict_dev())
            if not best or score > max(scores):
                best = {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}
            scores.append(score)
            print(f"epoch {number + 1}: dev {metric} {score:.4f}", flush=True)
        model.load_state_dict(best)
        predictions = predictor(test)()
        if arguments.task == "answer":
            predictions = dict(zip((row["id"] for row in test), predictions, strict=True))
    print(f"{examples / seconds:.1f} examples/s", flush=True)
    settings = vars(arguments) | {
        "train_rows": len(rows),
        "train_examples": len(inputs),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    result = {
        "dev": scores,
        "test_predictions": predictions,
        "train_seconds": seconds,
        "examples_per_second": examples / seconds,
        "steps": steps,
        "settings": settings,
    }
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")


def parsed() -> argparse.Namespace:
    """The command line; a full run needs more of it than a run for speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder with weights and tokenizer")
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--train", required=True, nargs="+", help="files, read as one")
    parser.add_argument("--dev")
    parser.add_argument("--test")
    parser.add_argument("--out", help="where the result goes, as JSON")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of all steps")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--metric", choices=METRICS, help="what chooses the epoch, if not the task's own")
    parser.add_argument("--length", type=int, help="longest sequence; 384 for answer, else 128")
    parser.add_argument("--steps", type=int, help="only measure the speed of this many steps")
    arguments = parser.parse_args()
    arguments.length = arguments.length or (384 if arguments.task == "answer" else 128)
    if arguments.steps is None and not (arguments.dev and arguments.test and arguments.out):
        parser.error("a full run needs --dev, --test and --out; give them, or --steps to measure speed only")
    if arguments.steps is not None and arguments.steps < 2:
        parser.error(f"--steps {arguments.steps} leaves nothing to measure after warming up; give 2 or more")
    if arguments.epochs < 1:
        parser.error(f"--epochs {arguments.epochs} trains nothing; give 1 or more")
    return arguments


def adamw(model: torch.nn.Module, arguments: argparse.Namespace) -> torch.optim.AdamW:
    """AdamW without decay of biases and norms, which are the parameters of one dimension."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": arguments.decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=arguments.lr, fused=arguments.device == "cuda")


def train(
    model: Any, loader: DataLoader, optimizer: Any, schedule: Any, arguments: argparse.Namespace
) -> Iterator[int]:
    """One epoch, a step at a time; yields how many examples each step saw."""
    model.train()
    for batch in loader:
        batch = {name: value.to(arguments.device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.device == "cuda"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield len(batch["input_ids"])


@torch.inference_mode()
def infer(model: Any, inputs: Inputs, collate: Callable, device: str) -> list[np.ndarray]:
    """The logits of each sequence, in the order given; sequences of like length share a batch."""
    model.eval()
    size = 256 if device == "cuda" else 128
    order = sorted(range(len(inputs)), key=lambda number: -len(inputs[number]["input_ids"]))
    found: dict[int, np.ndarray] = {}
    for first in range(0, len(order), size):
        numbers = order[first : first + size]
        batch = {name: value.to(device) for name, value in collate([inputs[number] for number in numbers]).items()}
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            output = model(**batch)
        logits = output.logits if "logits" in output else torch.stack((output.start_logits, output.end_logits), -1)
        found |= dict(zip(numbers, logits.float().cpu().numpy(), strict=True))
    return [found[number] for number in range(len(inputs))]


def clock(device: str) -> float:
    """The time, once the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
