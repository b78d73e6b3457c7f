"""The odds that rewards depend on memories, computed reward by reward."""

import math
from collections import defaultdict

Row = tuple[list[int], list[float], list[float]]  # ids, where -1 stands for none; scores; rewards of the first memories


def log_odds_of(rows: list[Row]) -> float:
    """Return the logarithm of the odds after all rows."""
    n, squares, products, lengths = 0.0, 0.0, [0.0, 0.0], [0.0, 0.0]
    earlier: dict[int, list[float]] = defaultdict(list)
    means, n_single = [0.0, 0.0, 0.0], 0
    for ids, scores, rewards in rows:
        found = [i for i in range(len(rewards)) if ids[i] >= 0]
        table = [[rewards[i], scores[i], sum(earlier[ids[i]]) / (len(earlier[ids[i]]) + 1)] for i in found]
        if len(rewards) == 1 and found:
            table[0][1] = scores[0] - scores[1] if len(ids) > 1 and ids[1] >= 0 else means[1]
            n_single += 1
            means = [mean + (now - mean) / min(n_single, 100) for mean, now in zip(means, table[0], strict=True)]
            centers = means
        elif len(found) > 1:
            centers = [sum(column) / len(found) for column in zip(*table, strict=True)]
        else:
            continue
        freedom = max(1, len(found) - 1)
        fade = 0.999**freedom
        n, squares = n * fade + freedom, squares * fade
        products, lengths = [p * fade for p in products], [p * fade for p in lengths]
        for i, row in zip(found, table, strict=True):
            advantage, *predictors = (value - center for value, center in zip(row, centers, strict=True))
            squares += advantage**2
            products = [p + advantage * x for p, x in zip(products, predictors, strict=True)]
            lengths = [p + x * x for p, x in zip(lengths, predictors, strict=True)]
            earlier[ids[i]].append(advantage)
    variance = (squares + 0.25) / (n + 1)
    explained = sum(p**2 / (length * variance) for p, length in zip(products, lengths, strict=True) if p > 0)
    return explained / 2 * n / (n + 10) - math.log(1 + n / 10) - math.log(20)
