"""Train the library fastText on texts with classes, for ``compare_keys.py``: JSON from stdin, JSON to stdout.

It runs with an interpreter of its own, since fastText may need another NumPy.
"""

import json
import sys
import tempfile
from time import process_time

import fasttext


def main() -> None:
    """Learn, answer, and print the answers with the seconds of processor time."""
    task = json.load(sys.stdin)
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
    json.dump({"answers": answers, "learned": learned, "asked": asked}, sys.stdout)


if __name__ == "__main__":
    main()
