import { choice, definePolicy } from "pointsman";

const FAULTS = {
  exception: (request) => request.missing.length,
  short: () => [1],
  type: () => [1, "two"],
  scalar: () => 1,
  unread: (request) => request.signal("load.decode-blocks"),
  loop: () => {
    for (;;) {}
  },
  memory: () => new ArrayBuffer(2 ** 30),
  print: (request) => {
    console.log("seen", [request.rows]);
    return [0, 0];
  },
};

export default definePolicy({
  name: "faulty",
  version: "0.1.0",
  description: "Errs as it is told.",
  parameters: { fault: choice(Object.keys(FAULTS)) },
  score: { signals: ["load.active-requests"], run: (request, { fault }) => FAULTS[fault](request) },
});
