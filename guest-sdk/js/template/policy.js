//[filter
import { definePolicy, integer } from "pointsman";
//]
//[no filter
import { definePolicy } from "pointsman";
//]

export default definePolicy({
  name: "new-policy",
  version: "0.1.0",
  description: "What the policy does, in one sentence.",
  //[filter
  parameters: {
    max_requests: integer({
      description: "The active requests at which a worker gets no further one.",
      default: 64,
      min: 1,
    }),
  },
  filter: {
    signals: ["load.active-requests"],
    run(request, { max_requests }) {
      const requests = request.signal("load.active-requests");
      return Array.from({ length: request.rows }, (_, row) => requests.at(row) < max_requests);
    },
  },
  //]
  //[score
  score: {
    signals: ["load.active-requests"],
    run(request) {
      const requests = request.signal("load.active-requests");
      return Array.from({ length: request.rows }, (_, row) => requests.at(row));
    },
  },
  //]
  //[pick
  pick: {
    signals: ["cost", "cache.overlap-blocks"],
    // The lowest cost; of equals the worker with most of the prompt cached, of those the first.
    run(request) {
      const cost = request.signal("cost");
      const cached = request.signal("cache.overlap-blocks");
      let best = 0;
      for (let row = 1; row < request.rows; row++) {
        const equal = cost.at(row) === cost.at(best);
        if (cost.at(row) < cost.at(best) || (equal && cached.at(row) > cached.at(best))) best = row;
      }
      return best;
    },
  },
  //]
});
