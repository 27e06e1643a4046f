import math

from pointsman import Candidates, Policy, PolicyError, choice, integer, number, reads

ACTIVE = "load.active-requests"
CACHED = "cache.device-overlap-blocks"
LARGEST = 2**64 - 1


class Adaptive(Policy):
    """Weighs a warm cache against an even load, more towards the load while it is uneven."""

    # The built-in policy `adaptive` once more, decision by decision: a policy with control state.
    name = "adaptive"
    version = "0.1.0"
    parameters = {
        "algorithm": choice(["aimd", "sigmoid"], description="How the weight of the load follows the fleet.", default="aimd"),
        "update_interval_ms": integer(description="Milliseconds between two looks at the weight.", default=100, min=1),
        "smoothing": number(description="What a new measurement weighs against those before.", default=0.2, above=0, max=1),
        "max_step": number(description="How far the weight moves at a time.", default=0.1, above=0, max=1),
        "distribution_min": number(description="The least weight of the load.", default=0.1, above=0, below=1),
        "pressure_max": number(description="The greatest weight where all workers are busy.", default=0.5, above=0, below=1),
        "distribution_max": number(description="The greatest weight.", default=0.9, above=0, below=1),
        "midpoint": number(description="The imbalance in the middle.", default=0.35, above=0, below=1),
        "slope": number(description="How steep the logistic is.", default=8, min=0.1, max=100),
        "load_scale": number(description="Active requests that are much.", default=8, min=1),
    }

    def __init__(self, parameters, setup):
        self.given = parameters
        least, busy, most = (parameters[name] for name in ("distribution_min", "pressure_max", "distribution_max"))
        if not least <= busy <= most:
            raise PolicyError(
                f"pressure_max must be between distribution_min ({least}) and distribution_max ({most}), and is {busy}"
            )
        self.weight = least
        self.imbalance = 0.0
        self.pressure = 0.0
        self.updated_ms: float | None = None
        self.lots = Lots(setup.seed)

    @reads(facts=["request.now-ms", "request.blocks", "request.tracks-prefill-tokens"], signals=[ACTIVE, CACHED])
    def pick(self, request: Candidates) -> int:
        active, cached = request.signal(ACTIVE), request.signal(CACHED)
        now_ms = request.fact("request.now-ms")
        if self.updated_ms is None or now_ms - self.updated_ms >= self.given["update_interval_ms"]:
            self.updated_ms = now_ms
            self.update(active)
        least, weight = min(active), self.weight
        scale = self.given["load_scale"] + (max(active) - least)
        # Where there is no prefill, there is none to save.
        blocks = request.fact("request.blocks") if request.fact("request.tracks-prefill-tokens") == 1 else 0
        best, row, equals = math.inf, 0, 0
        for place, load in enumerate(active):
            affinity = min(max(cached[place] / blocks, 0.0), 1.0) if blocks > 0 else 0.0
            cost = (1 - weight) * (1 - affinity) + weight * ((load - least) / scale)
            if cost < best:
                best, row, equals = cost, place, 1
            elif cost == best:
                equals += 1
                if self.lots.below(equals) == 0:
                    row = place
        return row

    def update(self, active):
        """Looks at the weight anew: once an interval, however many decisions there are."""
        given = self.given
        smoothing, scale, step = given["smoothing"], given["load_scale"], given["max_step"]
        floor, most = given["distribution_min"], given["distribution_max"]
        self.imbalance += smoothing * (spread(active) * (max(active) / (max(active) + scale)) - self.imbalance)
        self.pressure += smoothing * (min(active) / (min(active) + scale) - self.pressure)
        cap = most - self.pressure * (most - given["pressure_max"])
        target = min(max(self.target(cap), floor), cap)
        self.weight += min(max(target - self.weight, -step), step)

    def target(self, cap):
        floor, midpoint, slope = (self.given[name] for name in ("distribution_min", "midpoint", "slope"))
        if self.given["algorithm"] == "sigmoid":

            def logistic(at):
                return 1 / (1 + math.exp(-slope * (at - midpoint)))

            start, end = logistic(0), logistic(1)
            return floor + (logistic(self.imbalance) - start) / (end - start) * (cap - floor)
        if self.imbalance > midpoint:
            return self.weight + self.given["max_step"]
        if self.imbalance < midpoint * 0.5:
            return floor + 0.9 * (self.weight - floor)
        return self.weight


def spread(active):
    """How uneven the loads are: 0 where all are the same, 1 where one worker has all."""
    mean = squares = 0.0
    for count, load in enumerate(active, 1):
        before = load - mean
        mean += before / count
        squares += before * (load - mean)
    if len(active) < 2 or mean <= 0:
        return 0.0
    deviation = math.sqrt(max(squares, 0.0) / len(active))
    return min(deviation / mean / math.sqrt(len(active) - 1), 1.0)


class Lots:
    """Draws, the same for the same seed: wyrand, as the built-in policies draw."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, count: int) -> int:
        """A number from 0 to below `count`, each as likely as another."""
        while True:
            self.state = (self.state + 0x2D358DCCAA6C78A5) & LARGEST
            product = self.state * (self.state ^ 0x8BB84B93962EACC9)
            drawn = (product ^ (product >> 64)) & LARGEST
            # What is left over at the end of the range would make some numbers likelier.
            if drawn * count & LARGEST >= -count % 2**64 % count:
                return drawn * count >> 64
