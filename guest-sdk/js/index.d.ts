/** An error whose message is for the operator, as it stands; any other error is shown with its name and place. */
export class PolicyError extends Error {}

interface Rules<T> {
  /** What the operator reads. */
  description?: string;
  /** Taken where the parameter is left out. Without it the parameter is required. */
  default?: T;
}

interface NumberRules extends Rules<number> {
  /** The least value, or the value that it must be above. */
  min?: number;
  above?: number;
  /** The greatest value, or the value that it must be below. */
  max?: number;
  below?: number;
}

interface Parameter<T> extends Rules<T> {
  type: string;
}

/** A number. */
export function number(rules?: NumberRules): Parameter<number>;
/** A whole number from 0 to 4294967295, written without fraction or exponent. */
export function integer(rules?: NumberRules): Parameter<number>;
/** `true` or `false`. */
export function boolean(rules?: Rules<boolean>): Parameter<boolean>;
/** A string. */
export function text(rules?: Rules<string>): Parameter<string>;
/** One of these strings. */
export function choice<N extends string>(names: readonly N[], rules?: Rules<N>): Parameter<N>;

type Values<P> = { [K in keyof P]: P[K] extends Parameter<infer T> ? T : never };

/** What a guest knows from its start. */
export interface Setup {
  partition: {
    model: string;
    routingGroup: string;
    role: "aggregated" | "prefill" | "decode" | "encode";
    /** Tokens per KV block. */
    blockSize: number;
    /** The seed of this guest's randomness. */
    seed: number;
  };
  /** The router's settings, which a policy may take as defaults. */
  router: {
    overlapScoreCredit: number;
    overlapScoreCreditDecay: number;
    prefillLoadScale: number;
    decodeActiveRequestWeight: number;
    hostCacheHitWeight: number;
    diskCacheHitWeight: number;
    sharedCacheMultiplier: number;
    routerTemperature: number;
    conditionalDisaggregation: boolean;
  };
}

/** What a stage reads, by the names of docs/contract.md. It gets that and nothing else. */
export interface Reads {
  /** Numbers of the request, such as `request.prompt-tokens`. */
  facts?: string[];
  /** Texts of the request, such as `session.id`. */
  texts?: string[];
}

export interface WorkerReads extends Reads {
  /** Numbers of each worker, such as `load.active-requests`. */
  signals?: string[];
  /** Whether the stage reads the workers' numbers. */
  workers?: boolean;
}

/** One signal of all candidates: a view of the list that came in, valid during the call. */
export interface Signal {
  /** The number of the row; NaN where it is missing. */
  at(row: number): number;
  /** The list that came in, and where in it the signal's first row is: for a loop that must be fast. */
  readonly numbers: ArrayLike<number>;
  readonly start: number;
}

/** The request. */
export interface Request {
  /** A fact that the stage reads; NaN where it is missing. */
  fact(name: string): number;
  /** A text that the stage reads; null where it is missing. */
  text(name: string): string | null;
}

/** The request and the candidate workers. */
export interface Candidates extends Request {
  /** How many candidates there are, at least 1. */
  readonly rows: number;
  signal(name: string): Signal;
  /** A number for each row that stands for its worker while that lives; null unless the stage reads it. */
  readonly workers: ArrayLike<number> | null;
}

export interface ClassifyRequest extends Request {
  /** The request's number; tickets count up. */
  readonly ticket: number;
}

export interface Admission {
  policyClass?: string;
  /** When the request must have left the queue, on the clock of `request.now-ms`. */
  dueMs?: number;
  /** What the queue charges, above 0. */
  schedulingCostTokens?: number;
  /** The soft affinity target: left as it is unless given, `null` for none, or a worker's number. */
  target?: number | null;
}

export interface Rejection {
  class: string;
  publicMessage?: string;
  diagnostic: string;
}

export type Verdict = { admit: Admission } | { reject: Rejection };
/** Admits a request. */
export function admit(admission?: Admission): Verdict;
/** Ends a request. */
export function reject(rejection: Rejection): Verdict;

export interface Resolution {
  ticket: number;
  verdict: Verdict;
}

export type Event =
  | { kind: "sent" | "responding"; ticket: number; worker: number }
  | { kind: "completed"; ticket: number; worker: number; contextTokens: number | null }
  | { kind: "aborted"; ticket: number; worker: number | null; error: string | null }
  | { kind: "workers"; workers: { number: number; rank: number; totalKvBlocks: number | null }[] };

export interface Progress {
  ticket: number;
  contextTokens: number;
}

/** A stage; `run` is called with the policy's state as `this` as well as its last argument. */
type Stage<Input, Answer, State> = WorkerReads & { run(this: State, input: Input, state: State): Answer };

export interface Policy<P extends Record<string, Parameter<any>>, State> {
  name: string;
  /** By semantic versioning. */
  version: string;
  /** One sentence. */
  description: string;
  parameters?: P;
  /** Makes the state of one guest, which lives from call to call; the parameters unless given. */
  configure?(parameters: Values<P>, setup: Setup): State;
  /** Whether the host narrows the candidates to the affinity target while that is eligible. */
  exclusiveAffinity?: boolean;
  /** Answers for each row whether the worker may serve the request. */
  filter?: Stage<Candidates, boolean[], State>;
  /** Answers a cost for each row: lower is better. */
  score?: Stage<Candidates, number[], State>;
  /** Answers the chosen row. */
  pick?: Stage<Candidates, number, State>;
  /** Answers a verdict, or null to defer the request. */
  classify?: Reads & {
    run(this: State, request: ClassifyRequest, state: State): Verdict | null;
    onEvent?(this: State, event: Event, nowMs: number): Resolution[] | void;
    /** How often `onTick` is called, in milliseconds, at least 10. */
    tickMs?: number;
    onTick?(this: State, nowMs: number, progress: Progress[]): Resolution[] | void;
  };
}

/** Checks a policy and gives it back: `export default definePolicy({...})`. */
export function definePolicy<P extends Record<string, Parameter<any>> = {}, State = Values<P>>(
  policy: Policy<P, State>,
): Policy<P, State>;

declare global {
  /** Writes to the policy's bounded log. */
  const console: Record<"error" | "warn" | "info" | "log" | "debug" | "trace", (...values: unknown[]) => void>;
}
