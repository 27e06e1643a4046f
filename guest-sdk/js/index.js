// What a policy's author imports. Types and their documentation are in index.d.ts.

/** An error whose message is for the operator, as it stands. */
export class PolicyError extends Error {
  name = "PolicyError";
}

const parameter = (type) => (rules = {}) => ({ type, ...rules });

export const number = parameter("number");
export const integer = parameter("integer");
export const boolean = parameter("boolean");
export const text = parameter("text");
export const choice = (names, rules = {}) => ({ type: "choice", names, ...rules });

export const admit = (admission = {}) => ({ admit: admission });
export const reject = (rejection) => ({ reject: rejection });

const STAGES = ["filter", "score", "pick", "classify"];
const KEYS = ["name", "version", "description", "parameters", "configure", "exclusiveAffinity", ...STAGES];

/** Checks what can be checked before there is a request, so that a mistake fails the build. */
export function definePolicy(policy) {
  const wrong = (message) => {
    throw new TypeError(`definePolicy: ${message}`);
  };
  for (const key of Object.keys(policy)) {
    if (!KEYS.includes(key)) wrong(`unknown key \`${key}\`; the keys are ${KEYS.join(", ")}`);
  }
  for (const key of ["name", "version", "description"]) {
    if (typeof policy[key] !== "string") wrong(`\`${key}\` must be a string`);
  }
  for (const stage of STAGES) {
    if (policy[stage] !== undefined && typeof policy[stage].run !== "function") {
      wrong(`\`${stage}\` needs a function \`run\``);
    }
  }
  return policy;
}
