"""How well answers fit the truth: the right metrics for each kind of head."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.data.tagged import scheme
from heedful.metrics.answers import answer_report
from heedful.metrics.classification import Report, many, one_of
from heedful.metrics.regression import Numbers, numbers
from heedful.metrics.spans import span_report, tag_report
from heedful.models.heads import Head
from heedful.runs.dataset import targets


def measure(head: Head, examples: Sequence[Any], answers: Sequence[Any]) -> Report | Numbers:
    """The report on what a model answered."""
    match head.task:
        case "classify":
            number = {label: place for place, label in enumerate(head.labels)}
            predicted = np.array([number[one.label] for one in answers])
            return one_of(head.labels, targets(head, examples), predicted)
        case "multilabel":
            given = np.array([[label in one.labels for label in head.labels] for one in answers])
            return many(head.labels, targets(head, examples) > 0.5, given)
        case "regress":
            found = np.array([[one[label] for label in head.labels] for one in answers])
            truth = np.array([one.target for one in examples])
            return numbers(head.labels, truth, found)
        case "tag":
            truth_tags = [list(one.tags) for one in examples]
            given_tags = [one.tags for one in answers]
            kind = scheme(head.labels)
            if kind == "plain":
                return tag_report(truth_tags, given_tags, head.labels)
            return span_report(truth_tags, given_tags, kind)
    golds = [[one.text for one in example.answers or ()] for example in examples]
    return answer_report(golds, [best[0].text for best in answers])
