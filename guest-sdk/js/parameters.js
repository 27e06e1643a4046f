// Parameters: read from JSON, held against their rules, and described as a JSON Schema.

import { PolicyError } from "./index.js";

const LARGEST = 4294967295;
const TYPES = { number: "number", integer: "integer", boolean: "boolean", text: "string", choice: "string" };
const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[^\s"{}[\]:,]+|[{}[\]:,])/gy;

/** The values of the parameters by name; a PolicyError that names what is wrong. */
export function read(rules, json) {
  const given = new Map();
  for (const [name, token] of entries(json)) {
    if (!Object.hasOwn(rules, name)) throw new PolicyError(unknown(name, Object.keys(rules)));
    if (given.has(name)) throw new PolicyError(`parameter \`${name}\` comes twice; keep one of the two`);
    given.set(name, value(name, rules[name], token));
  }
  const values = {};
  for (const [name, rule] of Object.entries(rules)) {
    if (!given.has(name) && rule.default === undefined) throw new PolicyError(`missing parameter \`${name}\``);
    values[name] = given.has(name) ? given.get(name) : rule.default;
  }
  return values;
}

/** The keys of a JSON object, each with the first token of its value, as they are written. */
function entries(json) {
  let whole;
  try {
    whole = JSON.parse(json);
  } catch (error) {
    throw new PolicyError(`parameters are not JSON: ${error.message}`);
  }
  if (whole === null || typeof whole !== "object" || Array.isArray(whole)) {
    throw new PolicyError("parameters must be a JSON object");
  }
  const found = [];
  let depth = 0;
  let key = null;
  for (const [, token] of json.matchAll(TOKEN)) {
    if (depth === 1 && key === null && token[0] === '"') key = JSON.parse(token);
    else if (depth === 1 && token !== ":" && token !== "," && token !== "}") {
      found.push([key, token]);
      key = null;
    }
    if (token === "{" || token === "[") depth += 1;
    if (token === "}" || token === "]") depth -= 1;
  }
  return found;
}

function unknown(name, known) {
  if (known.length === 0) return `unknown parameter \`${name}\`; this policy takes none`;
  return `unknown parameter \`${name}\`; use ${oneOf(known)}`;
}

function oneOf(names) {
  const quoted = names.map((name) => `\`${name}\``);
  return [quoted.slice(0, -1).join(", "), ...quoted.slice(-1)].filter((part) => part !== "").join(" or ");
}

const EXPECTED = {
  number: "a number",
  integer: "a number",
  boolean: "true or false",
  text: "a string",
  choice: "a string",
};

function value(name, rule, token) {
  const fail = (problem) => {
    throw new PolicyError(`${name}: ${problem}`);
  };
  const found = kind(token);
  if (found !== EXPECTED[rule.type] && !(rule.type === "boolean" && found === "a boolean")) {
    fail(`expected ${EXPECTED[rule.type]}, found ${found}`);
  }
  const read = JSON.parse(token);
  switch (rule.type) {
    case "number":
      if (!Number.isFinite(read)) fail(`the number ${token} is too large`);
      break;
    case "integer":
      if (!/^-?\d+$/.test(token) || read < 0 || read > LARGEST) {
        fail(`expected a whole number from 0 to ${LARGEST}, found ${token}`);
      }
      break;
    case "choice":
      if (!rule.names.includes(read)) fail(`expected ${oneOf(rule.names)}, found \`${read}\``);
      break;
  }
  if (outside(rule, read)) throw new PolicyError(`${name} must be ${bounds(rule)}`);
  return read;
}

function kind(token) {
  const kinds = { '"': "a string", "{": "an object", "[": "a list", t: "a boolean", f: "a boolean", n: "null" };
  return kinds[token[0]] ?? "a number";
}

const outside = ({ min, above, max, below }, value) =>
  value < min || value <= above || value > max || value >= below;

function bounds({ min, above, max, below }) {
  if (min !== undefined && max !== undefined) return `between ${min} and ${max}`;
  const words = [["at least", min], ["above", above], ["at most", max], ["below", below]];
  return words.filter(([, bound]) => bound !== undefined).map((words) => words.join(" ")).join(" and ");
}

/** The JSON Schema of these parameters. */
export function schema(rules) {
  const properties = {};
  const required = [];
  for (const [name, rule] of Object.entries(rules)) {
    const integer = rule.type === "integer";
    properties[name] = {
      description: rule.description,
      type: TYPES[rule.type],
      format: rule.type === "number" ? "double" : integer ? "uint32" : undefined,
      enum: rule.names,
      minimum: rule.min ?? (integer ? 0 : undefined),
      exclusiveMinimum: rule.above,
      maximum: rule.max ?? (integer ? LARGEST : undefined),
      exclusiveMaximum: rule.below,
      default: rule.default,
    };
    if (rule.default === undefined) required.push(name);
  }
  return JSON.stringify({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties,
    required: required.length > 0 ? required : undefined,
    additionalProperties: false,
  });
}
