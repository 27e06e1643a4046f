import { admit, definePolicy, integer } from "pointsman";

export default definePolicy({
  name: "max-in-flight",
  version: "0.1.0",
  description: "Admits so many requests at a time, in the order of arrival.",
  parameters: {
    max_requests: integer({ description: "The most requests in flight at a time.", min: 1 }),
  },
  configure({ max_requests }) {
    // A Set keeps its order, and tickets come in theirs.
    return { most: max_requests, inFlight: new Set(), waiting: new Set() };
  },
  classify: {
    run({ ticket }, { most, inFlight, waiting }) {
      const admitted = inFlight.size < most;
      (admitted ? inFlight : waiting).add(ticket);
      return admitted ? admit() : null;
    },
    onEvent({ kind, ticket }) {
      if (kind !== "completed" && kind !== "aborted") return [];
      this.waiting.delete(ticket);
      if (!this.inFlight.delete(ticket)) return [];
      for (const next of this.waiting) {
        this.waiting.delete(next);
        this.inFlight.add(next);
        return [{ ticket: next, verdict: admit() }];
      }
      return [];
    },
  },
});
