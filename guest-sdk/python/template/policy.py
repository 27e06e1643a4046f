#[filter
from pointsman import Candidates, Policy, integer, reads
#]
#[no filter
from pointsman import Candidates, Policy, reads
#]


class NewPolicy(Policy):
    """What the policy does, in one sentence."""

    name = "new-policy"
    version = "0.1.0"
    #[filter
    parameters = {
        "max_requests": integer(
            description="The active requests at which a worker gets no further one.",
            default=64,
            min=1,
        )
    }

    @reads(signals=["load.active-requests"])
    def filter(self, request: Candidates) -> list[bool]:
        most = self.given["max_requests"]
        return [requests < most for requests in request.signal("load.active-requests")]
    #]
    #[score

    @reads(signals=["load.active-requests"])
    def score(self, request: Candidates) -> list[float]:
        return request.signal("load.active-requests")
    #]
    #[pick

    @reads(signals=["cost", "cache.overlap-blocks"])
    def pick(self, request: Candidates) -> int:
        # The lowest cost; of equals the worker with most of the prompt cached, of those the first.
        cost, cached = request.signal("cost"), request.signal("cache.overlap-blocks")
        return min(range(request.rows), key=lambda row: (cost[row], -cached[row]))
    #]
