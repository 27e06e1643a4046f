from pointsman import Policy, choice, reads


class Faulty(Policy):
    """Errs as it is told."""

    name = "faulty"
    version = "0.1.0"
    parameters = {"fault": choice(["exception", "short", "type", "scalar", "unread", "loop", "memory", "print"])}

    @reads(signals=["load.active-requests"])
    def score(self, request):
        match self.given["fault"]:
            case "exception":
                return request.missing
            case "short":
                return [1.0]
            case "type":
                return [1, "two"]
            case "scalar":
                return 1
            case "unread":
                return request.signal("load.decode-blocks")
            case "loop":
                while True:
                    pass
            case "memory":
                return bytearray(1 << 30)
        print("seen", request.rows)
        return [0.0, 0.0]
