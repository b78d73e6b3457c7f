"""The feedback model in plain NumPy, one candidate at a time."""

import numpy as np


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


CONSTANT, BEST, SIMILAR, QUERY, SECOND, _, _, LATER, MAPPED, DIAGONAL, VOTE, BROAD, VALUE, MOVED, UNCERTAIN = range(15)
FIRST = np.array([0.5, 0, 0, 0, 0, 0, 0, 0, 0.3, 0.3, 0.3, 0, 0, 0])
PRECISION = np.repeat([1.0, 3.0], [8, 6])


class Regression:
    """Linear regression with a Gaussian prior, in which earlier examples fade."""

    def __init__(self, n):
        self.first, self.prior = FIRST[:n], np.diag(PRECISION[:n])
        self.weights, self.precision = self.first.copy(), self.prior.copy()

    def predict(self, row):
        return np.clip(self.weights @ row[: self.weights.size], 0, 1)

    def learn(self, row, reward, share):
        row = row[: self.weights.size]
        self.precision = 0.9999 * self.precision + 0.0001 * self.prior + share * np.outer(row, row)
        target = share * (reward - self.weights @ row) * row + 0.0001 * self.prior @ (self.first - self.weights)
        self.weights = self.weights + np.linalg.solve(self.precision, target)
        self.weights[SIMILAR] = max(self.weights[SIMILAR], 0)
        self.weights[SECOND : LATER + 1] = np.minimum(self.weights[SECOND : LATER + 1], 0)
        self.weights[QUERY] = max(self.weights[QUERY], 0)
        self.weights[MAPPED : DIAGONAL + 1] = np.maximum(self.weights[MAPPED : DIAGONAL + 1], 0)


