// A policy as the exports of its component. `pointsman policy build` writes the module that calls this.

// QuickJS and SpiderMonkey both know it by this form.
import * as host from "pointsman:policy/log@0.1.0";

import { PolicyError } from "./index.js";
import { read, schema } from "./parameters.js";

const show = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
const say = (level) => (...values) => host.log(level, values.map(show).join(" "));
globalThis.console = {
  error: say("error"),
  warn: say("warn"),
  info: say("info"),
  log: say("info"),
  debug: say("debug"),
  trace: say("trace"),
};

/** The exports of a policy that has these stages. */
export function component(policy, stages) {
  if (policy === undefined) throw new TypeError("the policy's module has no default export: export default definePolicy({...})");
  for (const stage of ["filter", "score", "pick", "classify"]) {
    const [named, defined] = [stages.includes(stage), policy[stage] !== undefined];
    if (named && !defined) throw new TypeError(`pointsman.yaml names the stage \`${stage}\`, and the policy has none`);
    if (!named && defined) throw new TypeError(`the policy has the stage \`${stage}\`; name it under stages in pointsman.yaml`);
  }
  let state;
  const call = (stage, run) => {
    try {
      return run();
    } catch (error) {
      throw sentence(stage, error);
    }
  };
  const worker = (stage, answer) => {
    const candidates = new Candidates(stage, policy[stage] ?? {});
    return (rows, numbers, workers, texts) =>
      call(stage, () => answer(policy[stage].run.call(state, candidates.of(rows, numbers, workers, texts), state)));
  };
  const request = new ClassifyRequest("classify", policy.classify ?? {});
  const resolutions = (stage, run) => call(stage, () => (run() ?? []).map(resolution));
  return {
    policy: {
      describe() {
        const { name, version, description, parameters } = policy;
        return { name, version, description, parametersSchema: schema(parameters ?? {}) };
      },
      configure(partition, router, json) {
        return call("configure", () => {
          const parameters = read(policy.parameters ?? {}, json);
          state = policy.configure?.(parameters, { partition, router }) ?? parameters;
          return inputs(policy);
        });
      },
    },
    workerFilter: { keep: worker("filter", (kept) => all("filter", kept, "boolean")) },
    workerScorer: { score: worker("score", (costs) => all("score", costs, "number")) },
    workerPicker: { pick: worker("pick", row) },
    requestClassifier: {
      classify: (ticket, numbers, texts) =>
        call("classify", () => verdict(policy.classify.run.call(state, request.of(ticket, numbers, texts), state))),
      onEvent: (event, nowMs) => resolutions("onEvent", () => policy.classify.onEvent?.call(state, flat(event), nowMs)),
      onTick: (nowMs, progress) => resolutions("onTick", () => policy.classify.onTick?.call(state, nowMs, progress)),
    },
  };
}

/** An error as one sentence: the author's own as it stands, any other with its name and its place. */
function sentence(stage, error) {
  if (error instanceof PolicyError) return error.message;
  if (!(error instanceof Error)) return `${stage} threw ${show(error)}`;
  const place = /\(?([^\s(/]+\.[mc]?[jt]s:\d+)(?::\d+)?\)?/.exec(error.stack ?? "");
  return `${stage}: ${error.name}: ${error.message}${place === null ? "" : ` at ${place[1]}`}`;
}

function inputs({ filter, score, pick, classify, exclusiveAffinity }) {
  const reads = (stage) =>
    stage === undefined
      ? null
      : {
          facts: stage.facts ?? [],
          texts: stage.texts ?? [],
          signals: stage.signals ?? [],
          workers: stage.workers ?? false,
        };
  return {
    filter: reads(filter),
    score: reads(score),
    pick: reads(pick),
    exclusiveAffinity: exclusiveAffinity ?? false,
    classify: reads(classify),
    tickMs: classify?.tickMs ?? null,
  };
}

function all(stage, answers, type) {
  if (!Array.isArray(answers) && !ArrayBuffer.isView(answers)) {
    throw new PolicyError(`${stage} answered ${show(answers)}; answer an array of ${type}s, one a row`);
  }
  const wrong = answers.findIndex((answer) => typeof answer !== type);
  if (wrong >= 0) {
    throw new PolicyError(`${stage} answered ${show(answers[wrong])} for row ${wrong}; answer a ${type} for each row`);
  }
  return answers;
}

function row(answer) {
  if (Number.isInteger(answer) && answer >= 0) return answer;
  throw new PolicyError(`pick answered ${show(answer)}; answer the number of a row`);
}

class Request {
  constructor(stage, { facts = [], texts = [] }) {
    this.stage = stage;
    this.factPlaces = places(facts);
    this.textPlaces = places(texts);
    this.facts = facts.length;
  }

  fact(name) {
    return this.numbers[this.place("facts", this.factPlaces, name)];
  }

  text(name) {
    return this.texts[this.place("texts", this.textPlaces, name)] ?? null;
  }

  place(list, places, name) {
    const place = places.get(name);
    if (place === undefined) throw new PolicyError(`${this.stage} does not read \`${name}\`; name it under its ${list}`);
    return place;
  }
}

const places = (names) => new Map(names.map((name, place) => [name, place]));

class ClassifyRequest extends Request {
  of(ticket, numbers, texts) {
    return Object.assign(this, { ticket, numbers, texts });
  }
}

class Candidates extends Request {
  constructor(stage, reads) {
    super(stage, reads);
    const signals = reads.signals ?? [];
    this.signalPlaces = places(signals);
    this.columns = signals.map(() => new Signal());
  }

  of(rows, numbers, workers, texts) {
    return Object.assign(this, { rows, numbers, workers: workers ?? null, texts });
  }

  signal(name) {
    const place = this.place("signals", this.signalPlaces, name);
    return this.columns[place].of(this.numbers, this.facts + place * this.rows);
  }
}

class Signal {
  of(numbers, start) {
    this.numbers = numbers;
    this.start = start;
    return this;
  }

  at(row) {
    return this.numbers[this.start + row];
  }
}

function verdict(given) {
  if (given === null || given === undefined) return null;
  const { admit, reject } = given;
  if (reject !== undefined) return { tag: "reject", val: { publicMessage: null, ...reject } };
  if (admit === undefined) throw new PolicyError(`classify answered ${show(given)}; answer admit(...), reject(...) or null`);
  const { policyClass = null, dueMs = null, schedulingCostTokens = null, target } = admit;
  return { tag: "admit", val: { policyClass, dueMs, schedulingCostTokens, target: change(target) } };
}

function change(target) {
  if (target === undefined) return { tag: "keep" };
  return target === null ? { tag: "clear" } : { tag: "set", val: target };
}

const resolution = ({ ticket, verdict: given }) => ({ ticket, verdict: verdict(given) });

const flat = ({ tag, val }) => (tag === "workers" ? { kind: tag, workers: val } : { kind: tag, ...val });
