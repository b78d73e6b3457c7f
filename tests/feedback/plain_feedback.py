"""The feedback model in plain NumPy, one candidate at a time."""

import numpy as np


def chance(odds):
    return 1 / (1 + np.exp(-np.clip(odds, -30, 30)))


def coded(rows):
    """Return rows rounded to 8-bit codes."""
    rows = np.float32(rows)
    scale = np.maximum(np.abs(rows).max(axis=-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    return np.rint(rows * (np.float32(1) / scale)) * scale.astype(float)


def multiplied(query, matrix):
    """Return ``query @ matrix`` with rounded numbers: 8-bit codes of the rows, int16 codes of the scaled query."""
    scales = np.maximum(np.abs(np.float32(matrix)).max(axis=1), np.float32(1e-30)) / np.float32(127)
    factors = np.float32(query) * scales
    step = max(np.abs(factors).max(), np.float32(1e-30)) / np.float32(32767)
    codes = np.rint(coded(matrix) / scales[:, None].astype(float))
    return step * (np.rint(factors * (np.float32(1) / step)).astype(float) @ codes)


class PlainModel:
    """What :class:`cmt_numba._feedback.FeedbackModel` computes from unit-length rows, with dicts for arrays."""

    def __init__(self, width):
        self.map, self.recent = np.zeros((width, width)), []
        self.theta, self.squares = np.zeros(width), np.full(width, 1e-6)
        self.first = np.array([10, 0, 10, 0.5, 10, 0.5, 2, 1, 3, -5.0])
        self.weights, self.fresh = self.first.copy(), 0.0
        self.prior = np.diag(4 / np.maximum(np.abs(self.first), 1) ** 2)
        self.precision = self.prior.copy()
        self.shown, self.rewarded = 2.0, 1.0
        self.slope, self.intercept, self.offset_squares = 10.0, -5.0, 1.0
        self.memories = {}

    def parts(self, q, ids, similarities, keys):
        parts = np.zeros((len(ids), 10))
        there = [i for i, memory in enumerate(ids) if memory >= 0]
        shares = similarities - max(similarities[there])
        shares = shares - np.log(np.exp(10 * shares[there]).sum()) / 10
        mean = self.rewarded / self.shown
        mapped = multiplied(q, self.map) + sum((q @ query) * key for query, key in self.recent)
        for i in there:
            own, s = self.memories.get(ids[i]), similarities[i]
            moved, linear, repeated, clicks, near = 0, 0, 0, 0, 0
            if own:
                moved, linear = q @ own["key"] - s, q @ own["weights"]
                clicks = np.log((own["sum"] + 3 * mean) / (own["expected"] + 3 * mean))
                nearest = max([s] + [q @ coded(x) for x, reward in own["past"] if reward > 0.5])
                near = nearest - s
                same = [reward > 0.5 for x, reward in own["past"] if np.array_equal(coded(x), coded(q))]
                repeated = 1 if s >= 1 - 1e-5 or any(same) else -len(same[:1])
            bilinear, diagonal = mapped @ keys[i], (q * self.theta) @ keys[i]
            parts[i] = s, shares[i], bilinear, diagonal, moved, linear, repeated, clicks, near, 1
        return parts

    def odds(self, ids, parts):
        """Return the log-odds of all parts, of those without rewards, and the odds of each memory if it were fresh."""
        there = [i for i, memory in enumerate(ids) if memory >= 0]
        seen = [i for i in there if ids[i] in self.memories]
        general = parts[:, [0, 1, 2, 3, 9]] @ self.weights[[0, 1, 2, 3, 9]]
        proven = min(self.weights[8] / self.first[8], 1)
        evidence = general + proven * (self.weights[0] + self.weights[1]) * parts[:, 8]
        as_fresh = np.full(len(ids), -np.inf)
        for i in there:
            most = [evidence[j] for j in seen if j != i]
            as_fresh[i] = general[i] + self.fresh + (general[i] - max(most) if most else 0)
        return np.where(ids >= 0, parts @ self.weights, -np.inf), general, as_fresh, there, seen

    def rank(self, q, ids, similarities, keys):
        parts = self.parts(q, ids, similarities, keys)
        odds, _, as_fresh, _, seen = self.odds(ids, parts)
        odds = np.where(np.isin(np.arange(len(ids)), seen), odds, as_fresh) + np.where(similarities >= 1 - 1e-5, 1e4, 0)
        return (odds - self.weights[9]) / self.weights[0]

    def balance(self, ids, parts, rewards):
        odds, general, as_fresh, there, seen = self.odds(ids, parts)
        if not seen or np.isnan(rewards[best := max(seen, key=odds.__getitem__)]):
            return
        if rewards[best] <= 0.5:
            among = [i for i in there if i not in seen and not rewards[i] > 0.5]
            fresh = max(among, key=general.__getitem__, default=None)
            if among and np.isnan(rewards[fresh]) and as_fresh[fresh] <= odds[best]:
                self.fresh += 0.1 * 0.5 * chance(odds[fresh])
            return
        among = [i for i in there if i % 4 == int(self.shown) % 4 and not rewards[i] > 0.5]
        if not among:
            return
        fresh = max(among, key=general.__getitem__)
        passes = as_fresh[fresh] > odds[best]
        if not passes and general[fresh] < general[best]:
            alone = parts.copy()
            alone[best, 8] = 0
            passes = self.odds(ids, alone)[2][fresh] > general[best]
        n_known = np.count_nonzero(~np.isnan(rewards))
        loss = n_known / (n_known + 1) * (1 - chance(odds[fresh])) if np.isnan(rewards[fresh]) else 1.0
        self.fresh += 0.1 * (0.03 - passes * loss)

    def learn(self, q, ids, similarities, keys, rewards, is_shared=False):
        parts, rewards = self.parts(q, ids, similarities, keys), np.where(ids >= 0, rewards, np.nan)
        given = np.flatnonzero(~np.isnan(rewards))
        missed = 1 - rewards
        if is_shared:
            caused = chance(parts[given] @ self.weights)
            rewards[given] *= np.minimum(caused / (1 - np.prod(1 - caused)), 1)
        self.balance(ids, parts, rewards)
        repeated = np.flatnonzero(parts[:, 6])
        for i in np.intersect1d(repeated, given):
            error = rewards[i] - chance(parts[i] @ self.weights)
            self.weights[6] = max(self.weights[6] + 0.1 * error * parts[i, 6], 0)
        expected = {}
        for i in given:
            p = chance(parts[i] @ self.weights)
            expected[i] = chance(parts[i] @ self.weights - parts[i, 7] * self.weights[7])
            if repeated.size > 0:
                continue
            curvature = max(p * (1 - p), 0.01)
            self.precision = 0.9998 * self.precision + 0.0002 * self.prior + curvature * np.outer(parts[i], parts[i])
            self.weights = self.weights + np.linalg.solve(self.precision, (rewards[i] - p) * parts[i])
            self.weights[0] = max(self.weights[0], 1)
            self.weights[2:9] = np.maximum(self.weights[2:9], 0)
        if given.size > 0:
            self._learn_map(q, ids, parts, keys, rewards, given)
        for order, i in enumerate(given):
            self._learn_one(q, ids[i], parts[i], keys[i], rewards[i], missed[i], expected[i], order == 0)

    def _learn_map(self, q, ids, parts, keys, rewards, given):
        logits = np.where(ids >= 0, 20 * (parts[:, 0] + parts[:, 2]), -np.inf)
        p = np.exp(logits - logits.max())
        p /= p.sum()
        if rewards[given].sum() > 0:
            pulls = -p
            pulls[given] += rewards[given] / rewards[given].sum()
        else:
            shown = min(p[given].sum(), 0.9)
            pulls = p * shown / (1 - shown)
            pulls[given] = -p[given]
        self.recent.append((q, pulls @ keys))
        if len(self.recent) == 32:
            self.map += sum(np.outer(*step) for step in self.recent)
            self.recent = []

    def _learn_one(self, q, memory, parts, key, reward, missed, expected, is_first):
        own = self.memories.setdefault(
            memory, {"expected": 0, "sum": 0, "squares": 0, "past": [], "key": key, "weights": 0 * key}
        )
        offset = self.slope * parts[0] + self.intercept
        error = chance(offset) - reward
        self.offset_squares += error**2
        self.slope = max(1, self.slope - 1.5 * error / np.sqrt(self.offset_squares) * parts[0])
        self.intercept -= 0.5 * error / np.sqrt(self.offset_squares)
        if is_first or reward > 0:
            moved = own["key"] + (0.3 * reward - 0.1 * missed) * q
            own["key"] = moved / np.linalg.norm(moved)
        error = chance(offset + parts[5]) - reward
        own["squares"] += error**2
        own["weights"] = own["weights"] - 4 * error / np.sqrt(1 + own["squares"]) * q
        gradient = (chance(offset + parts[3]) - reward) * q * key
        self.squares += gradient**2
        self.theta -= 0.3 * gradient / np.sqrt(self.squares)
        own["expected"], own["sum"] = 0.98 * own["expected"] + expected, 0.98 * own["sum"] + reward
        self.shown, self.rewarded = self.shown + 1, self.rewarded + reward
        if reward > 0.5 or (is_first and missed > 0):
            own["past"] = [*own["past"], (q, reward)][-16:]

    def forget(self, ids):
        for memory in ids:
            self.memories.pop(memory, None)
