"""Train the library fastText for ``topics/learned_keys.py``: JSON from stdin, JSON to stdout.

This runs with an interpreter of its own, since fastText may need another version of NumPy.
"""

import json
import sys
import tempfile
from time import perf_counter, process_time
from typing import Any

import fasttext


def classes(task: dict[str, Any]) -> dict[str, Any]:
    """Learn from texts with classes; return the predictions for queries, and the seconds of CPU time."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"__label__{y} {text}\n" for text, y in zip(task["texts"], task["labels"], strict=True))
        file.flush()
        start = process_time()
        model = fasttext.train_supervised(file.name, thread=1, verbose=0, **task["options"])
        learned = process_time() - start
    model.predict(task["queries"][:2])
    start = process_time()
    found = [model.predict(query)[0] for query in task["queries"]]
    asked = process_time() - start
    answers = [int(labels[0].removeprefix("__label__")) if labels else -1 for labels in found]
    return {"answers": answers, "learned": learned, "asked": asked}


def vectors(task: dict[str, Any]) -> dict[str, Any]:
    """Learn from a file of texts; return the vectors of words, which words were learned, and analogies."""
    started, start = perf_counter(), process_time()
    model = fasttext.train_unsupervised(task["corpus"], verbose=0, **task["options"])
    seconds, processor = perf_counter() - started, process_time() - start
    learned = set(model.words)
    questions = [asked if all(word in learned for word in asked) else None for asked in task["analogies"]]
    return {
        "seconds": seconds,
        "processor": processor,
        "vectors": {word: model.get_word_vector(word).tolist() for word in task["words"]},
        "learned": sorted(learned.intersection(task["words"])),
        "analogies": [asked and model.get_analogies(asked[1], asked[0], asked[2], k=1)[0][1] for asked in questions],
    }


if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump(vectors(given) if "corpus" in given else classes(given), sys.stdout)
