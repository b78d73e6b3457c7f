"""Data files in text formats for fuzzing: the first byte selects the format, the rest is the file."""

from pathlib import Path

from cmt_numba.formats import FormatError, ReadOptions, open_data

FORMATS = ("svmlight", "xc", "vw", "csv", "jsonl")
TASKS = (None, "multiclass", "multilabel")

EXAMPLES = [
    bytes([which]) + text
    for which, text in (
        (0, b"7 12:1 40:0.5\n3 qid:4 1:1e-3 # note\n"),
        (10, b"1,2 3:1 4:2\n 5:1\n3 1:.5 2:-1\n"),
        (1, b"2 5 4\n0,3 0:1 4:0.5\n1 2:1\n"),
        (2, b"1 2.0 'tag| a b:2 |name:0.5 c d:.5\n-1 | e\n"),
        (12, b"3,4 |x y:3\n |x z\n"),
        (4, b'{"x": 1, "label": "a"}\n{"x": 2.5, "label": "b"}\n'),
        (14, b'{"x": [1, 2], "label": [3, 4]}\n\n{"x": [0, 1], "label": []}\n'),
        (3, b'label,one,two\na,1,0.5\nb,2,-1\n"c,d",3,4\n'),
    )
]


def read_text(path: Path, data: bytes) -> int:
    """Read a file, and return its number of rows, or -1 if the reader refused it."""
    if not data:
        return -1
    path.write_bytes(data[1:])
    chosen, task = FORMATS[data[0] % len(FORMATS)], TASKS[data[0] // len(FORMATS) % len(TASKS)]
    try:
        source = open_data(path, ReadOptions(format=chosen, task=task))
        return sum(batch.X.shape[0] for batch in source.batches(100))
    except FormatError:
        return -1
