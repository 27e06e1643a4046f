from pointsman import Admission, ClassifyRequest, Event, Policy, Resolution, integer


class MaxInFlight(Policy):
    """Admits so many requests at a time, in the order of arrival."""

    name = "max-in-flight"
    version = "0.1.0"
    parameters = {"max_requests": integer(description="The most requests in flight at a time.", min=1)}

    def __init__(self, parameters, setup):
        self.most = parameters["max_requests"]
        self.in_flight: set[int] = set()
        # A dict keeps its order, and tickets come in theirs.
        self.waiting: dict[int, None] = {}

    def classify(self, request: ClassifyRequest) -> Admission | None:
        if len(self.in_flight) < self.most:
            self.in_flight.add(request.ticket)
            return Admission()
        self.waiting[request.ticket] = None
        return None

    def on_event(self, event: Event, now_ms: float) -> list[Resolution]:
        if event.ended is None:
            return []
        self.waiting.pop(event.ended, None)
        if event.ended not in self.in_flight:
            return []
        self.in_flight.remove(event.ended)
        if not self.waiting:
            return []
        ticket = next(iter(self.waiting))
        del self.waiting[ticket]
        self.in_flight.add(ticket)
        return [Resolution(ticket, Admission())]
