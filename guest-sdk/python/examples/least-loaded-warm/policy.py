from pointsman import Candidates, Policy, number, reads


class LeastLoadedWarm(Policy):
    """Takes the worker with the fewest active requests, of equals the one with most of the prompt cached."""

    name = "least-loaded-warm"
    version = "0.1.0"
    parameters = {
        "cache_weight": number(
            description="Active requests that a wholly cached prompt weighs as much as; below 1 it only breaks ties.",
            default=0.5,
            min=0,
            max=1,
        )
    }

    @reads(facts=["request.blocks"], signals=["load.active-requests", "cache.overlap-blocks"])
    def score(self, request: Candidates) -> list[float]:
        blocks = max(request.fact("request.blocks"), 1.0)
        weight = self.given["cache_weight"]
        rows = zip(request.signal("load.active-requests"), request.signal("cache.overlap-blocks"))
        return [requests - weight * cached / blocks for requests, cached in rows]