class PlainModel:
    """What :class:`cmt_numba._feedback.FeedbackModel` computes from unit-length rows, with dicts for arrays."""

    def __init__(self, width):
        self.map, self.recent = np.zeros((width, width)), []
        self.theta, self.squares = np.zeros(width), np.full(width, 1e-6)
        self.static, self.learned = Regression(8), Regression(14)
        self.evidence = np.full((2, 2), -2.8)  # for rewards, for differences; over static, over mean
        self.errors, self.n_errors = 0.25, 1.0
        self.rewards, self.n_rewards = 0.0, 1.0
        self.products, self.pairs = np.zeros(3), np.zeros(3)
        self.memories, self.is_started, self.n_queries = {}, False, 0

    @property
    def deviation(self):
        return max(0.15, np.sqrt(self.errors / self.n_errors))

    @property
    def odds(self):
        """Return the odds that the learned model is better than the static one and than the mean of rewards."""
        return 1 / np.exp(-self.evidence.min(axis=0)).sum()

    def weighed(self, evidence, difference):
        change = np.clip(difference / (2 * self.deviation**2), -3, 3)
        later = np.exp(-5) / (self.n_queries * (self.n_queries + 1))
        return min(np.log(np.exp(evidence) + later) + change, 20)

    @property
    def slope(self):
        least = 0.5 + 1.5 / self.learned.precision[SIMILAR, SIMILAR]
        return max(self.learned.weights[SIMILAR], least * self.deviation)

    @property
    def priors(self):
        """Return the numbers of advantages of 0 in the means of votes, broad votes and values."""
        variance = self.errors / self.n_errors
        signals = (self.products + 10 * variance / np.array([1.1, 2, 4])) / (self.pairs + 10)
        return np.clip(variance / np.maximum(signals, 1e-12) - 1, 0.1, 1000)

    def sums(self, q, own):
        """Return sums of advantages, of kernels and of their squares: for two kernels, and without one."""
        wide = np.exp([3.5 * (min(q @ coded(x), 1) - 1) for x, _ in own["past"]])
        advantages = np.array([advantage for _, advantage in own["past"]])
        past = [(kernel @ advantages, kernel.sum(), kernel @ kernel) for kernel in (wide**2, wide)]
        return [*past, (own["advantage"], own["trials"], own["trials"])]

    def parts(self, q, ids, similarities, keys):
        parts, there = np.zeros((len(ids), 15)), [i for i, memory in enumerate(ids) if memory >= 0]
        best = max(similarities[there])
        mapped = multiplied(q, self.map) + sum((q @ query) * key for query, key in self.recent)
        sums_of_votes = np.zeros((len(ids), 2))
        for i in there:
            parts[i, [CONSTANT, BEST, SIMILAR]] = 1, max(best, -1), max(similarities[i] - best, -1)
            parts[i, MAPPED], parts[i, DIAGONAL] = mapped @ keys[i], (q * self.theta) @ keys[i]
            if own := self.memories.get(ids[i]):
                sums = self.sums(q, own)
                means = [total / (n + prior) for (total, n, _), prior in zip(sums, self.priors, strict=True)]
                parts[i, [VOTE, BROAD, VALUE]] = means
                parts[i, MOVED] = q @ own["key"] - q @ keys[i]
                sums_of_votes[i] = sums[0][:2]
                parts[i, UNCERTAIN] = self.priors[0] / (sums[0][1] + self.priors[0])
        of_others = sums_of_votes.sum(axis=0) - sums_of_votes + [0, 1]
        parts[there, QUERY] = (of_others[:, 0] / of_others[:, 1])[there]
        return parts

    def scores(self, q, ids, similarities, keys, parts):
        exact = (similarities >= 1 - 1e-5) & (abs(keys - q) <= 2e-6).all(axis=1)
        learned = (
            parts[:, MAPPED:UNCERTAIN] @ self.learned.weights[MAPPED:] + self.optimism(ids, similarities, parts)
        ) / self.slope
        advantage = 1e4 * np.maximum(0.0, 1.0 - 1e5 * (1.0 - similarities))
        return np.where(ids >= 0, similarities + learned + np.where(exact, advantage, 0.0), -np.inf)

    def optimism(self, ids, similarities, parts):
        """Return the most that less similar memories earn by parts that fresh memories lack, for fresh memories."""
        general = parts[:, UNCERTAIN] * parts[:, VOTE] * self.learned.weights[VOTE]
        general += parts[:, BROAD:UNCERTAIN] @ self.learned.weights[BROAD:]  # 0 for memories without rewards
        best = [np.append(general[similarities <= similar], 0).max() for similar in similarities]
        return np.where(np.isin(ids, list(self.memories)), 0, 0.85 * np.array(best))

    def rank(self, q, ids, similarities, keys):
        return self.scores(q, ids, similarities, keys, self.parts(q, ids, similarities, keys))

    def learn(self, q, ids, similarities, keys, rewards, is_shared=False, is_static=True, is_used=True):
        rewards = np.where(ids >= 0, rewards, np.nan)
        similarities = np.where(ids >= 0, similarities, -np.inf)
        if np.isnan(rewards).all():
            return
        if not self.is_started:
            self.static.weights[CONSTANT] = self.learned.weights[CONSTANT] = self.rewards = np.nanmean(rewards)
            self.is_started = True
        parts, given = self.parts(q, ids, similarities, keys), np.flatnonzero(~np.isnan(rewards))
        best = np.argmax(self.scores(q, ids, similarities, keys, parts))
        ranks = [order.argsort() for order in (-self.scores(q, ids, similarities, keys, parts), -similarities)]
        ranks = [rank.argsort()[given].min() for rank in ranks]
        if not is_used:
            best, ranks = np.argmax(similarities), ranks[1:]
        is_chosen = rewards[given].min() > 0.5 and min(ranks) >= 3
        if is_chosen:
            rewards[best] = 0
        share, deviation = 1 / given.size if is_shared else 1, self.deviation
        given = np.flatnonzero(~np.isnan(rewards))
        for i in given[given > 0] if not is_shared and not is_chosen else []:
            parts[i, min(SECOND + i - 1, LATER)] = 1
        expected = np.array([self.static.predict(row) for row in parts])
        static = (rewards - expected)[given]
        learned = rewards[given] - [self.learned.predict(row) for row in parts[given]]
        self.n_queries += 1
        mean = self.rewards / self.n_rewards
        constant = static if is_chosen or mean == 1 else rewards[given] - mean

        errors = np.array([static, constant, learned])
        for row in range(2):
            *of_others, of_learned = (errors**2).sum(axis=1)
            for column in range(2 if is_static else 1):
                change = share * (of_others[column] - of_learned)
                self.evidence[row, column] = self.weighed(self.evidence[row, column], change)
            if given.size > 1 and not is_shared:
                errors -= errors.mean(axis=1, keepdims=True)
        if is_static and not is_chosen:
            self.rewards, self.n_rewards = (
                self.rewards + share * rewards[given].sum(),
                self.n_rewards + share * given.size,
            )
        self.errors, self.n_errors = 0.999 * self.errors + (static**2).mean(), 0.999 * self.n_errors + 1
        for i in given:
            self.static.learn(parts[i], rewards[i], share)
            self.learned.learn(parts[i], rewards[i], share)
        advantages = rewards - expected
        sums = {i: self.sums(q, self.memories[ids[i]]) for i in given if ids[i] in self.memories}
        self._learn_map(q, similarities, parts, keys, share * advantages, given)
        for i in given:
            own = np.array(sums.get(i, np.zeros((3, 3))))
            self.products = 0.9999 * self.products + advantages[i] * own[:, 0]
            self.pairs = 0.9999 * self.pairs + own[:, 2]
            self._learn_one(q, ids[i], parts[i], keys[i], advantages[i], share, deviation)

    def _learn_map(self, q, similarities, parts, keys, advantages, given):
        p = np.exp(20 * (similarities + parts[:, MAPPED] - max(similarities + parts[:, MAPPED])))
        pulls = -p / p.sum() * advantages[given].sum()
        pulls[given] += advantages[given]
        self.recent.append((q, pulls @ keys))
        if len(self.recent) == 32:
            self.map += sum(np.outer(*step) for step in self.recent)
            self.recent = []

    def _learn_one(self, q, memory, parts, key, advantage, share, deviation):
        own = self.memories.setdefault(memory, {"trials": 0, "advantage": 0, "past": [], "key": key})
        gradient = share * (parts[DIAGONAL] - advantage) * q * key
        self.squares += gradient**2
        self.theta -= 0.05 * gradient / np.sqrt(self.squares)
        own["trials"] = 0.98 * own["trials"] + share
        own["advantage"] = 0.98 * own["advantage"] + share * advantage
        moved = own["key"] + (0.3 if advantage > 0 else 0.1) * share * advantage * q
        own["key"] = moved / np.linalg.norm(moved)
        if abs(advantage) >= 0.5 * deviation:
            self._remember(own, q, advantage)

    def _remember(self, own, q, advantage):
        past, own["n"] = own["past"], own.get("n", 0) + 1
        if len(past) < 16:
            past.append((q, advantage))
            return
        oldest = [(own["n"] - 1 + later) % 16 for later in range(4)]
        past[min(oldest, key=lambda slot: abs(past[slot][1]))] = q, advantage

    def forget(self, ids):
        for memory in ids:
            self.memories.pop(memory, None)
