import { definePolicy, number } from "pointsman";

export default definePolicy({
  name: "least-loaded-warm",
  version: "0.1.0",
  description: "Takes the worker with the fewest active requests, of equals the one with most of the prompt cached.",
  parameters: {
    cache_weight: number({
      description: "Active requests that a wholly cached prompt weighs as much as; below 1 it only breaks ties.",
      default: 0.5,
      min: 0,
      max: 1,
    }),
  },
  score: {
    facts: ["request.blocks"],
    signals: ["load.active-requests", "cache.overlap-blocks"],
    run(request, { cache_weight }) {
      const requests = request.signal("load.active-requests");
      const cached = request.signal("cache.overlap-blocks");
      const blocks = Math.max(request.fact("request.blocks"), 1);
      const costs = new Array(request.rows);
      for (let row = 0; row < request.rows; row++) {
        costs[row] = requests.at(row) - (cache_weight * cached.at(row)) / blocks;
      }
      return costs;
    },
  },
});
